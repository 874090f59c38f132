"""Groups of a release: public, privately selected, or a mixture."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.inputs.long_labels import text_label
from dpgrain.scope.partitions import period_of
from dpgrain.scope.regions import Region, Span
from dpgrain.tables.arrow_arrays import number_array, text_array
from dpgrain.tables.blocks import UnitBlocks
from dpgrain.tables.engines.derived_columns import CompiledExpression
from dpgrain.tables.expression import CallNode, ConstantNode
from dpgrain.tables.groups import Groups
from dpgrain.tables.rows import TableRows

# Text of an integer.
_INTEGER = re.compile("-?[0-9]{1,18}")
# Maximum days of a region for listing its periods as a domain.
_MOST_DAYS = 100_000


@dataclass(frozen=True)
class GroupDomain:
    """The public part of a domain."""

    # Key columns of groups.
    keys: tuple[str, ...]
    # Values of each public key; values of other keys are selected privately.
    public: Mapping[str, pa.Array]
    # All groups, if the caller listed groups.
    listed: Groups | None = None

    @property
    def selected(self) -> tuple[str, ...]:
        """Keys with privately selected values."""
        if self.listed is not None:
            return ()
        return tuple(key for key in self.keys if key not in self.public)

    def groups(self, selected: Groups | None = None) -> Groups:
        """Return all groups: the listed ones, or public values times selected groups."""
        if self.listed is not None:
            return self.listed
        if selected is None:
            return (
                Groups.product(self.keys, [self.public[key] for key in self.keys])
                if self.keys
                else Groups.of((), ())
            )
        if not self.public:
            return selected
        rows = number_array(np.arange(len(selected)))
        row, *public = Groups.product(("", *self.public), [rows, *self.public.values()]).columns
        chosen = selected.take(row.to_numpy())
        columns = dict(zip(self.public, public, strict=True))
        columns.update(zip(chosen.names, chosen.columns, strict=True))
        return Groups.of(self.keys, [columns[key] for key in self.keys])


def public_domain(
    domain: Any, blocks: UnitBlocks, table: TableRows, keys: Sequence[str]
) -> GroupDomain:
    """Return the public part of a domain in the types of the key columns."""
    keys = tuple(keys)
    if not keys:
        if domain is not None:
            raise ParameterError("domain requires by=…: without it there is only one group.")
        return GroupDomain((), {})
    stated = _parsed(domain, blocks, table, keys)
    for key, values in stated.public.items():
        _check_any_cell(values, blocks, key)
    if stated.listed is not None:
        for key, values in zip(keys, stated.listed.columns, strict=True):
            _check_any_cell(values, blocks, key)
    return stated


def listed_values(
    domain: Any, table: TableRows, keys: Sequence[str]
) -> dict[tuple[str, ...], tuple[pa.Array, ...]]:
    """Return the public values of a domain, by their keys."""
    stated = public_domain(domain, UnitBlocks("record"), table, keys)
    if stated.listed is not None:
        return {tuple(keys): stated.listed.columns}
    return {(key,): (column,) for key, column in stated.public.items()}


def _parsed(
    domain: Any, blocks: UnitBlocks, table: TableRows, keys: tuple[str, ...]
) -> GroupDomain:
    """Parse the public part of a domain in any form."""
    if domain is None:
        return _implied(blocks, table, keys)
    if isinstance(domain, Groups):
        domain = _released(domain, keys)
    by_key = isinstance(domain, Mapping) and (list(domain) == list(keys) or _is_by_key(domain))
    if len(keys) == 1 and not by_key:
        return GroupDomain(keys, {keys[0]: _column(_values(domain), table, keys[0])})
    if isinstance(domain, Mapping):
        unknown = [key for key in domain if key not in keys]
        if unknown:
            raise ParameterError(
                f"domain keys must be among {', '.join(keys)}, not {unknown[0]!r}."
            )
        # Keys outside the mapping are selected privately, except those with few public values.
        public = {
            key: column
            for key in keys
            for column in [
                _column(_values(domain[key]), table, key)
                if key in domain
                else _known_values(table, key)
            ]
            if column is not None
        }
        return GroupDomain(keys, public)
    return GroupDomain(keys, {}, _listed_groups(_values(domain), table, keys))


def _released(groups: Groups, keys: tuple[str, ...]) -> list[Any]:
    """Return the groups of an earlier release as a list of items, or of tuples."""
    if groups.names != keys:
        raise ParameterError(
            f"domain must contain groups by {', '.join(keys)}, not by "
            f"{', '.join(groups.names) or 'nothing'}; pass the groups of a release by the "
            "same columns."
        )
    columns = [column.to_pylist() for column in groups.columns]
    return columns[0] if len(keys) == 1 else list(zip(*columns, strict=True))


def _implied(blocks: UnitBlocks, table: TableRows, keys: tuple[str, ...]) -> GroupDomain:
    """Return the public values of each key from mappings, cells and expressions."""
    public: dict[str, pa.Array] = {}
    for i, key in enumerate(keys):
        elements = blocks.elements if blocks.key == i else None
        if elements is not None and elements.mapping is not None:
            public[key] = _column(list(elements.mapping), table, key)
        elif elements is not None and elements.missing == "error":
            raise ParameterError(
                "missing='error' requires a public domain; pass domain=, or use missing='own' "
                "or 'drop'."
            )
        elif key in table.cells and table.cells[key].elements.labels is not None:
            public[key] = _column(list(table.cells[key].elements.labels or []), table, key)
        elif (few := _known_values(table, key)) is not None:
            public[key] = few
    return GroupDomain(keys, public)


def _known_values(table: TableRows, key: str) -> pa.Array | None:
    """Return the values of a derived column if they are public and few."""
    derived = table.derived.get(key)
    values = None if derived is None else public_values(derived, table.scope)
    if not values:
        return None
    # These are values of rows; convert long ones to labels.
    labels = [text_label(value) if isinstance(value, str) else value for value in values]
    return _column(list(dict.fromkeys(labels)), table, key)


def _listed_values(derived: CompiledExpression) -> tuple[Any, ...] | None:
    """Return all values of a derived column, without the group below bins from 0."""
    node, values = derived.node, derived.values
    if values is None or not isinstance(node, CallNode) or node.function != "bins":
        return values
    first = node.parts[1]
    return values[1:] if isinstance(first, ConstantNode) and first.value == 0 else values


def public_values(derived: CompiledExpression, region: Region) -> tuple[Any, ...] | None:
    """Return all values of a derived column over a region if they are public and few."""
    if derived.period is None:
        return _listed_values(derived)
    period, zone = derived.period
    side = next((side for side in region.sides if side.column == derived.inputs[0]), None)
    if side is None or side.missing or not isinstance(side.values, Span):
        return None
    ends = side.values.low, side.values.high
    if ends[0] is None or ends[1] is None:
        return None
    try:
        first, last = (_day(end, zone) for end in (ends[0], ends[1] - 1))
    except (OverflowError, ValueError):
        return None
    if (last - first).days > _MOST_DAYS:
        return None
    days = (first + timedelta(days=n) for n in range((last - first).days + 1))
    if period == "year":
        return tuple(range(first.year, last.year + 1))
    return tuple(dict.fromkeys(_first_day(day, period) for day in days))


def _day(time: int, zone: str) -> date:
    """Return the local date of a time in microseconds since 1970."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)
    return (moment.astimezone(ZoneInfo(zone)) if zone else moment).date()


