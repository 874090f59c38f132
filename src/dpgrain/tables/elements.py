"""Public partitions of items into cells, which define elements."""

from __future__ import annotations

import csv
import datetime
import hashlib
import re
import secrets
from collections.abc import Callable, Hashable, Mapping
from copy import copy
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from dpgrain import _validate
from dpgrain._files import record_input
from dpgrain._formatting import quantity
from dpgrain._lazy_import import require
from dpgrain.errors import DataError, ParameterError, SchemaError, raise_without_context
from dpgrain.inputs.callbacks import silent
from dpgrain.inputs.labels import as_fraction, canonical_text, key
from dpgrain.scope.partitions import period_of
from dpgrain.tables.arrow_arrays import number_array, text_array

Missing: TypeAlias = Literal["own", "drop", "error"]
Period: TypeAlias = Literal["week", "month", "year"]
# Number of seeds of scikit-learn.
_SEEDS = 2**32
_MISSING_CHOICES = ("own", "drop", "error")
_COUNTED_ONCE = {str, int, type(None)}
# Format of a date in SQL; the year before year 1 is 1 BC.
_DAY = re.compile(r"([0-9]{4,})-([0-9]{2})-([0-9]{2})( \(BC\))?")
#: Beginning of messages about an item of an impossible type for the column.
ITEM_MESSAGE = "the partition contains item"


