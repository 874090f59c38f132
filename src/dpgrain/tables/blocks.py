"""Blocks of a table for each privacy unit: the contributions whose norms are clipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal, TypeVar

import numpy as np
import pyarrow as pa

from dpgrain import _validate
from dpgrain.accounting import Contribution
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.scope.partitions import PERIODS, Partition, Rule
from dpgrain.tables.elements import Elements, cell_codes
from dpgrain.tables.engines.derived_columns import base_source, calendar_period
from dpgrain.tables.engines.per_user import require_whole_users, rows_in_cells, whole_user_source
from dpgrain.tables.expression import CallNode, ColumnNode, ConstantNode, Node, columns_of
from dpgrain.tables.groups import GroupCells, Groups
from dpgrain.tables.rows import CellColumn, TableRows
from dpgrain.tables.sources.column_types import TIMES
from dpgrain.tables.sources.typed_columns import TypedSource
from dpgrain.units import Element, Level, Record, Unit, User

Table = TypeVar("Table", bound=TableRows)


@dataclass(frozen=True)
class UnitBlocks:
    """Units of clipping: records, users' data in one cell, or whole users."""

    # Level of the unit of one block.
    block: Level
    # Column of the cells; None without cells.
    of: str | None = None
    # Partition of the column's values; None if each value is a cell.
    elements: Elements | None = None
    # Index of the column among the group keys, which determine the cell; None if it is not a key.
    key: int | None = None
    # Maximum number of blocks of a user.
    max_elements: int | None = None
    # Description of the partition; empty without one.
    named: str = ""
    # True if groups and cells correspond one to one.
    alone: bool = False
    # Column of cells in the table, if there is one.
    cell_column: str | None = None
    # Partition as facts, in columns of the data; None without one.
    partition: Partition | None = None
    # True if only records are protected, and each pair of a user and a group is a block: a record
    # then changes one or two blocks, and never the selection of blocks.
    of_records: bool = False
    # True if every user has at most one row.
    one_row: bool = False

    @staticmethod
    def for_unit(
        unit: Unit, table: TableRows, keys: Sequence[str], item: str | None = None
    ) -> UnitBlocks:
        """Return the blocks of a privacy unit for groups by some key columns of a table."""
        item = next(iter(keys), None) if item is None else item
        require_whole_users(table, unit)
        if isinstance(unit, Record):
            return UnitBlocks("record")
        if not isinstance(unit, Element | User):
            raise ParameterError(
                f"unit must be Record(), Element(by) or User(), not {_validate.describe(unit)}."
            )
        if table.user is None:
            raise ParameterError(
                f"unit {type(unit).__name__} requires user ids; pass user= to dg.read, or use "
                "Record()."
            )
        if isinstance(unit, User) and unit.max_elements is None:
            if unit.by is not None:
                raise ParameterError("User(by=…) requires max_elements; pass it, or omit by.")
            people = whole_user_source(table)
            return UnitBlocks("user", one_row=people is not None and people.one_row)
        if unit.by is None and (isinstance(unit, Element) or item is None):
            raise ParameterError(
                f"{type(unit).__name__}() requires a partition: a column, a mapping or a "
                "function"
                + (
                    f", such as {type(unit).__name__}(by={item!r}), in which each item is "
                    "an element."
                    if item
                    else "."
                )
            )
        by = item if unit.by is None else unit.by
        bound = unit.max_elements if isinstance(unit, User) else None
        # The partition divides records, even if a row is derived from several records of a cell.
        records = (rows_in_cells(table, by) if isinstance(by, str) else None) or table
        if isinstance(by, str):
            of, elements, named = _partition_column(by, records)
        elif item is None:
            raise ParameterError(
                "by of the unit must be a column here, not a mapping or a function, because "
                "there is no item to apply it to; add a column of cells with "
                "table.with_cells(…), and pass its name."
            )
        else:
            elements = table.resolve_partition(item, by)
            of, named = item, f"{elements.name} of {_column_text(item, table)}"
        partition = Partition(
            (partition_rule(by if isinstance(by, str) else item, elements, records),)
        )
        # A column of cells determines the cell if it is a key, or a column of a per-user row.
        if isinstance(by, str) and (by in keys or records is not table):
            of, elements = by, None
        key = list(keys).index(of) if of in keys else None
        alone = key is not None and elements is None and len(keys) == 1
        column = by if isinstance(by, str) else None
        return UnitBlocks("element", of, elements, key, bound, named, alone, column, partition)

    @property
    def has_one_row(self) -> bool:
        """True if a block has at most one row, so that its contribution's norm is known."""
        return self.block == "record" or self.one_row

    def cells(self, groups: Groups, *, public: bool) -> GroupCells:
        """Return the cells of groups, (V,); one cell if groups do not determine it."""
        size = len(groups)
        if self.key is None:
            return GroupCells(pa.repeat("all", size), np.zeros(size, dtype=np.int64))
        values = groups.columns[self.key]
        if self.elements is not None:
            return GroupCells(*cell_codes(self.elements, values.to_pylist(), public=public))
        # One cell per value, without a Python object each: there may be many.
        codes = np.arange(size, dtype=np.int64)
        if not self.alone:
            codes = values.dictionary_encode().indices.to_numpy().astype(np.int64)
        return GroupCells(values.cast(pa.string()), codes)

    def for_keys(self, keys: Sequence[str], table: Table) -> tuple[Table, UnitBlocks]:
        """Return the same blocks for groups by other keys, and the table with their cells."""
        if self.block != "element":
            return table, self
        if self.of_records:
            # Blocks become pairs with the other groups. In blocks of several pairs, removing one
            # record could add others to the selection.
            return table, replace(self, of=keys[0], key=0, alone=True)
        if self.of in keys and self.of is not None:
            single = self.elements is None and len(keys) == 1
            return table, replace(self, key=list(keys).index(self.of), alone=single)
        column, partition = self.cell_column, self.elements
        if column is None and self.of is not None and partition is not None:
            if partition.missing == "error":
                # Every relevant item has a cell, because all others are outside the public domain.
                partition = replace(partition, missing="own")
            column = f"cell of {self.of}"
            # Change the name if such a column has other contents, such as another partition.
            while table.has(column) and table.cells.get(column) != CellColumn(self.of, partition):
                column += "'"
            if not table.has(column):
                table = table.with_cells(column, self.of, partition)
        return table, replace(self, key=None, alone=False, cell_column=column)

    def contribution(
        self,
        norm: Literal["l2", "l1"],
        *,
        items: int | None = None,
        cells: int | None = None,
        single: bool = False,
    ) -> Contribution:
        """Return the contribution of a unit to a sum over coordinates."""
        if self.of_records and self.alone:
            # One record changes one coordinate by at most 1, or two if it moves; the number of
            # cells is unknown.
            one = items == 1
            return Contribution("record", coordinates="one" if one else "nonnegative", norm=norm)
        return Contribution(
            block=self.block,
            layout="shared" if self.block == "element" and self.key is None else "disjoint",
            coordinates="one" if single or items == 1 else "nonnegative",
            norm=norm,
            max_elements=self.max_elements,
            cells=cells,
        )


