"""A published histogram with its promise."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dpgrain import _validate
from dpgrain.data.kernel import FloatArray
from dpgrain.errors import DataError, ParameterError
from dpgrain.files import whole_file
from dpgrain.guarantee import Guarantee
from dpgrain.wording import counted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Half-widths of a 95% interval, in standard errors of the noise.
_HALF_WIDTH = {"gaussian": 1.959963984540054, "laplace": math.log(20) / math.sqrt(2)}
_FORMATS = (".parquet", ".csv", ".json")
_METADATA = b"dpgrain"


@dataclass(frozen=True, repr=False, eq=False)
class Histogram:
    """A private histogram: made by :func:`dpgrain.histogram`.

    Args:
        items: (V,) the items, in the order of the public domain; selected ones by name.
        estimate: (V,) noisy sums of clipped contributions; unbiased for those unless non-negative.
        std_error: (V,) standard error of the noise.
        clip: (V,) the clipping bound of the item's cell.
        guarantee: what is promised.
        asked: the request in words: what was asked for.
        noise: ``"gaussian"`` or ``"laplace"``.
        nonnegative: whether negative estimates were set to 0.

    Everything in it is public: once released it may be copied, stored and processed freely.
    """

    items: pa.Array
    estimate: FloatArray
    std_error: FloatArray
    clip: FloatArray
    guarantee: Guarantee
    asked: Mapping[str, str]
    noise: str = "gaussian"
    nonnegative: bool = False

    @property
    def low(self) -> FloatArray:
        """(V,) lower end of a 95% interval for the sum of clipped contributions."""
        low = self.estimate - _HALF_WIDTH[self.noise] * self.std_error
        return np.maximum(low, 0.0) if self.nonnegative else low

    @property
    def high(self) -> FloatArray:
        """(V,) upper end of a 95% interval for the sum of clipped contributions."""
        return np.asarray(self.estimate + _HALF_WIDTH[self.noise] * self.std_error)

    def __len__(self) -> int:
        return len(self.items)

    def to_arrow(self) -> pa.Table:
        """The columns item, estimate, std_error, low, high."""
        return pa.table(
            {
                "item": self.items,
                "estimate": self.estimate,
                "std_error": self.std_error,
                "low": self.low,
                "high": self.high,
            }
        )

    def to_pandas(self) -> pd.DataFrame:
        """As :meth:`to_arrow`, as a pandas frame."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def largest(self, count: int = 20) -> pa.Table:
        """The items with the largest estimates, largest first.

        Raises:
            ParameterError: if ``count`` is not a whole number of at least 1.
        """
        count = _validate.integer(minimum=1, count=count)
        order = np.argsort(-self.estimate, kind="stable")[:count]
        return self.to_arrow().take(pa.array(order))

    def plot(self, ax: Axes | None = None, *, top: int = 30) -> Axes:
        """Draw the largest estimates with their 95% intervals; needs matplotlib.

        Args:
            ax: axes to draw on; new ones by default.
            top: how many items.
        """
        from dpgrain.report.plots import plot_estimates

        return plot_estimates(self, ax, top=top)

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML file that explains the release; returns its path.

        Raises:
            DataError: if the file cannot be written.
        """
        from dpgrain.report import write_report

        return write_report(self, path)

    def write(self, path: str | Path) -> Path:
        """Write item, estimate, std_error, low, high as Parquet, CSV or JSON, by the path's ending.

        Raises:
            ParameterError: if the path ends in none of these.
            DataError: if the file cannot be written.
        """
        path = check_format(path)
        table = self.to_arrow()
        with whole_file(path) as part:
            if path.suffix == ".parquet":
                _write_parquet(table, part)
            elif path.suffix == ".csv":
                import pyarrow.csv

                pyarrow.csv.write_csv(table, part)
            else:
                part.write_text(json.dumps(table.to_pylist(), ensure_ascii=False, indent=1))
        return path

    def save(self, path: str | Path) -> Path:
        """Save the release with its guarantee, as Parquet that any reader can open.

        Raises:
            DataError: if the file cannot be written.
        """
        about = {
            "guarantee": self.guarantee.to_dict(),
            "asked": dict(self.asked),
            "noise": self.noise,
            "nonnegative": self.nonnegative,
        }
        metadata = {_METADATA: json.dumps(about, ensure_ascii=False).encode()}
        with whole_file(Path(path)) as part:
            table = self.to_arrow().append_column("clip", pa.array(self.clip))
            _write_parquet(table.replace_schema_metadata(metadata), part)
        return Path(path)

    @staticmethod
    def load(path: str | Path) -> Histogram:
        """Load what :meth:`save` wrote.

        Raises:
            DataError: if the file is missing, broken or not a saved release.
        """
        import pyarrow.parquet

        try:
            table = pyarrow.parquet.read_table(path)
            about = json.loads((table.schema.metadata or {})[_METADATA])
            columns = {name: table.column(name).to_numpy() for name in table.column_names[1:]}
            return Histogram(
                table.column("item").combine_chunks(),
                columns["estimate"],
                columns["std_error"],
                columns["clip"],
                Guarantee.from_dict(about["guarantee"]),
                about["asked"],
                about["noise"],
                about["nonnegative"],
            )
        except (OSError, pa.ArrowException, LookupError, TypeError, ValueError) as error:
            raise DataError(
                f"{str(path)!r} is not a saved release; give a file written by save()."
            ) from error

    def without_negatives(self) -> Histogram:
        """The same release with negative estimates set to 0: post-processing, free of charge."""
        return replace(self, estimate=np.maximum(self.estimate, 0.0), nonnegative=True)

    def __repr__(self) -> str:
        return f"Histogram of {counted(len(self), 'item')}. {self.guarantee}"


def check_format(path: str | Path) -> Path:
    """The path, or raise unless its ending names a format that :meth:`Histogram.write` knows."""
    path = Path(path)
    if path.suffix not in _FORMATS:
        raise ParameterError(f"output {str(path)!r} must end in {', '.join(_FORMATS)}.")
    return path


def _write_parquet(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, path, compression="zstd")