@dataclass(frozen=True, repr=False)
class Elements:
    """A public partition of items into cells; the data of a user in one cell is an *element*.

    Use :meth:`from_mapping`, :meth:`from_function`, :meth:`from_period` or :meth:`kmeans`.

    Args:
        name: the name of the partition in reports.
        mapping: item → cell, if the partition is a finite mapping.
        function: item → cell, if the partition is a function.
        missing: the treatment of items without a cell: ``"own"`` (each is its own cell),
            ``"drop"``, or ``"error"`` (an error, which requires a public domain).
        period: the period of a day, in a partition from :meth:`from_period`.

    Raises:
        ParameterError: unless exactly one of mapping and function is passed, or if ``missing`` is
            invalid, or ``period`` is not of :meth:`from_period`.

    The partition must be public: fixed without looking at the protected data.

    >>> shelves = {"tea": "drinks", "cola": "drinks", "rice": "food"}
    >>> aisles = Elements.from_mapping(shelves, missing="drop", name="aisles")
    >>> aisles.cell("cola"), aisles.cell("soap"), aisles.labels
    ('drinks', None, ['drinks', 'food'])
    """

    name: str
    mapping: Mapping[Any, Hashable] | None = None
    function: Callable[[Any], Hashable] | None = None
    missing: Missing = "own"
    period: Period | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        _validate.one_of(_MISSING_CHOICES, missing=self.missing)
        if (self.mapping is None) == (self.function is None):
            raise ParameterError("Elements requires either a mapping or a function of the item.")
        if self.period is not None and self.function != _PeriodCell(self.period):
            raise ParameterError(
                "period must be omitted, because only Elements.from_period has the cells of a period.",
                name="period",
            )
        if self.mapping is None:
            _validate.function(function=self.function)
            return
        mapping = dict(_validate.mapping(mapping=self.mapping))
        # Other cells have another name, also if a stored mapping was edited.
        mark = _mark(f"{self.missing} {mapping!r}")
        if mark not in self.name:
            object.__setattr__(self, "name", f"{self.name} ({mark})")

    @staticmethod
    def from_mapping(source: Any, *, missing: Missing = "own", name: str | None = None) -> Elements:
        """Return the partition of a mapping from items to cells.

        Args:
            source: a dict, a table of two columns (Arrow, pandas, Polars: items, then cells), or a
                :class:`pathlib.Path` of a Parquet or CSV file of two columns.
                :mod:`dpgrain.inputs.labels` defines which items of a column match a key.
            missing: the treatment of items outside the mapping: ``"own"``, ``"drop"`` or
                ``"error"``.
            name: the name of the partition in reports.

        Raises:
            ParameterError: if the mapping is empty, or has two cells for an item.
            DataError: if the file cannot be read.

        >>> Elements.from_mapping({"tea": "drinks", "rice": "food"}, name="aisles")
        Elements('aisles (#b692de19)')
        """
        _check_name(name)
        mapping = dict(source) if isinstance(source, Mapping) else _two_columns(source)
        if not mapping:
            raise ParameterError("the mapping from items to cells must not be empty; add an item.")
        cells = len(set(_names(_distinct(list(mapping.values()))[0], public=True)) - {None})
        description = (
            name or f"a mapping of {quantity(len(mapping), 'item')} to {quantity(cells, 'cell')}"
        )
        return Elements(description, mapping=mapping, missing=missing)

    @staticmethod
    def from_function(
        function: Callable[[Any], Hashable], *, missing: Missing = "own", name: str | None = None
    ) -> Elements:
        """Return the partition of a function of the item, which returns None for no cell.

        Args:
            function: item → cell.
            missing: the treatment of items without a cell: ``"own"``, ``"drop"`` or ``"error"``.
            name: the name of the partition in reports.

        Raises:
            ParameterError: if the function is not callable.

        >>> Elements.from_function(lambda url: url.split("/")[0], name="the site").cell("a.org/b")
        'a.org'
        """
        _validate.function(function=function)
        _check_name(name)
        named = getattr(function, "__name__", "")
        description = f"the function {named}" if named and named != "<lambda>" else "a function"
        mark = _mark(f"{missing} {_identity(function)}")
        name = f"{name or f'{description} of the item'} ({mark})"
        return Elements(name, function=function, missing=missing)

    @staticmethod
    def from_period(period: Period, *, missing: Missing = "own") -> Elements:
        """Return the partition of days into weeks, months or years, named by their first days.

        Releases of such cells have a known cost per day or other period: docs/theory, "Scopes".

        Args:
            period: ``"week"`` (it begins on Monday), ``"month"`` or ``"year"``.
            missing: the treatment of values that are not days: ``"own"``, ``"drop"`` or
                ``"error"``.

        Raises:
            ParameterError: if the period is invalid.

        >>> Elements.from_period("week").cell("2026-01-07")
        '2026-01-05'
        """
        _validate.one_of(get_args(Period), period=period)
        _validate.one_of(_MISSING_CHOICES, missing=missing)
        name = f"the {period}" if missing == "own" else f"the {period}, {missing} what is no day,"
        cell = _PeriodCell(period)
        return Elements(name, function=cell, missing=missing, period=period)

    @staticmethod
    def kmeans(
        vectors: Mapping[Any, ArrayLike] | ArrayLike,
        k: int,
        *,
        random_state: int | None = None,
        items: Any = None,
        missing: Missing = "own",
    ) -> Elements:
        """Return a partition into clusters of *public* vectors, by k-means++ (scikit-learn).

        Args:
            vectors: item → vector, or an (items, dimensions) array with ``items``. They must be
                public: centroids computed from protected data are a separate release.
            k: the number of clusters, at most the number of items.
            random_state: the public seed of the clustering.
            items: the items, in the order of the rows.
            missing: the treatment of items without a vector: ``"own"``, ``"drop"`` or ``"error"``.

        Raises:
            ParameterError: if k is out of range, or items and vectors differ in number.

        >>> two = Elements.kmeans({"a": [0, 0], "b": [0, 1], "z": [9, 9]}, k=2, random_state=0)
        >>> two.cell("a") == two.cell("b"), two.cell("a") == two.cell("z")
        (True, False)
        """
        k = _validate.integer(minimum=1, k=k)
        _validate.one_of(_MISSING_CHOICES, missing=missing)
        if random_state is not None:
            random_state = _validate.integer(minimum=0, random_state=random_state) % _SEEDS
        if isinstance(vectors, Mapping):
            names, rows = list(vectors), _validate.float_array(vectors=list(vectors.values()))
        else:
            rows = _validate.float_array(vectors=vectors)
            names = [] if items is None else _validate.sequence(items=items)
        if rows.ndim != 2 or len(names) != len(rows):
            raise ParameterError(
                f"vectors must have one row for each of {len(names)} items, not shape {rows.shape}."
            )
        if not np.isfinite(rows).all():
            raise ParameterError("vectors must be finite numbers.", name="vectors")
        if k > len(rows):
            raise ParameterError(f"k must be at most the number of items, {len(rows)}, not {k}.")
        require("sklearn")
        from sklearn.cluster import KMeans

        labels = KMeans(k, n_init=1, init="k-means++", random_state=random_state).fit_predict(rows)
        keys = [name.item() if isinstance(name, np.generic) else name for name in names]
        mapping = {key: int(label) for key, label in zip(keys, labels, strict=True)}
        mark = _mark(f"{missing} {mapping!r}")
        name = f"{k:,} clusters of public vectors (k-means, {mark})"
        return Elements(name, mapping=mapping, missing=missing)

    def of_keys(self, keys: Callable[[list[Any]], list[Any]]) -> Elements:
        """Return the same partition for the keys of a column.

        Args:
            keys: a function from the items of a mapping to the column's keys, which returns the
                same list if they are keys already. It must raise for an item without a key: such
                items would have no cell, and silently change the guarantee.
        """
        if self.mapping is None:
            return self
        items = list(self.mapping)
        result = keys(items)
        if result is items:
            return self
        mapping = _one_cell_each(result, list(self.mapping.values()))
        same = copy(self)
        # The name identifies the partition, whatever type its keys have.
        object.__setattr__(same, "mapping", mapping)
        return same

    def labelled(self) -> Elements:
        """Return the same partition with the texts of a column of cells.

        An item that is its own cell is called ``"own: item"``, a cell that is not text ``"cell: 7"``.
        """
        rest: Missing = "drop" if self.missing == "drop" else "own"

        def label(item: Any) -> str | None:
            cell = self.cell(item)
            if cell is None:
                return f"own: {item}" if rest == "own" else None
            try:
                return _label(cell)
            except Exception as error:
                raise _no_cell(cell) from error

        return Elements(self.name, function=label, missing=rest)

    @property
    def labels(self) -> list[str] | None:
        """Sorted texts of all public cells; None if items are their own cells."""
        if self.mapping is None or self.missing == "own":
            return None
        return sorted({_label(cell) for cell in self.mapping.values() if cell is not None})

    def cell(self, item: Any) -> Hashable | None:
        """Return the cell of an item; None without one."""
        if self.mapping is not None:
            return self.mapping.get(item)
        return self.function(item) if self.function is not None else None

    def __repr__(self) -> str:
        return f"Elements({self.name!r})"


