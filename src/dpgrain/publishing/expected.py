"""The error to expect of a release, from public numbers alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Words for what the error is a multiple of, where that is not known beforehand.
_TIMES = {
    "": "",
    "bounds": " clipping bounds",
    "range": " × the range of the numbers",
    "records": ", divided by the number of records",
    "ranks": " of the rank, divided by the number of records",
}
Times = Literal["", "bounds", "range", "records", "ranks"]


@dataclass(frozen=True)
class Expected:
    """The noise to expect in each number of a release; what clipping takes is not known beforehand.

    Args:
        std_error: the standard error of the noise of one number, in multiples of ``times``.
        times: the things that multiply or divide it and are not known beforehand: clipping bounds
            that are chosen privately, the range of the numbers, the number of records.
        threshold: the noisy count from which an item is named; None where items are public.

    >>> str(Expected(12.3456)), str(Expected(40.0, ("bounds", "records"), threshold=18.2))
    ('± 12.3', '± 40 clipping bounds, divided by the number of records; named from 18.2 on')
    """

    std_error: float
    times: tuple[Times, ...] = ()
    threshold: float | None = None

    def __str__(self) -> str:
        size = f"{self.std_error:,.0f}" if self.std_error >= 1000 else f"{self.std_error:.3g}"
        named = "" if self.threshold is None else f"; named from {self.threshold:,.3g} on"
        return f"± {size}{''.join(_TIMES[each] for each in self.times)}{named}"
