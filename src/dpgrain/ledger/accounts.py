"""Accounts: what each class of units has been charged, kept as intervals of cells.

A promise has one account for each class of units that met the same releases. One column numbers the
cells, such as that of days, and an account is a row that goes from its first cell to that of the next
row. The other columns divide the units into classes of their own, each with such rows. A release splits
at most two rows of a class and adds to those in between: nothing is summed again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dpgrain import _validate
from dpgrain.errors import DataError, DpgrainError, ParameterError
from dpgrain.ledger.lines import Line
from dpgrain.ledger.promise import LastingPromise
from dpgrain.ledger.stores.protocol import END, START, Axis, Cells, Page
from dpgrain.ledger.units import Units
from dpgrain.ledger.window import Meeting, Window
from dpgrain.publishing.prices import Price
from dpgrain.scope.regions import EVERYTHING, LabelSet, Region, Side, Span

# Records without a value of the column that numbers cells lie in this cell.
_MISSING = START


@dataclass(frozen=True)
class Charged:
    """The charge of a release to one promise.

    Args:
        promise: the number of the line that made the promise.
        price: the price for each unit that the release meets.
        region: the region of the cells of those units.
        planned: the place in the promise's plan of the release, which takes nothing of the caps; None
            where it is charged.
        meeting: the windows that are charged, of those that meet the region.
    """

    promise: int
    price: Price
    region: Region = EVERYTHING
    planned: int | None = None
    meeting: Meeting = "any"

    def to_dict(self) -> dict[str, Any]:
        """Return the charge as plain JSON values, the last three fields only where needed."""
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
        """Read the charge described by :meth:`to_dict`.

        Raises:
            ParameterError: if a field is missing, unknown or wrong.
        """
        return _validate.read_fields(Charged, values, "a charge")


class DoesNotFitError(DpgrainError):
    """A promise does not hold a charge.

    Args:
        charged: the charge.
        spent: what the fullest account that it meets has been charged before.
    """

    def __init__(self, charged: Charged, spent: Units) -> None:
        super().__init__("The charge exceeds the promise.")
        self.charged, self.spent = charged, spent


class TakenError(DpgrainError):
    """A planned release was made before, by whoever took it out of the plan."""


def put_in_force(page: Page, number: int, renews: int | None) -> None:
    """Open the first account of a promise, which is that of all units, and end what it renews.

    Args:
        page: the page to write to.
        number: the line of the promise.
        renews: the line of the promise that it renews, if there is one.
    """
    if renews is not None:
        page.end(renews)
    page.open_account(number)
    page.set_class(number, 0, json.dumps(EVERYTHING.to_dict()))


def charge(page: Page, promise: LastingPromise, charged: Charged) -> None:
    """Charge all units of a promise that a release meets, or none; or take it out of the plan.

    Raises:
        DoesNotFitError: if an account does not hold it; nothing of the page must be kept then.
        TakenError: if it is a planned release that was made before.
        ParameterError: if the price is no price, or the plan has no such release.
    """
    if charged.planned is not None:
        _take_out(page, promise, charged)
        return
    taken = Units.of(charged.price, promise.caps)
    if taken == Units():
        return
    for cells in _met(page, promise, charged):
        spent = page.most(charged.promise, cells)
        if not (spent + taken).fits:
            raise DoesNotFitError(charged, spent)
        page.add(charged.promise, cells, taken)


def _take_out(page: Page, promise: LastingPromise, charged: Charged) -> None:
    """Mark a planned release as made, once for all who share the ledger."""
    place = charged.planned
    if place is None or not 0 <= place < len(promise.plan) or charged.price != Price():
        raise ParameterError(
            f"planned must be an index below {len(promise.plan)} in the plan of the promise, "
            f"without a price, not {_validate.describe(place)}."
        )
    if place in page.taken(charged.promise):
        raise TakenError(f"Release {place} of the plan was already published.")
    page.take(charged.promise, place)


def spent(page: Page, promise: LastingPromise, number: int, region: Region) -> Units:
    """Return the most that an account has been charged of those that a region meets.

    Args:
        page: the page to read.
        promise: the promise.
        number: the line of the promise.
        region: the region.
    """
    axis = page.axis(number)
    rest, spans = divided(region, axis, promise.window)
    result = [
        page.most(number, Cells(within, *span))
        for within, known in page.classes(number).items()
        if _region(known).meets(rest)
        for span in spans
    ]
    return Units(
        max((one.pure for one in result), default=0),
        max((one.mu for one in result), default=0),
        max((one.leak for one in result), default=0),
    )


def fullest(page: Page, promise: LastingPromise, number: int) -> Region:
    """Return the records of the units whose account is the fullest, the first one of several.

    Args:
        page: the page to read.
        promise: the promise.
        number: the line of the promise.
    """
    rows = [row[1:] for row in page.accounts() if row[0] == number]
    place = max(range(len(rows)), key=lambda one: max(rows[one][2:]))
    within, first = rows[place][:2]
    follows = place + 1 < len(rows) and rows[place + 1][0] == within
    end = rows[place + 1][1] if follows else END
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


def _met(page: Page, promise: LastingPromise, charged: Charged) -> Iterator[Cells]:
    """Yield the cells that a charge meets, in classes that lie inside it."""
    axis = page.axis(charged.promise)
    if axis is None and (axis := _first_axis(charged.region, promise.window)) is not None:
        page.set_axis(charged.promise, axis)
    rest, spans = divided(charged.region, axis, promise.window, charged.meeting)
    for within in _classes_inside(page, charged.promise, rest):
        for first, end in spans:
            yield Cells(within, first, end)


def _first_axis(region: Region, window: Window | None) -> Axis | None:
    """Return the axis of the first side that is an interval, of the window's if there is one."""
    for side in region.sides:
        mine = window is None or window.column == side.column
        if mine and isinstance(side.values, Span):
            return Axis(side.column, _way(side, side.values))
    return None