def _check_name(name: object) -> None:
    """Raise ParameterError unless the name of a partition is text."""
    if name is not None and not isinstance(name, str):
        raise ParameterError(f"name must be text, not {_validate.describe(name)}.", name="name")


_identities: WeakKeyDictionary[Callable[[Any], Hashable], str] = WeakKeyDictionary()


def _mark(content: str) -> str:
    """Return a short fingerprint, so that different partitions never have the same name."""
    return "#" + hashlib.sha256(content.encode("utf-8", "backslashreplace")).hexdigest()[:8]


def _identity(function: Callable[[Any], Hashable]) -> str:
    """Return a token of a function object, because no text fully describes a function."""
    try:
        return _identities.setdefault(function, secrets.token_hex(8))
    except TypeError:
        # This function has no hash or no weak references.
        return secrets.token_hex(8)


def as_elements(by: Any) -> Elements:
    """Return the ``Elements`` of any ``Element(by)`` except a column name."""
    if isinstance(by, Elements):
        return by
    if callable(by):
        return Elements.from_function(by)
    return Elements.from_mapping(by)


@dataclass(frozen=True)
class _PeriodCell:
    """Function from a day to its period."""

    period: Period

    def __call__(self, day: Any) -> str:
        return _period_bounds(day, self.period)


def _period_bounds(day: str, period: str) -> str:
    """Return the first day of a day's period, including years outside Python's range.

    The calendar, with its weekdays, repeats every 400 years.
    """
    match = _DAY.fullmatch(day)
    if match is None:
        return period_of(datetime.date.fromisoformat(day), period)[0].isoformat()
    year = 1 - int(match[1]) if match[4] else int(match[1])
    within = 2000 + year % 400
    begin, _ = period_of(datetime.date(within, int(match[2]), int(match[3])), period)
    return f"{year + begin.year - within:04}-{begin:%m-%d}"


def _two_columns(source: Any) -> dict[Any, Hashable]:
    """Read item → cell from a table or file of two columns."""
    table = _arrow_table(source)
    if table.num_columns < 2:
        raise SchemaError(
            f"the mapping must have two columns, items and cells, not {table.num_columns}: "
            f"{', '.join(map(_validate.describe, table.column_names))}."
        )
    rows = table.select([0, 1]).rename_columns(["item", "cell"]).drop_null()
    return _one_cell_each(*(column.to_pylist() for column in rows.columns))


