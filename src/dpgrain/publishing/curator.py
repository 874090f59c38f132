"""Reading of rows without a release, for checks and predictions of the curator."""

from __future__ import annotations

from contextlib import AbstractContextManager

from dpgrain.publishing.charge import Openable, Opened


class Curator:
    """The right to open rows without a charge, and without noise or a release.

    >>> import pyarrow as pa
    >>> from dpgrain import read
    >>> with Curator().open(read(pa.table({"x": [1.5]}))) as engine:
    ...     print(engine.columns([("x", "number")]).column(0).to_pylist())
    [1.5]
    """

    def open(self, rows: Openable[Opened]) -> AbstractContextManager[Opened]:
        """Open rows for reading, such as those of a table."""
        return rows.open_engine()
