"""From a privacy unit to the blocks whose norm is clipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from dpgrain.accounting import Contribution
from dpgrain.data.elements import Elements, as_elements
from dpgrain.data.table import UserTable
from dpgrain.errors import ParameterError, SchemaError
from dpgrain.units import Element, Level, Record, Unit, User


@dataclass(frozen=True)
class Blocks:
    """What is clipped as one: a record, a user's data in one cell, or a whole user.

    Args:
        block: whose data one block holds.
        elements: the partition by item, where there is one; None where each item is its own cell.
        column: the cell is this other column instead.
        max_elements: at most so many blocks of a user are kept.
        named: the partition in words; empty if there is none.
    """

    block: Level
    elements: Elements | None = None
    column: str | None = None
    max_elements: int | None = None
    named: str = ""

    @staticmethod
    def of(unit: Unit, table: UserTable, item: str) -> Blocks:
        """The blocks that protect a unit of a table whose items are in this column.

        Raises:
            ParameterError: if the unit does not fit.
            SchemaError: if it names a column that the table lacks.
        """
        if isinstance(unit, Record):
            return Blocks("record")
        if not isinstance(unit, Element | User):
            raise ParameterError(f"unit must be Record(), Element(by) or User(), not {unit!r}.")
        if table.user is None:
            raise ParameterError(
                f"unit {type(unit).__name__} needs to know whose a record is; "
                "give user= to dg.read, or use Record()."
            )
        if isinstance(unit, User) and unit.max_elements is None:
            if unit.by is not None:
                raise ParameterError(
                    "User(by=…) says what max_elements counts; give max_elements as well."
                )
            return Blocks("user")
        if isinstance(unit, Element) and unit.by is None:
            raise ParameterError(
                "Element() needs a partition for a histogram: a column, a mapping or a function, "
                f"such as Element({item!r}) for each item by itself."
            )
        by = item if unit.by is None else unit.by
        bound = unit.max_elements if isinstance(unit, User) else None
        if isinstance(by, str):
            return Blocks._of_column(by, bound, table, item)
        elements = as_elements(by).of_keys(integers=table.is_integer(item))
        return Blocks("element", elements, None, bound, elements.name)

    @staticmethod
    def _of_column(by: str, bound: int | None, table: UserTable, item: str) -> Blocks:
        if by == item:
            return Blocks("element", None, None, bound, f"{item!r} (each item by itself)")
        if by not in table.schema:
            raise SchemaError(
                f"element {by!r} is not a column of the table ({', '.join(table.schema)}); "
                "give a mapping in a file as pathlib.Path(…)."
            )
        table.key(by, "element")
        return Blocks("element", None, by, bound, f"the column {by!r}")

    def contribution(
        self, *, items: int | None, cells: int | None, single: bool, norm: Literal["l2", "l1"]
    ) -> Contribution:
        """How blocks enter a sum over items.

        Args:
            items: the public number of items, if the domain is public.
            cells: the public number of cells, if the partition is by item and the domain public.
            single: whether every block is one coordinate, by public knowledge.
            norm: the norm that is clipped.
        """
        return Contribution(
            block=self.block,
            layout="disjoint" if self.column is None else "shared",
            coordinates="one" if single or items == 1 else "nonnegative",
            norm=norm,
            max_elements=self.max_elements,
            cells=cells,
        )


def public_domain(domain: Any, blocks: Blocks, table: UserTable, item: str) -> pa.Array | None:
    """The public list of items, of the type of the item column; None where there is none.

    Args:
        domain: as given by the caller; None means the keys of a public mapping, if there is one.
        blocks: the blocks of the unit.
        table: the table.
        item: its item column.

    Raises:
        ParameterError: if the domain is empty, repeats an item, or has the wrong type.
    """
    elements = blocks.elements
    if domain is None:
        if elements is None or elements.mapping is None:
            if elements is not None and elements.missing == "error":
                raise ParameterError(
                    "missing='error' needs a public domain: give domain=, or use missing='own' "
                    "or 'drop'."
                )
            return None
        values = list(elements.mapping)
    elif isinstance(domain, str | bytes):
        raise ParameterError(f"domain must be a list of items, not the text {domain!r}.")
    else:
        values = _values(domain)
    if not values:
        raise ParameterError("domain is empty; name at least one item.")
    wanted = int if table.is_integer(item) else str
    for value in values:
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise ParameterError(
                f"domain holds {value!r}, but the item column {item!r} holds "
                f"{'integers' if wanted is int else 'text'}; cast one of them."
            )
    if len(set(values)) < len(values):
        ((repeated, _),) = Counter(values).most_common(1)
        raise ParameterError(f"domain names item {repeated!r} twice; name each item once.")
    if elements is not None and elements.missing == "drop":
        with_cell = any(elements.cell(value) is not None for value in values)
        if not with_cell:
            raise ParameterError(
                f"domain has no item with a cell in {elements.name}; use missing='own'."
            )
    try:
        return pa.array(values, pa.int64() if wanted is int else pa.string())
    except (OverflowError, UnicodeEncodeError, pa.ArrowException):
        kind = "64-bit integers" if wanted is int else "valid text"
        raise ParameterError(f"domain holds items that are not {kind}; leave them out.") from None


def _values(domain: Any) -> list[Any]:
    if isinstance(domain, Mapping):
        return list(domain)
    if isinstance(domain, pa.Array | pa.ChunkedArray):
        return list(domain.to_pylist())
    if isinstance(domain, np.ndarray) or hasattr(domain, "to_list"):
        return list(domain.tolist() if isinstance(domain, np.ndarray) else domain.to_list())
    try:
        return [value.item() if isinstance(value, np.generic) else value for value in domain]
    except TypeError:
        raise ParameterError(f"domain must be a list of items, not {domain!r}.") from None