def _one_cell_each(items: list[Any], cells: list[Hashable]) -> dict[Any, Hashable]:
    """Return a mapping from items to cells; reject two cells of one item."""
    mapping = dict(zip(items, cells, strict=True))
    if len(mapping) == len(items):
        return mapping
    mapping = {}
    for item, cell in zip(items, cells, strict=True):
        if mapping.setdefault(item, cell) != cell:
            raise ParameterError(
                f"the mapping must have one cell for item {_validate.describe(item)}, not both "
                f"{_validate.describe(mapping[item])} and {_validate.describe(cell)}."
            )
    return mapping


def _arrow_table(source: Any) -> pa.Table:
    if isinstance(source, pa.Table):
        return source
    if isinstance(source, str | Path):
        return read_file(_validate.path(by=source))
    if hasattr(source, "to_arrow"):
        return source.to_arrow()
    if type(source).__module__.startswith("pandas") and getattr(source, "ndim", 0) == 2:
        try:
            return pa.Table.from_pandas(source, preserve_index=False)
        except pa.ArrowException:
            # Arrow's error message quotes a cell.
            raise_without_context(
                ParameterError("the partition must have one type in each column.")
            )
    raise ParameterError(
        "the partition must be a column name, a dict, a table of two columns, a Path of a Parquet "
        f"or CSV file, a function or Elements, not {type(source).__name__}."
    )


def read_file(path: Path) -> pa.Table:
    """Return a public Parquet or CSV file as a table."""
    import pyarrow.parquet

    record_input(path)
    try:
        if path.suffix.lower() == ".csv":
            # Cells are read as text: 007 may be a number or text, depending on the column.
            with path.open(encoding="utf-8-sig", newline="") as file:
                header, *rows = [row for row in csv.reader(file) if row]
            width = len(header)
            return pa.table(
                {
                    name: pa.array([row[i] if i < len(row) else None for row in rows], pa.string())
                    for i, name in zip(range(width), _different(header), strict=True)
                }
            )
        return pyarrow.parquet.ParquetFile(path).read()
    except (OSError, ValueError, csv.Error, pa.ArrowException) as error:
        raise DataError(
            f"the file {_validate.describe(str(path), 300)} cannot be read; check that it exists "
            "and is a complete Parquet or CSV file."
        ) from error


def _different(names: list[str]) -> list[str]:
    return [name if names.index(name) == i else f"{name} {i}" for i, name in enumerate(names)]


def cell_codes(
    elements: Elements, items: list[Any], *, public: bool
) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the label of each item's cell, null for dropped items, and its code, (V,)."""
    if elements.missing == "error" and not public:
        raise ParameterError(
            "missing='error' requires a public domain; pass domain=, or use missing='own' or "
            "'drop'."
        )
    cells, places = _distinct(_item_cells(elements, items, public=public))
    names = _names(cells, public=public)
    named = [name for name in dict.fromkeys(names) if name is not None]
    code_of: dict[str | None, int] = {name: code for code, name in enumerate(named)}
    code_of[None] = -1
    codes = np.array([code_of[name] for name in names], dtype=np.int64)[places]
    labels = [f"cell {cell!r}" for cell in named]
    without = np.flatnonzero(codes < 0).tolist()
    if without and elements.missing == "error":
        examples = ", ".join(repr(items[i]) for i in without[:3])
        raise ParameterError(
            f"{len(without)} items of the domain have no cell in {elements.name} ({examples}"
            f"{', …' if len(without) > 3 else ''}); add them, or use missing='own' or 'drop'."
        )
    if without and elements.missing == "own":
        # Several groups with the same item share its own cell.
        own: dict[Any, int] = {}
        codes[without] = [len(named) + own.setdefault(items[i], len(own)) for i in without]
        labels += [f"own {item}" for item in own]
    return text_array(labels).take(number_array(codes, null=codes < 0)), codes


def _item_cells(elements: Elements, items: list[Any], *, public: bool) -> list[Hashable | None]:
    if elements.mapping is not None:
        return list(map(elements.mapping.get, items))
    if public:
        return list(map(elements.cell, items))
    with silent():
        return [cell_or_none(elements, item) for item in items]


