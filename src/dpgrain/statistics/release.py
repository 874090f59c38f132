"""Published estimates with their guarantee."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from dpgrain import _validate
from dpgrain._files import (
    atomic_write,
    check_suffix,
    exists,
    json_values,
    read_guarantee,
    record_input,
)
from dpgrain._lazy_import import require
from dpgrain._report_mixins import ReleaseReportMixin
from dpgrain._types import Array, FloatArray, IntArray
from dpgrain.errors import DataError, ParameterError
from dpgrain.publishing.call import KeepsQuery
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.statistics.clipped_share import ClippedUnits
from dpgrain.statistics.comparisons import Comparison, difference, ratio
from dpgrain.statistics.consistency import consistent, reconcile
from dpgrain.statistics.intervals import as_column, half_width, radius
from dpgrain.statistics.ordering_loss import misordered_pairs
from dpgrain.statistics.release_metadata import ReleaseMetadata
from dpgrain.statistics.shrinkage import shrink
from dpgrain.statistics.statistic import Statistic
from dpgrain.tables.groups import Groups
from dpgrain.words import quantities
from dpgrain.words.quantities import format_limit
from dpgrain.words.release_text import explanation, format_keys, rounded, summary

if TYPE_CHECKING:
    import pandas as pd

_FORMATS = (".parquet", ".csv", ".json")
# Modules of other types of release, imported when such a file is read.
_ELSEWHERE = {
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
_TEXTS = ("covers", "beyond_bounds", "take care")
_RESERVED = (
    *COLUMNS, *_TEXTS, "lower", "upper", "clip", "complete_units", "clipped_units"
)  # fmt: skip
# Characters of a printed key that is not abbreviated.
_WHOLE = 1 << 20
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

    _kinds: ClassVar[dict[str, type[Release]]] = {}

    groups: Groups
    estimate: FloatArray
    std_error: FloatArray
    guarantee: Guarantee
    metadata: ReleaseMetadata

    def __init_subclass__(cls) -> None:
        Release._kinds[cls.__name__] = cls

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

        Unknown numbers are null. A last column ``take care`` has the warnings of each row, if there
        are any. The metadata field ``covers`` is :attr:`covers`, and ``beyond_bounds`` the share of
        values outside of stated bounds, if there are any.
        """
        own = zip(COLUMNS, (self.estimate, self.std_error, self.low, self.high), strict=False)
        columns = {name: as_column(column) for name, column in (*own, *self.more.items())}
        keys = dict(zip(self.key_names, self.groups.columns, strict=True))
        outside = quantities.beyond_bounds(self.metadata)
        facts = {"covers": self.covers, **({"beyond_bounds": outside} if outside else {})}
        if any(warnings := self.row_warnings):
            columns["take care"] = pa.array([text or None for text in warnings])
        return pa.table({**keys, **columns}, metadata=facts)

    @property
    def row_warnings(self) -> list[str]:
        """Warnings of each row, such as the reason of an empty cell; empty text for none."""
        kinds = self._row_cautions().tolist()
        return [quantities.warnings(self.metadata, kind) for kind in kinds]

    @abstractmethod
    def _row_cautions(self) -> Array:
        """Return the kind of each row's own warning, (V,); empty text for none."""

    def to_pandas(self) -> pd.DataFrame:
        """Return the table of :meth:`to_arrow` as a pandas frame, with ``covers`` in ``attrs``."""
        require("pandas")
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        frame.attrs["covers"] = self.covers
        return frame

    def pivot(self, rows: str, columns: str, value: str | None = None) -> pd.DataFrame:
        """Return one number of each group as a wide table, by the values of two keys.

        Args:
            rows: the key for the rows, in the order of the release.
            columns: the key for the columns.
            value: the number, a column of :meth:`to_arrow`; by default the estimate.

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
        covers = "" if number in self.more else f" ({self.covers})"
        wide.index.name, wide.columns.name = rows, f"{number} by {columns}{covers}"
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

        In CSV and JSON, :attr:`covers` is the last column, after ``beyond_bounds`` for stated
        bounds; in Parquet, both are fields of the metadata. CSV numbers are rounded to two digits
        of their error: ``low`` and ``at_least`` down, ``high`` and errors up, but no estimates of
        :meth:`reconciled` or other post-processing, which would no longer add up. JSON and Parquet
        have all digits.

        Raises:
            ParameterError: if the path has another ending.
            DataError: if the file cannot be written.
        """
        path = check_format(path)
        table = self.to_arrow()
        if path.suffix != ".parquet":
            if quantities.beyond_bounds(self.metadata):
                outside = pa.repeat(quantities.beyond_bounds(self.metadata), len(table))
                table = table.append_column("beyond_bounds", outside)
            table = table.append_column("covers", pa.repeat(self.covers, len(table)))
        with atomic_write(path) as part:
            if path.suffix == ".parquet":
                _write_parquet(table, part)
            elif path.suffix == ".csv":
                import pyarrow.csv

                pyarrow.csv.write_csv(rounded(self, table), part)
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
        tables = "write(), or --output, writes the table as CSV or JSON, without the guarantee"
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
            if about["kind"] in _ELSEWHERE:
                import_module(_ELSEWHERE[about["kind"]])
            kind: Any = Release._kinds[about["kind"]]
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