def divided(
    region: Region, axis: Axis | None, window: Window | None, meeting: Meeting = "any"
) -> tuple[Region, list[tuple[int, int]]]:
    """Divide a region into intervals of the axis, and what it says of other columns.

    Args:
        region: the region.
        axis: the axis; None where there is none yet.
        window: the window of the promise, whose starts are the cells; None where there is none.
        meeting: the windows that are meant, of those that meet the region.

    Returns:
        The region of the other columns, and (first, end) of each interval. A side that is read in
        another way than the axis (dates there, moments here: a record may have another day) is left
        out, so that more is charged.
    """
    everywhere = [(START, END)]
    side = None if axis is None else region.side(axis.column)
    if axis is None and window is not None:
        # A stretch of time holds records of many labels, which distinguish no two stretches.
        return _without(region, window.column), everywhere
    if axis is None or side is None:
        return region, everywhere
    others = _without(region, axis.column)
    if not isinstance(side.values, Span) or _way(side, side.values) != axis.kind:
        # Labels divide units into classes, where the cells are not starts of windows.
        keeps = isinstance(side.values, LabelSet) and window is None
        return (region if keeps else others), everywhere
    return others, _intervals(side, side.values, window, meeting)


def _without(region: Region, column: str) -> Region:
    """Return the larger region of which nothing is said of a column."""
    return Region(tuple(side for side in region.sides if side.column != column))


def _way(side: Side, span: Span) -> str:
    """Return the way in which an axis reads its column, with the type where it is not the usual one."""
    return f"{span.axis} {side.kind}".rstrip()


def _intervals(
    side: Side, span: Span, window: Window | None, meeting: Meeting
) -> list[tuple[int, int]]:
    """Return (first, end) of the cells that a side of the axis meets."""
    met = [(span.low, span.high)] if window is None else window.starts_that(meeting, span)
    result = [(_MISSING, _MISSING + 1)] if side.missing else []
    for low, high in met:
        # Numbers that no store can count lie in the first or the last cell, which they share.
        first = START + 1 if low is None else min(max(low, START + 1), END - 1)
        end = END if high is None else min(max(high, START + 2), END)
        result += [(first, end)] if first < end else []
    return result


def _classes_inside(page: Page, promise: int, region: Region) -> list[int]:
    """Return the classes inside a region, after those that lie inside in part have been split."""
    known = page.classes(promise)
    free = max(known) + 1
    result = []
    for number, text in known.items():
        whole = _region(text)
        told = _comparable(region, whole)
        if not whole.meets(told):
            continue
        if whole.within(told):
            result.append(number)
            continue
        inside, outside = whole.both(told), whole.minus(told)
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
    """Return the larger region without the sides that another one reads in another way."""
    pairs = ((side, other.side(side.column)) for side in region.sides)
    return Region(tuple(side for side, two in pairs if two is None or side.comparable(two)))


@lru_cache(maxsize=10_000)
def _region(text: str) -> Region:
    return _validate.read_fields(Region, json.loads(text), "the region of a class")


def made_again(page: Page, lines: Iterable[Line]) -> None:
    """Make everything beside the lines of a ledger again from them.

    Args:
        page: the page to write to, which holds nothing of it.
        lines: the lines.

    Raises:
        DpgrainError: if a line is broken, or more was charged than a promise holds.
    """
    promises: dict[int, LastingPromise] = {}
    for line in lines:
        if line.values.get("kind") == "promise":
            promise = LastingPromise.from_dict(line.field("promise"))
            promises[line.number] = promise
            put_in_force(page, line.number, line.optional("renews", int))
        for each in map(Charged.from_dict, line.several("charged")):
            if each.promise not in promises:
                raise DataError(
                    f"line {line.number:,} of the ledger charges line {each.promise:,}, "
                    "which is not a promise: the file was changed or damaged."
                )
            charge(page, promises[each.promise], each)
        if mark := line.optional("mark", str):
            page.set_mark(mark, line.number)