def cell_or_none(elements: Elements, item: Any) -> Any:
    """Return the cell of an item of the table; None if the function fails on it."""
    try:
        return elements.cell(item)
    except Exception:
        # An error would reveal that a person has this item.
        return None


def _names(cells: list[Hashable | None], *, public: bool) -> list[str | None]:
    """Return the names of cells, equal for the same cell; None for no cell.

    One function of the cell both distinguishes and orders cells. Otherwise other rows would affect
    the selection of a user's elements.
    """
    return [_name_or_none(cell, public=public) for cell in cells]


def _distinct(cells: list[Hashable | None]) -> tuple[list[Hashable | None], NDArray[np.int64]]:
    """Return the distinct cells, and the index of each cell among them, (V,).

    Only texts and integers are deduplicated. Other equal values may differ in form, and a name must
    not depend on the first one.
    """
    if not set(map(type, cells)) <= _COUNTED_ONCE:
        return cells, np.arange(len(cells))
    place_of = {cell: place for place, cell in enumerate(dict.fromkeys(cells))}
    places = np.fromiter(map(place_of.__getitem__, cells), np.int64, len(cells))
    return list(place_of), places


def _name_or_none(cell: Any, *, public: bool) -> str | None:
    """Return the name of a cell, None for no cell."""
    try:
        return None if cell is None else _name(cell)
    except Exception as error:
        if public:
            raise _no_cell(cell) from error
        # The cell may come from a person's item, so it is dropped without an error.
        return None


def _no_cell(cell: Any) -> ParameterError:
    return ParameterError(
        f"a cell must be text, a number, a date or a tuple of these, not {_validate.describe(cell)}; "
        "change the partition into elements."
    )


def cell_labels(elements: Elements, items: list[Any]) -> list[str | None]:
    """Return the text of each item in a column of cells; None for dropped items."""
    labelled = elements.labelled()
    with silent():
        labels = [cell_or_none(labelled, item) for item in items]
    if labelled.missing == "drop":
        return labels
    # If the function fails on an item, the item has no cell, as if it returned None.
    pairs = zip(labels, items, strict=True)
    return [f"own: {item}" if label is None else label for label, item in pairs]


def label_table(elements: Elements, values: pa.Array) -> pa.Table:
    """Return columns ``value`` and ``label``: a column's values and their cells."""
    labels = cell_labels(elements, values.to_pylist())
    return pa.table({"value": values, "label": pa.array(labels, pa.string())})


def _label(cell: Any) -> str:
    """Return a unique text of a cell, distinct from items that are their own cells."""
    if isinstance(cell, str):
        text = str.__str__(cell)
        # Text with surrogates cannot be encoded, and is quoted below.
        if not text.startswith(("own: ", "cell: ")) and _validate.is_utf8(text):
            return text
    return f"cell: {_name(cell)}"


def _name(cell: Any) -> str:
    """Return one name for values equal in Python, such as 1, 1.0 and True, not '1'."""
    if type(cell) is int and abs(cell) < 2**63:
        return str(cell)
    if isinstance(cell, np.generic):
        cell = cell.item()
    value = as_fraction(cell)
    if value is not None:
        text = canonical_text(value)
        if text is None:
            return " ".join(key(value) or ())
        # A decimal without an equal float is another cell than the float with the same text.
        same = value.denominator == 1 or Fraction(float(value)) == value
        return text if same else f"Decimal('{text}')"
    if isinstance(cell, int | float | Decimal) and (named := key(cell)) is not None:
        return named[1]
    match cell:
        case str():
            return str.__repr__(cell)
        case tuple():
            return "(" + ", ".join(map(_name, cell)) + ")"
        case datetime.datetime() if cell.tzinfo is not None:
            return repr(cell.astimezone(datetime.UTC).replace(fold=0))
        case datetime.datetime():
            return repr(cell.replace(fold=0))
        case Decimal() if cell.is_qnan():
            return repr(cell)
        case datetime.time() if cell.tzinfo is None:
            return repr(cell.replace(fold=0))
        case bytes() | float() | datetime.date() | Enum():
            return repr(cell)
    raise TypeError(type(cell).__name__)
