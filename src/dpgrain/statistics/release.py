"""Published estimates with their guarantee."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import pyarrow as pa

from dpgrain import _validate
from dpgrain._files import (
    atomic_write,
    check_suffix,
    exists,
    json_values,
    read_guarantee,
    record_input,
)
from dpgrain._formatting import shorten
from dpgrain._lazy_import import require
from dpgrain._report_mixins import ReleaseReportMixin
from dpgrain._types import Array, FloatArray, IntArray
from dpgrain.errors import DataError, ParameterError
from dpgrain.publishing.call import KeepsQuery
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.statistics.intervals import as_column
from dpgrain.statistics.release_metadata import ReleaseMetadata
from dpgrain.statistics.statistic import Statistic
from dpgrain.tables.groups import Groups
from dpgrain.words import quantities
from dpgrain.words.release_text import (
    column_meanings,
    estimates_with_errors,
    explanation,
    file_notes,
    rounded,
    summary,
    with_months,
)

if TYPE_CHECKING:
    import pandas as pd

_FORMATS = (".parquet", ".csv", ".json")
# Module of each type of release in a file.
_TYPES = {
    "Estimates": "dpgrain.statistics.group_estimates",
    "Histogram": "dpgrain.statistics.group_estimates",
    "Holdings": "dpgrain.statistics.contribution_counts",
    "Marginals": "dpgrain.statistics.marginals",
}
# Fields and columns in files of 0.1 without a use.
_FORMER = ("chain", "steps", "up_to")
_METADATA = b"dpgrain"
#: Numeric columns of releases; keys with these names are renamed.
COLUMNS = (
    "estimate", "std_error", "low", "high", "at_least", "count", "count_error", "clipped_share"
)  # fmt: skip
_TEXTS = ("covers", "notes", "beyond_bounds", "clamped_to", "warning")
_RESERVED = (
    *COLUMNS, *_TEXTS, "lower", "upper", "clip", "complete_units", "clipped_units", "clamped_below",
    "clamped_above",
)  # fmt: skip
# Column of a pivot with estimates and their errors.
_WITH_ERROR = "±"
# Max characters of the meaning of a number in the heading of a pivot, which widens its index.
_MEANING_LETTERS = 60
# Endings of other file types.
_NOT_SAVED = (".csv", ".json", ".xlsx", ".html", ".pdf")


class Release(KeepsQuery, ReleaseReportMixin, ABC):
    """Published estimates, one per group, with their guarantee.

    Everything in a release is public: it may be copied, stored and processed freely.

    >>> from tempfile import TemporaryDirectory
    >>> from dpgrain import User, count, read
    >>> table = read(pa.table({"who": [1, 2, 2]}), user="who")
    >>> visits = count(table, unit=User(), epsilon=1.0, delta=1e-6)
    >>> with TemporaryDirectory() as folder:
    ...     again = Release.load(visits.save(Path(folder) / "visits.parquet"))
    >>> again.value == visits.value, again.guarantee == visits.guarantee, again.hash == visits.hash
    (True, True, True)
    """

    groups: Groups
    estimate: FloatArray
    std_error: FloatArray
    guarantee: Guarantee
    metadata: ReleaseMetadata

    @property
    @abstractmethod
    def low(self) -> FloatArray:
        """Lower end of a 95% interval, (V,)."""

    @property
    @abstractmethod
    def high(self) -> FloatArray:
        """Upper end of a 95% interval, (V,)."""

    @property
    def statistic(self) -> Statistic:
        """Published statistic."""
        return self.metadata.statistic

    @property
    def items(self) -> pa.Array:
        """Groups, (V,): the values of the key, or of several keys as a struct."""
        if len(self.groups.columns) == 1:
            return self.groups.columns[0]
        if not self.groups.columns:
            return pa.array(["all"])
        return pa.StructArray.from_arrays(list(self.groups.columns), names=list(self.groups.names))

    @property
    def more(self) -> dict[str, FloatArray]:
        """Additional numeric columns, each (V,)."""
        return {}

    @property
    def covers(self) -> str:
        """Quantity that ``low`` and ``high`` cover, such as "clipped total", "total" or "mean".

        >>> import pyarrow as pa
        >>> from dpgrain import User, count, read
        >>> table = read(pa.table({"who": [1, 2, 2]}), user="who")
        >>> count(table, unit=User(), epsilon=1.0, delta=1e-6).covers
        'clipped total'
        """
        return quantities.covers(self.metadata)

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of the keys in tables and files; "key estimate" for a key named "estimate"."""
        keys = list(self.groups.names)
        for place, name in enumerate(keys):
            if name in _RESERVED:
                keys[place] = f"key {name}"
                while keys.count(keys[place]) > 1:
                    keys[place] = f"key {keys[place]}"
        return tuple(keys)

    def explain(self) -> str:
        """Describe every column, the effect of clipping, the noise and the guarantee.

        >>> import pyarrow as pa
        >>> from dpgrain import User, count, read
        >>> table = read(pa.table({"who": [1, 2, 2]}), user="who")
        >>> release = count(table, unit=User(), clip=2.0, epsilon=1.0, delta=1e-6)
        >>> for line in release.explain().splitlines()[:2]:
        ...     print(line)
        Clipped count of records, each user's contribution clipped (scaled down) to at most 2 records
        estimate     The clipped total, plus noise.
        """
        return explanation(self)

    def unknown(self) -> Self:
        """Return the release without estimates, for data within the noise."""
        known = ("count", "count_error", "clip", "complete_units", "clipped_units")
        blank = {name: np.full(len(self), np.nan) for name in self._columns() if name not in known}
        return cast("Self", replace(cast("Any", self), **blank))

    def __len__(self) -> int:
        return len(self.groups)

    def to_arrow(self) -> pa.Table:
        """Return keys, ``estimate``, ``std_error``, ``low``, ``high`` and the columns of ``more``.

        Unknown numbers are null. A last column ``warning`` has the warnings of each row, if there
        are any. The metadata field ``covers`` is :attr:`covers`, ``notes`` the printed note,
        ``beyond_bounds`` the share of values outside of stated bounds, and ``clamped_to`` the
        privately chosen range, if any.
        """
        own = zip(COLUMNS, (self.estimate, self.std_error, self.low, self.high), strict=False)
        columns = {name: as_column(column) for name, column in (*own, *self.more.items())}
        keys = dict(zip(self.key_names, self.groups.columns, strict=True))
        if any(warnings := self.row_warnings):
            columns["warning"] = pa.array([text or None for text in warnings])
        return pa.table({**keys, **columns}, metadata=self._facts())

    def _facts(self) -> dict[str, str]:
        """Return the facts that a file has about all estimates, by name."""
        texts = {
            "beyond_bounds": quantities.beyond_bounds(self.metadata),
            "clamped_to": quantities.clamped_to(self.metadata),
            "notes": file_notes(self),
            "covers": self.covers,
        }
        return {name: text for name, text in texts.items() if text}

    @property
    def row_warnings(self) -> list[str]:
        """Warnings of each row, such as the reason of an empty cell; empty text for none."""
        kinds = self._row_cautions().tolist()
        return [quantities.warnings(self.metadata, kind) for kind in kinds]

    @abstractmethod
    def _row_cautions(self) -> Array:
        """Return the kind of each row's own warning, (V,); empty text for none."""

    def to_pandas(self) -> pd.DataFrame:
        """Return the table of :meth:`to_arrow` as a pandas frame, with its metadata in ``attrs``."""
        require("pandas")
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        frame.attrs.update(self._facts())
        return frame

    def pivot(self, rows: str, columns: str, value: str | None = None) -> pd.DataFrame:
        """Return one number of each group as a wide table, by the values of two keys.

        Args:
            rows: the key for the rows, in the order of the release.
            columns: the key for the columns.
            value: the number, a column of :meth:`to_arrow`, or ``"±"`` for texts such as
                "4,445 ± 145", rounded to the error; by default the estimate.

        Raises:
            ParameterError: if the groups have other keys, or there is no such number.

        The name of the columns describes the numbers. Combinations without a group are missing. For
        the ends of intervals, pass ``value="low"`` or ``value="high"``.

        >>> import pyarrow as pa
        >>> from dpgrain import User, count, read
        >>> visits = pa.table({"who": [1, 2], "kind": ["er", "gp"], "year": [2024, 2025]})
        >>> release = count(
        ...     read(visits, user="who"), by=["kind", "year"], unit=User(), epsilon=1.0, delta=1e-6,
        ...     domain={"kind": ["er", "gp"], "year": [2024, 2025]}, random_state=1)
        >>> release.pivot("kind", "year").shape, release.pivot("kind", "year").columns.name
        ((2, 2), 'estimate by year (clipped total)')
        """
        keys = {key for key in (rows, columns) if isinstance(key, str)}
        if keys != set(self.groups.names) or len(keys) < 2:
            listed = ", ".join(self.groups.names) or "none"
            raise ParameterError(
                "pivot requires the two keys of a release with two keys, not "
                f"{_validate.describe(rows)} and {_validate.describe(columns)}; the keys are {listed}."
            )
        number, table = "estimate" if value is None else value, self.to_arrow()
        table = table.append_column(_WITH_ERROR, pa.array(estimates_with_errors(self), pa.string()))
        numbers = table.column_names[len(keys) :]
        if not isinstance(number, str) or number not in numbers:
            raise ParameterError(
                f"value must be one of {', '.join(numbers)}, not {_validate.describe(number)}.",
                name="value",
            )
        # Use the columns of the groups, because a key may be named like a numeric column.
        at = dict(zip(self.groups.names, self.groups.columns, strict=True))
        places = {"row": at[rows], "column": at[columns], "number": table[number]}
        frame: pd.DataFrame = pa.table(places).to_pandas()
        wide = frame.pivot(index="row", columns="column", values="number").reindex(
            index=frame["row"].drop_duplicates(), columns=frame["column"].drop_duplicates()
        )
        meaning = column_meanings(self).get(number, "") if number in self.more else self.covers
        covers = f" ({shorten(meaning, _MEANING_LETTERS)})" if meaning else ""
        what = "estimate ± std_error" if number == _WITH_ERROR else number
        wide.index.name, wide.columns.name = rows, f"{what} by {columns}{covers}"
        return wide

    def largest(self, count: int = 20) -> Self:
        """Return the release of the groups with the largest estimates, largest first.

        Rows with a fixed order, such as ranks, keep their order.

        Raises:
            ParameterError: if ``count`` is not a positive integer.
        """
        count = _validate.integer(minimum=1, count=count)
        places = np.argsort(-self.estimate, kind="stable")[:count]
        made = self._taken(np.sort(places) if self.statistic.in_order else places)
        if not self.metadata.selected or self.statistic.pointwise or len(made) == len(self):
            return made
        whole = self.metadata.selected_groups or len(self)
        metadata = replace(self.metadata, selected_groups=whole)
        return cast("Self", replace(cast("Any", made), metadata=metadata))

    def min_people(self, least: int) -> Self:
        """Return the groups with a large noisy number of people, at no privacy cost.

        Args:
            least: the smallest noisy number of people of a returned group.

        Raises:
            ParameterError: if ``least`` is not a positive integer, or the numbers do not count
                people. They do in counts, means and other ratios of a table from
                :meth:`~dpgrain.UserTable.per_user`.

        This is post-processing of noisy numbers, without a guarantee on true ones: for Gaussian
        noise with standard error s, a group of at most ``least`` − s·z people is returned with a
        probability of at most Φ̄(z). So a smaller group may be returned, and a larger one dropped.

        >>> import pyarrow as pa
        >>> from dpgrain import User, count, read
        >>> rows = pa.table({"who": list(range(900)), "zip": ["75"] * 890 + ["13"] * 10})
        >>> people = read(rows, user="who").per_user(by="zip", visits="count()")
        >>> found = count(people, by="zip", domain=["75", "13"], unit=User(), epsilon=1, delta=1e-6)
        >>> found.min_people(50).items.to_pylist()
        ['75']
        """
        least = _validate.integer(minimum=1, least=least)
        people = self._people()
        if people is None:
            raise ParameterError(
                "min_people requires a noisy number of people per group; count a per-user table "
                "(per_user) or compute its mean, and call min_people before other "
                "post-processing."
            )
        made = self._taken(np.flatnonzero(people >= least))
        # They are no longer the largest of the selected groups.
        metadata = replace(self.metadata, selected_groups=None)
        return cast("Self", replace(cast("Any", made), metadata=metadata))

    def _people(self) -> FloatArray | None:
        """Return the noisy numbers of people of the groups, (V,); None for numbers of rows."""
        return None

    def _taken(self, places: IntArray) -> Self:
        """Return the release of the groups at these indices."""
        taken: dict[str, Any] = {name: column[places] for name, column in self._columns().items()}
        release: Any = self
        return cast(Self, replace(release, groups=self.groups.take(places), **taken))

    def write(self, path: str | Path) -> Path:
        """Write the table of :meth:`to_arrow` as Parquet, CSV or JSON, by the path's ending.

        In CSV and JSON, the last columns are the printed note, ``notes``, and :attr:`covers`, after
        ``beyond_bounds`` for stated bounds or ``clamped_to`` for a chosen range; in Parquet, they
        are fields of the metadata.
        CSV numbers are rounded to two digits of their error: ``low`` and ``at_least`` down,
        ``high`` and errors up, but no estimates of :meth:`reconciled` or other post-processing,
        which would no longer add up, and months are written as 2025-01. JSON and Parquet have all
        digits and the first days of months.

        Raises:
            ParameterError: if the path has another ending.
            DataError: if the file cannot be written.
        """
        path = check_format(path)
        table = self.to_arrow()
        if path.suffix != ".parquet":
            for name, text in self._facts().items():
                table = table.append_column(name, pa.repeat(text, len(table)))
        with atomic_write(path) as part:
            if path.suffix == ".parquet":
                _write_parquet(table, part)
            elif path.suffix == ".csv":
                import pyarrow.csv

                pyarrow.csv.write_csv(with_months(self, rounded(self, table)), part)
            else:
                part.write_text(
                    json.dumps(json_values(table.to_pylist()), ensure_ascii=False, indent=1)
                )
        return path

    @abstractmethod
    def _columns(self) -> dict[str, FloatArray]:
        """Return the fields of shape (V,) of the release."""

    def _about(self) -> dict[str, Any]:
        """Return the other fields of the release, except guarantee and metadata."""
        return {}

    def save(self, path: str | Path) -> Path:
        """Save the release with its guarantee, as Parquet that any reader can open.

        Raises:
            ParameterError: if the path has the ending of another file type.
            DataError: if the file cannot be written.
        """
        tables = "write(), or --output, writes the table as CSV or JSON"
        check_suffix(path, _NOT_SAVED, "Parquet (.parquet)", instead=tables)
        about = {
            "kind": type(self).__name__,
            "guarantee": self.guarantee.to_dict(),
            "facts": self.metadata.to_dict(),
            "keys": list(self.groups.names),
            "fields": list(self._columns()),
            "about": self._about(),
        }
        if self.query is not None:
            about["query"] = self.query
        if self.shares:
            about["shares"] = dict(self.shares)
        table = self.to_arrow()
        metadata = {_METADATA: json.dumps(about, ensure_ascii=False).encode()}
        metadata |= table.schema.metadata
        for name, column in self._columns().items():
            if name not in table.column_names:
                table = table.append_column(name, pa.array(column))
        with atomic_write(Path(path)) as part:
            _write_parquet(table.replace_schema_metadata(metadata), part)
        return Path(path)

    @staticmethod
    def load(path: str | Path) -> Any:
        """Load a release that :meth:`save` wrote.

        Raises:
            DataError: if the file is missing, broken or not a saved release, or is next to the
                guarantee of other numbers.
        """
        import pyarrow.parquet

        path = _validate.path(path=path)
        record_input(path)
        if not exists(path):
            raise DataError(f"The file {str(path)!r} does not exist; check the path.")
        read_guarantee(Path(path))
        try:
            table = pyarrow.parquet.read_table(path)
            about = json.loads((table.schema.metadata or {})[_METADATA])
            keys = [column.combine_chunks() for column in table.columns[: len(about["keys"])]]
            kind = getattr(import_module(_TYPES[about["kind"]]), about["kind"])
            own, stored = about["about"], about["fields"]
            if isinstance(stored, list):
                stored = {name: name for name in stored}
            for name in _FORMER:
                own.pop(name, None)
                stored.pop(name, None)
            release = kind(
                groups=Groups(tuple(about["keys"]), tuple(keys), table.num_rows),
                guarantee=Guarantee.from_dict(about["guarantee"]),
                metadata=_metadata(about),
                **{name: table.column(place).to_numpy() for name, place in stored.items()},
                **own,
            )
            for name in ("query", "shares"):
                if name in about:
                    vars(release)[name] = _validate.mapping(**{name: about[name]})
            # Check all texts while the file is read.
            _ = str(release), release.explain(), release.hash
            return release
        except (OSError, pa.ArrowException, *_validate.MISFIT_ERRORS) as error:
            raise DataError(
                f"{str(path)!r} is not a saved release; pass a file written by --save or "
                "release.save()."
            ) from error

    @property
    def hash(self) -> str:
        """SHA-256 hash of groups, numbers, metadata and guarantee; unchanged by save and load."""
        about = {
            "kind": type(self).__name__,
            "promise": self.guarantee.hash,
            "facts": self.metadata.to_dict(),
            "about": self._about(),
            "keys": list(self.groups.names),
            "groups": [column.to_pylist() for column in self.groups.columns],
            "fields": list(self._columns()),
        }
        hashed = hashlib.sha256(
            json.dumps(about, ensure_ascii=False, sort_keys=True, default=str).encode(
                errors="surrogatepass"
            )
        )
        for column in self._columns().values():
            # Files store one NaN and one zero only.
            plain = np.where(np.isnan(column), np.nan, column + 0.0)
            hashed.update(np.ascontiguousarray(plain, dtype="<f8").tobytes())
        return hashed.hexdigest()

    @property
    def value(self) -> float:
        """Only estimate of a release with one group.

        Raises:
            ParameterError: if there are several groups.
        """
        if len(self) != 1:
            raise ParameterError(
                f"value requires a release with one group, not {len(self)}; use to_pandas()."
            )
        return float(self.estimate[0])

    @property
    def estimand(self) -> str:
        """Description of the estimates, with the clipping of contributions."""
        return quantities.estimand(self.metadata)

    def __repr__(self) -> str:
        return summary(self)


def _metadata(about: dict[str, Any]) -> ReleaseMetadata:
    """Return the metadata of a saved release, also from files without facts."""
    return (
        ReleaseMetadata.from_dict(about["facts"])
        if "facts" in about
        else ReleaseMetadata.from_text(about["asked"])
    )


def check_format(path: str | Path) -> Path:
    """Return the path, or raise if its ending is unknown to :meth:`Histogram.write`."""
    path = _validate.path(output=path)
    if path.suffix not in _FORMATS:
        raise ParameterError(
            f"output {str(path)!r} must end in {', '.join(_FORMATS)}.", name="output"
        )
    return path


def _write_parquet(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, path, compression="zstd")