@dataclass(frozen=True, repr=False, eq=False)
class Histogram(Release):
    """Private sums of contributions by group: counts, sums, histograms, top items.

    Args:
        groups: (V,) the groups, in the order of the public domain; selected ones by name.
        estimate: (V,) the noisy sums of clipped contributions, unbiased for these unless
            non-negative; NaN for sums whose contributions did not exceed the noise.
        std_error: (V,) the standard error of the noise.
        clip: (V,) the clipping bound of the group's cell.
        guarantee: the guarantee of the release.
        metadata: the public facts of the release: its parameters, and the outcome of private choices.
        noise: the noise distribution: ``"gaussian"``, ``"laplace"``, or ``"geometric"`` (integers).
        nonnegative: True if negative estimates were set to 0.
        at_least: (V,) 95% lower bounds on the unclipped totals, for any data; NaN if values may be
            negative. None if clipping has no effect. They use the noisy sums before
            post-processing.
        complete_units: (V,) the noisy numbers of units whose contribution was within its bound;
            None if they were not counted.
        clipped_units: (V,) the noisy numbers of units whose contribution was clipped, or None.
        units_error: the standard error of both numbers; None like these.

    >>> from dpgrain import User, histogram, read
    >>> rows = pa.table({"who": list(range(900)), "page": ["jobs"] * 600 + ["news"] * 300})
    >>> visits = histogram(
    ...     read(rows, user="who"), "page", unit=User(), epsilon=1.0, delta=1e-6,
    ...     domain=["jobs", "news", "shop"], random_state=1)
    >>> dict(zip(visits.items.to_pylist(), visits.estimate.round(-1).tolist()))
    {'jobs': 600.0, 'news': 300.0, 'shop': -0.0}
    >>> bool((visits.without_negatives().estimate >= 0).all()), visits.largest(1).items.to_pylist()
    (True, ['jobs'])
    """

    groups: Groups
    estimate: FloatArray
    std_error: FloatArray
    clip: FloatArray
    guarantee: Guarantee
    metadata: ReleaseMetadata
    noise: str = "gaussian"
    nonnegative: bool = False
    at_least: FloatArray | None = None
    complete_units: FloatArray | None = None
    clipped_units: FloatArray | None = None
    units_error: float | None = None

    @property
    def units(self) -> ClippedUnits | None:
        """Noisy numbers of complete and clipped units; None if they were not counted."""
        counts, error = (self.complete_units, self.clipped_units), self.units_error
        if counts[0] is None or counts[1] is None or error is None:
            return None
        law: Any = self.metadata.noise
        return ClippedUnits(counts[0], counts[1], error, law)

    @property
    def low(self) -> FloatArray:
        """Lower end of a 95% interval for the sum of clipped contributions, (V,)."""
        low = self.estimate - radius(self.noise, self.std_error)
        return np.maximum(low, 0.0) if self.nonnegative else low

    @property
    def high(self) -> FloatArray:
        """Upper end of a 95% interval for the sum of clipped contributions, (V,)."""
        high = self.estimate + radius(self.noise, self.std_error)
        return np.maximum(high, 0.0) if self.nonnegative else high

    @property
    def more(self) -> dict[str, FloatArray]:
        """Lower bound on the unclipped totals, and upper limit on the share of clipped units."""
        least = self.at_least
        if least is not None:
            # A smaller lower bound also holds: no bound is above the interval, even if this is
            # below 0 or post-processed.
            least = np.where(least > self.high, self.high, least)
        columns = {"at_least": least}
        if self.units is not None:
            columns["clipped_share"] = self.units.high
        return {name: column for name, column in columns.items() if column is not None}

    def _row_cautions(self) -> Array:
        many = np.zeros(len(self), np.bool_) if self.units is None else ~self.units.is_small
        return np.select([np.isnan(self.estimate), many], ["hidden", "clipping"], "")

    def _columns(self) -> dict[str, FloatArray]:
        own = {"estimate": self.estimate, "std_error": self.std_error, "clip": self.clip}
        units = {"complete_units": self.complete_units, "clipped_units": self.clipped_units}
        more = {"at_least": self.at_least, **units}
        return {**own, **{name: column for name, column in more.items() if column is not None}}

    def _about(self) -> dict[str, Any]:
        counted = {} if self.units_error is None else {"units_error": self.units_error}
        return {"noise": self.noise, "nonnegative": self.nonnegative, **counted}

    def _people(self) -> FloatArray | None:
        """Return the noisy counts, if they are of people."""
        of_people = self.metadata.over == "people" and self.metadata.value is None
        # Numbers set to 0 stay below any limit; other post-processing changes counts.
        return self.estimate if of_people and not self.metadata.processed else None

    def without_negatives(self) -> Self:
        """Return the same release with negative estimates set to 0: free post-processing."""
        return replace(
            self,
            estimate=np.maximum(self.estimate, 0.0),
            nonnegative=True,
        )

    def shrunk(self, prior: ArrayLike | None = None) -> Self:
        """Shrink each estimate towards 0 by its probability of being noise: free post-processing.

        Args:
            prior: (V,) public values to which the true ones may be proportional; estimates are
                shrunk towards these instead of 0.

        Raises:
            ParameterError: if the prior has another length, or is not positive.

        An empirical-Bayes rule: :func:`dpgrain.statistics.shrinkage.shrink`. The standard errors
        are then those of the fitted prior distribution instead of the noise. For counts and
        non-negative sums.
        """
        self._require_independent("shrunk")
        law = "laplace" if self.noise == "geometric" else self.noise
        known = ~np.isnan(self.estimate)
        if prior is not None and np.shape(prior) == known.shape:
            prior = np.asarray(prior)[known]
        estimate, error = self.estimate.copy(), self.std_error.copy()
        estimate[known], error[known] = shrink(estimate[known], error[known], prior, noise=law)
        return self._processed(["shrunk"], estimate, error, nonnegative=True)

    def consistent(self, total: float | None = None) -> Self:
        """Return the nearest non-negative estimates with a consistent sum: free post-processing.

        Args:
            total: a public total of the estimates; by default their sum. For a clipped sum, it is
                the total of clipped contributions: otherwise the clipped part of a few groups would
                be spread over all groups.

        Raises:
            ParameterError: if the total is negative.
        """
        self._require_independent("consistent")
        estimate, known = self.estimate.copy(), ~np.isnan(self.estimate)
        estimate[known] = consistent(estimate[known], self.std_error[known], total)
        return self._processed(["consistent"], estimate, self.std_error, nonnegative=True)

    def reconciled(self, totals: Histogram) -> tuple[Self, Histogram]:
        """Combine both releases so that the parts add up to the totals.

        Args:
            totals: a release of the same statistic by some of this one's keys, such as counts by
                item for counts by item and month. Every group of it must have parts here, and every
                part its total. If contributions are clipped, all groups of both need the same bound.

        Returns:
            This release and the totals, each with smaller standard errors and with the guarantee of
            both releases together, because each then depends on both. No further budget is spent.

        Raises:
            ParameterError: if the keys do not fit, a group is missing, the two are of different
                statistics or the same release, or have different clipping bounds, or their guarantees
                are for different units.
        """
        self._require_independent("reconciled")
        if not isinstance(totals, Histogram) or _measured(totals) != _measured(self):
            raise ParameterError(
                f"totals must be a release of the same statistic, {_measured(self)}, not of "
                f"{_measured(totals) if isinstance(totals, Release) else type(totals).__name__}."
            )
        totals._require_independent("reconciled")
        if totals.hash == self.hash:
            raise ParameterError(
                "totals must be another release, not this one, because its noise would be "
                "counted twice."
            )
        clipped = self.metadata.is_clipped or totals.metadata.is_clipped
        bounds = np.unique(np.concatenate([self.clip, totals.clip]))
        if clipped and bounds.size > 1:
            raise ParameterError(
                "totals must have the clipping bound of the parts, not bounds from "
                f"{format_limit(bounds[0])} to {format_limit(bounds[-1])}, because clipped parts then "
                "add up to less than their total; pass the same clip= for both."
            )
        both = self.guarantee + totals.guarantee
        group = self.groups.codes_in(totals.groups)
        parts, parts_sd, whole, whole_sd = reconcile(
            self.estimate, self.std_error, totals.estimate, totals.std_error, group
        )
        return (
            replace(self._processed(["reconciled"], parts, parts_sd), guarantee=both),
            replace(totals._processed(["reconciled"], whole, whole_sd), guarantee=both),
        )

    def difference(self, a: Any, b: Any) -> Comparison:
        """Return the noisy number of group ``a`` minus that of ``b``: free post-processing.

        Args:
            a: the group's value; for several keys, a tuple of values in their order.
            b: the other group's value.

        Raises:
            ParameterError: if a group is missing, the estimates were post-processed or selected as
                the largest, clipping bounds differ, or the groups are cells of marginals.

        The noise of different groups is independent. The interval is for clipped quantities; no
        lower bound exists for unclipped ones.

        >>> from dpgrain import User, count, read
        >>> rows = pa.table({"who": range(900), "year": [2024] * 400 + [2025] * 500})
        >>> visits = count(read(rows, user="who"), by="year", domain=[2024, 2025], clip=1,
        ...                unit=User(), epsilon=1, delta=1e-6, random_state=1)
        >>> print(visits.difference(2025, 2024))
        Difference of clipped totals, 2025 − 2024: 100.7 ± 2.0 (95% interval 96.5 to 105.0)
        """
        return self._compared("difference", a, b)

    def ratio(self, a: Any, b: Any) -> Comparison:
        """Return the noisy number of group ``a`` divided by that of ``b``: free post-processing.

        Args:
            a: the group's value; for several keys, a tuple of values in their order.
            b: the group whose number is the divisor.

        Raises:
            ParameterError: as :meth:`difference`.

        The interval is Fieller's, for clipped quantities. Without an estimate of ``b`` above the
        noise, the ratio is NaN.

        >>> from dpgrain import User, count, read
        >>> rows = pa.table({"who": range(900), "year": [2024] * 400 + [2025] * 500})
        >>> visits = count(read(rows, user="who"), by="year", domain=[2024, 2025], clip=1,
        ...                unit=User(), epsilon=1, delta=1e-6, random_state=1)
        >>> print(visits.ratio(2025, 2024))
        Ratio of clipped totals, 2025 ÷ 2024: 1.2522 ± 0.0057 (95% interval 1.2403 to 1.2643)
        """
        return self._compared("ratio", a, b)

    def _require_independent(self, operation: str) -> None:
        """Reject cells of marginals, whose noise is correlated."""
        if self.statistic.stacked:
            raise ParameterError(
                f"{operation} requires groups with independent noise, but cells of marginals share "
                "noise; use the covariance of the marginals."
            )

    def _compared(self, operation: Literal["difference", "ratio"], a: Any, b: Any) -> Comparison:
        self._require_independent(operation)
        if self.metadata.processed or self.nonnegative or self.statistic.holders:
            raise ParameterError(
                f"{operation} requires estimates without post-processing or ranking, because their "
                "errors are then correlated or biased; call it on the release itself."
            )
        first, second = self._place("a", a), self._place("b", b)
        if first == second:
            raise ParameterError("b must be another group than a.", name="b")
        if self.metadata.is_clipped and self.clip[first] != self.clip[second]:
            raise ParameterError(
                f"b must have the clipping bound of a, {format_limit(self.clip[first])}, not "
                f"{format_limit(self.clip[second])}; pass an explicit clip=.",
                name="b",
            )
        places = [first, second]
        numbers, errors = self.estimate[places].tolist(), self.std_error[places].tolist()
        compute = {"difference": difference, "ratio": ratio}[operation]
        result = compute(tuple(numbers), tuple(errors), half_width(self.noise))
        names = [" ".join(keys) for keys in format_keys(self, np.array(places), letters=40)]
        return Comparison(operation, (names[0], names[1]), self.covers, *result)

    def _place(self, name: str, group: Any) -> int:
        """Return the index of a group."""
        keys = group if isinstance(group, tuple) else (group,)
        known = [list(zip(*(column.to_pylist() for column in self.groups.columns), strict=True))]
        if self.metadata.months:
            # Months may also be stated as they are printed.
            known.append(format_keys(self, np.arange(len(self)), letters=_WHOLE))
        for rows in known:
            # A group that is not listed, or an array, whose comparison has no truth value.
            with suppress(ValueError):
                return rows.index(keys)
        listed = ", ".join(self.groups.names) or "no key"
        raise ParameterError(
            f"{name} must be a group of this release, by {listed}, not {_validate.describe(group)}.",
            name=name,
        )

    def _processed(
        self,
        how: Sequence[str],
        estimate: FloatArray,
        std_error: FloatArray,
        nonnegative: bool = False,
    ) -> Self:
        return replace(
            self,
            estimate=estimate,
            std_error=std_error,
            nonnegative=nonnegative,
            metadata=replace(self.metadata, processed=(*self.metadata.processed, *how)),
        )

    def order_loss(self, truth: ArrayLike, gamma: float) -> int:
        """Return the number of pairs in the wrong order: for research, because it needs the truth.

        Args:
            truth: (V,) the true frequencies p_j of the groups, in their order.
            gamma: γ; only pairs with true frequencies that differ by at least this value count.

        Returns:
            #{(j, l): p_j − p_l ≥ γ, p_j > p_l, estimate_j < estimate_l}. Source: element-level
            paper, eq. (8), without the expectation and with its second inequality reversed.

        Raises:
            ParameterError: if the truth has another length, or γ is negative.
        """
        p = _validate.float_array(truth=truth)
        gamma = _validate.non_negative(gamma=gamma)
        if p.shape != self.estimate.shape:
            raise ParameterError(f"truth must have shape ({len(self)},), not {p.shape}.")
        return misordered_pairs(p, self.estimate, gamma)


