"""The error to expect of a release, from public numbers alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Words for what the error is a multiple of, where that is not known beforehand.
_TIMES = {
    "": "",
    "bounds": " × the clipping bound that is found",
    "range": " × the range of the numbers",
    "records": ", divided by the number of records",
    "ranks": " of the rank, divided by the number of records",
}
# A clipping bound, for an example of the error.
_EXAMPLE = 10.0
Times = Literal["", "bounds", "range", "records", "ranks"]


@dataclass(frozen=True)
class Expected:
    """The noise to expect in each number of a release; what clipping takes is not known beforehand.

    Args:
        std_error: the standard error of the noise of one number, in multiples of ``times``.
        times: the things that multiply or divide it and are not known beforehand: clipping bounds
            that are chosen privately, the range of the numbers, the number of records.
        threshold: the noisy count from which an item is named; None where items are public.
        unit: what is added up, such as records or euros; empty where it is not shown.

    >>> str(Expected(12.3456)), str(Expected(4.0, ("bounds",), threshold=18.2, unit="records"))
    ('± 12.3', '± 4 × the clipping bound that is found: at one of 10, ± 40 records; named from 18.2 on')
    """

    std_error: float
    times: tuple[Times, ...] = ()
    threshold: float | None = None
    unit: str = ""

    def __str__(self) -> str:
        size, example = _size(self.std_error), ""
        if self.times == ("bounds",) and self.unit:
            at = _EXAMPLE * self.std_error
            example = f": at one of {_EXAMPLE:g}, ± {_size(at)} {self.unit}"
        named = "" if self.threshold is None else f"; named from {self.threshold:,.3g} on"
        return f"± {size}{''.join(_TIMES[each] for each in self.times)}{example}{named}"


def _size(error: float) -> str:
    """Return an error in three digits, or in whole numbers."""
    return f"{error:,.0f}" if error >= 1000 else f"{error:.3g}"