def _first_day(day: date, period: str) -> date:
    if period == "quarter":
        return date(day.year, 3 * ((day.month - 1) // 3) + 1, 1)
    return period_of(day, period)[0]


def _listed_groups(rows: list[Any], table: TableRows, keys: tuple[str, ...]) -> Groups:
    for row in rows:
        if not isinstance(row, tuple | list) or len(row) != len(keys):
            raise ParameterError(
                f"domain must have rows of {len(keys)} values ({', '.join(keys)}), not "
                f"{_validate.describe_item(row)}; or pass a mapping from key to values."
            )
    rows = [tuple(map(_plain, row)) for row in rows]
    columns = [_typed([row[i] for row in rows], table, key) for i, key in enumerate(keys)]
    _no_repeat(list(zip(*(column.to_pylist() for column in columns), strict=True)))
    return Groups.of(keys, columns)


def _column(values: list[Any], table: TableRows, key: str) -> pa.Array:
    items = _typed(values, table, key)
    if len(items.unique()) < max(len(items), 1):
        _no_repeat(items.to_pylist())
    return items


def _no_repeat(values: list[Any]) -> None:
    if not values:
        raise ParameterError("domain must not be empty; add at least one item.")
    if len(set(values)) < len(values):
        ((repeated, _),) = Counter(values).most_common(1)
        raise ParameterError(f"domain contains item {repeated!r} twice; list each item once.")


def _typed(values: list[Any], table: TableRows, key: str) -> pa.Array:
    """Convert items to the type of a key column."""
    integers = table.is_integer(key)
    if not table.are_keys(values, key):
        for value in values:
            if integers and isinstance(value, str | bytes):
                number = isinstance(value, str) and _INTEGER.fullmatch(value)
                remedy = f"pass integers, such as domain=[{int(value)}]" if number else "remove it"
                raise ParameterError(
                    f"domain contains {value!r}, but the item column {key!r} contains "
                    f"integers; {remedy}."
                )
            if isinstance(value, list | tuple | dict | set | np.ndarray):
                raise ParameterError("domain must contain integers or text, not nested values.")
        values = [table.label_key(value, key, "domain contains") for value in values]
    try:
        return number_array(np.array(values, dtype=np.int64)) if integers else text_array(values)
    except (OverflowError, UnicodeEncodeError, pa.ArrowException):
        kind = "64-bit integers" if integers else "valid text"
        raise ParameterError(f"domain contains items that are not {kind}; remove them.") from None


def _check_any_cell(values: pa.Array, blocks: UnitBlocks, key: str) -> None:
    elements = blocks.elements
    if elements is None or elements.missing != "drop" or blocks.of != key:
        return
    if not any(elements.cell(value) is not None for value in values.to_pylist()):
        raise ParameterError(
            f"domain has no item with a cell in {elements.name}; use missing='own'."
        )


def _is_by_key(domain: Mapping[Any, Any]) -> bool:
    """Return True for a mapping from keys to values, False for one from items to cells."""
    several = (list, set, range, np.ndarray, pa.Array, pa.ChunkedArray)
    return bool(domain) and all(isinstance(values, several) for values in domain.values())


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _values(domain: Any) -> list[Any]:
    if isinstance(domain, str | bytes):
        raise ParameterError(
            f"domain must be a list of items, not the text {_validate.describe(domain)}."
        )
    if isinstance(domain, Mapping):
        return list(domain)
    if isinstance(domain, pa.Array | pa.ChunkedArray):
        return list(domain.to_pylist())
    if isinstance(domain, np.ndarray) and domain.ndim:
        return list(domain.tolist())
    if hasattr(domain, "to_list"):
        return list(domain.to_list())
    try:
        values = list(domain)
    except TypeError:
        raise ParameterError(
            f"domain must be a list of items, not {_validate.describe(domain)}."
        ) from None
    scalars = any(issubclass(kind, np.generic) for kind in set(map(type, values)))
    return list(map(_plain, values)) if scalars else values