@dataclass(frozen=True, repr=False, eq=False)
class Estimates(Release):
    """Private means, variances or quantiles by group.

    Args:
        groups: (V,) the groups, with the rank as a last key for several quantiles.
        estimate: (V,) the estimates, within the bounds of the numbers.
        std_error: (V,) the approximate standard error due to noise.
        lower: (V,) the lower end of a 95% interval for the noise-free estimate.
        upper: (V,) the upper end of that interval.
        count: (V,) the noisy number of records behind each estimate, after clipping.
        guarantee: the guarantee of the release.
        metadata: the public facts of the release: its parameters, and the outcome of private choices.
        count_error: (V,) the standard error of the count; None if unknown.

    >>> from dpgrain import User, mean, read
    >>> ages = read(pa.table({"who": list(range(1000)), "age": [20, 40] * 500}), user="who")
    >>> found = mean(
    ...     ages, "age", unit=User(), bounds=(0, 99), epsilon=1.0, delta=1e-6, random_state=1)
    >>> round(found.value), bool(found.low[0] < 30 < found.high[0])
    (30, True)
    >>> found.to_arrow().column_names
    ['estimate', 'std_error', 'low', 'high', 'count', 'count_error']
    """

    groups: Groups
    estimate: FloatArray
    std_error: FloatArray
    lower: FloatArray
    upper: FloatArray
    count: FloatArray
    guarantee: Guarantee
    metadata: ReleaseMetadata
    count_error: FloatArray | None = None

    def _people(self) -> FloatArray | None:
        """Return the noisy numbers of people behind the estimates, if these are of people."""
        return self.count if self.metadata.over == "people" else None

    @property
    def low(self) -> FloatArray:
        """Lower end of a 95% interval for the noise-free estimate, (V,)."""
        return self.lower

    @property
    def high(self) -> FloatArray:
        """Upper end of a 95% interval for the noise-free estimate, (V,)."""
        return self.upper

    def _row_cautions(self) -> Array:
        empty = [np.isnan(self.estimate), np.isinf(self.lower), np.isinf(self.upper)]
        return np.select(empty, ["no-estimate", "no-low", "no-high"], "")

    @property
    def more(self) -> dict[str, FloatArray]:
        """Noisy number of records behind each estimate, after clipping, with its error."""
        known = {} if self.count_error is None else {"count_error": self.count_error}
        return {"count": self.count, **known}

    def _columns(self) -> dict[str, FloatArray]:
        return {
            "estimate": self.estimate,
            "std_error": self.std_error,
            "lower": self.lower,
            "upper": self.upper,
            **self.more,
        }


def _measured(release: Release) -> str:
    """Return the quantity of a release, for any groups."""
    name, value = (
        quantities.quantity_name(release.metadata),
        quantities.value_text(release.metadata),
    )
    return name if value is None else f"{name} ({value})"


def _metadata(about: dict[str, Any]) -> ReleaseMetadata:
    """Return the metadata of a saved release, also from files without facts."""
    return (
        ReleaseMetadata.from_dict(about["facts"])
        if "facts" in about
        else ReleaseMetadata.from_words(about["asked"])
    )


def check_format(path: str | Path) -> Path:
    """Return the path, or raise if its ending is not a format of :meth:`Histogram.write`."""
    path = _validate.path(output=path)
    if path.suffix not in _FORMATS:
        raise ParameterError(
            f"output {str(path)!r} must end in {', '.join(_FORMATS)}.", name="output"
        )
    return path


def _write_parquet(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, path, compression="zstd")