def _partition_column(name: str, table: TableRows) -> tuple[str, Elements | None, str]:
    """Return the column, the partition of its values, and its description by name.

    The description names the column, because one mapping of two columns is two partitions.
    """
    if name not in table.schema:
        raise SchemaError(
            f"element {_validate.describe(name)} is not a column of the table; "
            f"{table.suggest(name)}; pass a mapping file as pathlib.Path(…).",
            name="element",
        )
    table.require_key(name, "element")
    if name in table.cells:
        cells = table.cells[name]
        return cells.of, cells.elements.labelled(), _column_text(name, table)
    if name in table.derived:
        return name, None, table.derived[name].text
    if name in table.days:
        return name, None, _column_text(name, table)
    return name, None, repr(name)


def partition_rule(column: str | None, elements: Elements | None, table: TableRows) -> Rule:
    """Return the rule from a column of a table to the cell, as a fact."""
    assert column is not None  # noqa: S101 - a partition is of a column
    if column in table.cells:
        column, elements = table.cells[column].of, table.cells[column].elements
    if column in table.derived and (elements is None or elements.period is not None):
        return _derived_rule(column, None if elements is None else elements.period, table)
    if column in table.days and (elements is None or elements.period is not None):
        day = table.days[column]
        period = "day" if elements is None else elements.period or "day"
        # Distinguish a promise per timestamp from a promise per date.
        read = table.date_format(day.of) or ("" if day.zone else "TIMESTAMP")
        return Rule(day.of, period, day.zone, read=read)
    dated = table.schema[column] == "DATE"
    if elements is None:
        if not dated:
            return Rule(column, read=table.read_as(column))
        return Rule(column, "day", read=table.date_format(column))
    if elements.period is not None and dated:
        return Rule(column, elements.period, read=table.date_format(column))
    mark = sha256(f"{elements.name} of {_column_text(column, table)}".encode()).hexdigest()[:8]
    column = table.data_column(column)
    cells = None if elements.labels is None else max(len(elements.labels), 1)
    if column in table.derived:
        column = _derived_rule(column, None, table).column
        cells = _with_missing(cells)
    return Rule(column, "stated", mark=mark, cells=cells)


