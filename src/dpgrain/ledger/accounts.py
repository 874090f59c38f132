"""Accounts of a promise: the charge of each class of privacy units, stored as intervals of cells.

A promise has one account for each class of units that met the same releases. The values of one
column, such as days, number the cells, and an account is a row from its first cell to the first
cell of the next row. The other columns divide the units into classes, each with such rows. A
release splits at most two rows of a class and adds to the rows in between, so no charge is ever
recomputed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dpgrain import _validate
from dpgrain.errors import DataError, DpgrainError, ParameterError
from dpgrain.ledger.lasting_promise import LastingPromise
from dpgrain.ledger.lines import StoredLine
from dpgrain.ledger.price_units import Units
from dpgrain.ledger.stores.store_protocol import END, START, Axis, CellRange, Transaction
from dpgrain.ledger.window import Meeting, TimeWindow
from dpgrain.publishing.prices import Price
from dpgrain.scope.regions import EVERYTHING, LabelSet, Region, Side, Span

# Cell of records without a value in the column that numbers cells.
_MISSING = START


@dataclass(frozen=True)
class Charged:
    """Charge of a release to one promise; its fields are stored in the ledger."""

    promise: int  # its line
    price: Price  # per affected unit
    region: Region = EVERYTHING  # of the cells of the units
    planned: int | None = None  # index in the promise's plan, which costs nothing
    meeting: Meeting = "any"  # windows charged among those that overlap the region

    def to_dict(self) -> dict[str, Any]:
        """Return the charge as JSON values, the last three fields only if they are set."""
        price = {"pure": self.price.pure, "mu": self.price.mu, "leak": self.price.leak}
        values: dict[str, Any] = {"promise": self.promise, "price": price}
        if not self.region.everything:
            values["region"] = self.region.to_dict()
        if self.planned is not None:
            values["planned"] = self.planned
        if self.meeting != "any":
            values["meeting"] = self.meeting
        return values

    @staticmethod
    def from_dict(values: Any) -> Charged:
        """Read a charge from :meth:`to_dict`; raise ParameterError if a field is wrong."""
        return _validate.read_fields(Charged, values, "a charge")


class BudgetExceededError(DpgrainError):
    """A charge above a promise; ``spent`` and ``region`` are of the fullest account before it."""

    def __init__(self, charged: Charged, spent: Units, region: Region) -> None:
        super().__init__("The charge exceeds the promise.")
        self.charged, self.spent, self.region = charged, spent, region


class AlreadyReleasedError(DpgrainError):
    """A planned release that was already published, by any user of the ledger."""


def activate(page: Transaction, number: int, renews: int | None) -> None:
    """Open the first account of a promise, for all units, and end the promise it renews."""
    if renews is not None:
        page.end(renews)
    page.open_account(number)
    page.set_class(number, 0, json.dumps(EVERYTHING.to_dict()))


def charge(page: Transaction, promise: LastingPromise, charged: Charged) -> None:
    """Charge all affected units of a promise, or none; or use a planned release."""
    if charged.planned is not None:
        _use_planned(page, promise, charged)
        return
    taken = Units.create(charged.price, promise.caps)
    if taken == Units():
        return
    for cells in _charged_cells(page, promise, charged):
        spent = page.max_units(charged.promise, cells)
        if not (spent + taken).fits:
            full = fullest(page, promise, charged.promise, cells)
            raise BudgetExceededError(charged, spent, full)
        page.add(charged.promise, cells, taken)


def _use_planned(page: Transaction, promise: LastingPromise, charged: Charged) -> None:
    """Mark a planned release as published, once for all users of the ledger."""
    place = charged.planned
    if place is None or not 0 <= place < len(promise.plan) or charged.price != Price():
        raise ParameterError(
            f"planned must be an index below {len(promise.plan)} in the plan of the promise, "
            f"without a price, not {_validate.describe(place)}."
        )
    if place in page.used_plan(charged.promise):
        raise AlreadyReleasedError(f"Release {place} of the plan was already published.")
    page.use_planned(charged.promise, place)


def spent(page: Transaction, promise: LastingPromise, number: int, region: Region) -> Units:
    """Return the largest charge of the accounts that a region overlaps."""
    axis = page.axis(number)
    rest, spans = divided(region, axis, promise.window)
    result = [
        page.max_units(number, CellRange(within, *span))
        for within, known in page.classes(number).items()
        if _region(known).meets(rest)
        for span in spans
    ]
    return Units(
        max((one.pure for one in result), default=0),
        max((one.mu for one in result), default=0),
        max((one.leak for one in result), default=0),
    )


def fullest(
    page: Transaction, promise: LastingPromise, number: int, cells: CellRange | None = None
) -> Region:
    """Return the region of the first account with the largest charge, among all or some cells."""
    rows = [row[1:] for row in page.accounts() if row[0] == number]
    ends = [
        after[1] if after is not None and after[0] == row[0] else END
        for row, after in zip(rows, [*rows[1:], None], strict=True)
    ]
    affected = [
        place
        for place, (within, first, *_) in enumerate(rows)
        if cells is None
        or (within == cells.within and first < cells.end and cells.first < ends[place])
    ]
    place = max(affected, key=lambda one: max(rows[one][2:]))
    (within, first), end = rows[place][:2], ends[place]
    known, axis = _region(page.classes(number)[within]), page.axis(number)
    if axis is None or known.side(axis.column) is not None or (first, end) == (START, END):
        return known
    if (first, end) == (_MISSING, _MISSING + 1):
        return Region((*known.sides, Side(axis.column, LabelSet(), missing=True)))
    low, high = (None if first <= START + 1 else first), (None if end == END else end)
    counted, _, kind = axis.kind.partition(" ")
    span = _validate.read_fields(Span, {"axis": counted, "low": low, "high": high}, "an interval")
    if promise.window is not None:
        span = promise.window.records(span)
    return Region((*known.sides, Side(axis.column, span, kind=kind)))


def _charged_cells(
    page: Transaction, promise: LastingPromise, charged: Charged
) -> Iterator[CellRange]:
    """Yield the cells that a charge affects, after splitting classes that overlap it in part."""
    axis = page.axis(charged.promise)
    if axis is None and (axis := _first_axis(charged.region, promise.window)) is not None:
        page.set_axis(charged.promise, axis)
    rest, spans = divided(charged.region, axis, promise.window, charged.meeting)
    for within in _classes_inside(page, charged.promise, rest):
        for first, end in spans:
            yield CellRange(within, first, end)


def _first_axis(region: Region, window: TimeWindow | None) -> Axis | None:
    """Return the axis of the first side with an interval, or of the window's column."""
    for side in region.sides:
        mine = window is None or window.column == side.column
        if mine and isinstance(side.values, Span):
            return Axis(side.column, _axis_kind(side, side.values))
    return None


def divided(
    region: Region, axis: Axis | None, window: TimeWindow | None, meeting: Meeting = "any"
) -> tuple[Region, list[tuple[int, int]]]:
    """Return the region of the other columns, and (first, end) intervals of the axis."""
    # A side that reads the column in another way than the axis (dates instead of timestamps: a
    # record can have another day) is dropped, so that more is charged.
    everywhere = [(START, END)]
    side = None if axis is None else region.side(axis.column)
    if axis is None and window is not None:
        # A window contains records of many labels, so labels do not distinguish windows.
        return _without(region, window.column), everywhere
    if axis is None or side is None:
        return region, everywhere
    others = _without(region, axis.column)
    if not isinstance(side.values, Span) or _axis_kind(side, side.values) != axis.kind:
        # Labels divide units into classes, unless cells are starts of windows.
        keeps = isinstance(side.values, LabelSet) and window is None
        return (region if keeps else others), everywhere
    return others, _intervals(side, side.values, window, meeting)


def _without(region: Region, column: str) -> Region:
    """Return the larger region without the side of a column."""
    return Region(tuple(side for side in region.sides if side.column != column))


def _axis_kind(side: Side, span: Span) -> str:
    """Return how an axis reads its column, with the column's type if it is not the usual one."""
    return f"{span.axis} {side.kind}".rstrip()


def _intervals(
    side: Side, span: Span, window: TimeWindow | None, meeting: Meeting
) -> list[tuple[int, int]]:
    """Return (first, end) of the cells that a side of the axis overlaps."""
    met = [(span.low, span.high)] if window is None else window.window_starts(meeting, span)
    result = [(_MISSING, _MISSING + 1)] if side.missing else []
    for low, high in met:
        # Numbers outside of the range of stores share the first or the last cell.
        first = START + 1 if low is None else min(max(low, START + 1), END - 1)
        end = END if high is None else min(max(high, START + 2), END)
        result += [(first, end)] if first < end else []
    return result


def _classes_inside(page: Transaction, promise: int, region: Region) -> list[int]:
    """Return the classes inside a region, after splitting those that overlap it in part."""
    known = page.classes(promise)
    free = max(known) + 1
    result = []
    for number, text in known.items():
        whole = _region(text)
        comparable = _comparable(region, whole)
        if not whole.meets(comparable):
            continue
        if whole.within(comparable):
            result.append(number)
            continue
        inside, outside = whole.both(comparable), whole.minus(comparable)
        for place, part in enumerate((*inside, *outside)):
            target = number if place == 0 else free
            if place > 0:
                page.copy_class(promise, number, target)
                free += 1
            page.set_class(promise, target, json.dumps(part.to_dict()))
            if place < len(inside):
                result.append(target)
    return result


def _comparable(region: Region, other: Region) -> Region:
    """Return the larger region without sides that another region reads in another way."""
    pairs = ((side, other.side(side.column)) for side in region.sides)
    return Region(tuple(side for side, two in pairs if two is None or side.comparable(two)))


@lru_cache(maxsize=10_000)
def _region(text: str) -> Region:
    return _validate.read_fields(Region, json.loads(text), "the region of a class")


def rebuild(page: Transaction, lines: Iterable[StoredLine]) -> None:
    """Rebuild the accounts, plans and marks of a ledger from its lines, in an empty transaction."""
    promises: dict[int, LastingPromise] = {}
    for line in lines:
        if line.values.get("kind") == "promise":
            promise = LastingPromise.from_dict(line.field("promise"))
            promises[line.number] = promise
            activate(page, line.number, line.optional_field("renews", int))
        for each in map(Charged.from_dict, line.list_field("charged")):
            if each.promise not in promises:
                raise DataError(
                    f"line {line.number:,} of the ledger charges line {each.promise:,}, "
                    "which is not a promise: the file was changed or damaged."
                )
            charge(page, promises[each.promise], each)
        if mark := line.optional_field("mark", str):
            page.set_mark(mark, line.number)