def _derived_rule(column: str, period: str | None, table: TableRows) -> Rule:
    """Return the rule of a derived column, in terms of the data.

    Names of derived columns do not identify them, because another table may derive the same name
    differently; nor do names of data columns without the type that they are read as.
    """
    node = _expanded(ColumnNode(column), table)
    if period is not None:
        node = CallNode(period, (node,))
    kind, zone = calendar_period(node) or ("", "")
    data = tuple(dict.fromkeys(columns_of(node)))
    for each in PERIODS:
        if kind == each:
            timed = table.schema[data[0]] in TIMES and not zone
            read = table.date_format(data[0]) or ("TIMESTAMP" if timed else "")
            return Rule(data[0], each, zone, read=read)
    read = ", ".join(f"{name!r} as {table.read_as(name)}" for name in sorted(data))
    mark = sha256(f"{node} of {read}".encode()).hexdigest()[:8]
    values = table.derived[column].values if period is None else None
    of = data[0] if len(data) == 1 else str(node)
    cells = _with_missing(None if values is None else len(values))
    return Rule(of, "stated", mark=mark, cells=cells)


def _with_missing(cells: int | None) -> int | None:
    """Return a number of cells plus one for rows without a value of the expression.

    Such rows may be in any region of the data: an unknown key, a division by 0.
    """
    return None if cells is None else cells + 1


def _expanded(node: Node, table: TableRows) -> Node:
    """Return an expression in terms of the data, with derived columns expanded."""
    if isinstance(node, ColumnNode) and node.name in table.derived:
        return _expanded(table.derived[node.name].node, table)
    if isinstance(node, ColumnNode) and node.name in table.days:
        day = table.days[node.name]
        zone = (ConstantNode(day.zone),) if day.zone else ()
        return CallNode("day", (ColumnNode(day.of), *zone))
    if isinstance(node, CallNode):
        return replace(node, parts=tuple(_expanded(part, table) for part in node.parts))
    return node


def _column_text(column: str, table: TableRows) -> str:
    """Describe a column; a column of cells or days by its source column."""
    if column in table.days:
        # Another table may use the same name for days of another zone.
        return str(partition_rule(column, None, table))
    if column in table.derived:
        # By the expanded expression and the types of its columns.
        return f"{_expanded(ColumnNode(column), table)} ({_derived_rule(column, None, table).mark})"
    if column not in table.cells:
        source = base_source(table.source)
        stated = isinstance(source, TypedSource) and column in source.types
        return f"{column!r} as {table.read_as(column)}" if stated else repr(column)
    cells = table.cells[column]
    return f"{cells.elements.name} of {_column_text(cells.of, table)}"
