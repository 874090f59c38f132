"""Accounts: what each class of units has been charged, kept as intervals of cells.

A promise has one account for each class of units that met the same releases. Classes are intervals of
whole numbers, such as days, so that an account is a row from its first cell to that of the next row. A
release splits at most two of them and adds to those in between: nothing is summed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dpgrain import _fields
from dpgrain.errors import DpgrainError
from dpgrain.ledger.lines import Line
from dpgrain.ledger.promise import LastingPromise
from dpgrain.ledger.stores.protocol import END, START, Page
from dpgrain.ledger.units import Units
from dpgrain.publishing.prices import Price


@dataclass(frozen=True)
class Charged:
    """What a release was charged to one promise.

    Args:
        promise: the number of the line that made the promise.
        price: the price for each unit that the release meets.
        first: the first cell of those units.
        end: the cell after their last.
    """

    promise: int
    price: Price
    first: int = START
    end: int = END

    def to_dict(self) -> dict[str, Any]:
        """Return the charge as plain JSON values, without what is everywhere."""
        price = {"pure": self.price.pure, "mu": self.price.mu, "leak": self.price.leak}
        values: dict[str, Any] = {"promise": self.promise, "price": price}
        if (self.first, self.end) != (START, END):
            values |= {"first": self.first, "end": self.end}
        return values

    @staticmethod
    def from_dict(values: Any) -> Charged:
        """Read the charge that :meth:`to_dict` described.

        Raises:
            ParameterError: if a field is missing, unknown or wrong.
        """
        return _fields.read(Charged, values, "a charge")


class DoesNotFitError(DpgrainError):
    """A promise does not hold a charge.

    Args:
        charged: the charge.
        spent: what the fullest account that it meets has been charged before.
        taken: what the charge would take.
    """

    def __init__(self, charged: Charged, spent: Units, taken: Units) -> None:
        super().__init__("The promise does not hold the charge.")
        self.charged, self.spent, self.taken = charged, spent, taken


def put_in_force(page: Page, promise: int, renews: int | None) -> None:
    """Open the first account of a promise, which is that of all units, and end what it renews."""
    if renews is not None:
        page.end(renews)
    page.open_account(promise)


def charge(page: Page, promise: LastingPromise, charged: Charged) -> None:
    """Charge all units of a promise that a release meets, or none.

    Raises:
        DoesNotFitError: if an account does not hold it.
        ParameterError: if the price is no price.
    """
    taken = Units.of(charged.price, promise.caps)
    span = (charged.promise, charged.first, charged.end)
    spent = page.most(*span)
    if not (spent + taken).fits:
        raise DoesNotFitError(charged, spent, taken)
    if taken != Units():
        page.add(*span, taken)


def made_again(page: Page, lines: Iterable[Line]) -> dict[int, LastingPromise]:
    """Make all accounts from the lines of a ledger, and return its promises by their lines.

    Args:
        page: the page to write to, without accounts.
        lines: the lines.

    Raises:
        DpgrainError: if a line is broken, or more was charged than a promise holds.
    """
    promises: dict[int, LastingPromise] = {}
    for line in lines:
        if line.values.get("kind") == "promise":
            promises[line.number] = LastingPromise.from_dict(line.values["promise"])
            put_in_force(page, line.number, line.values.get("renews"))
        for each in map(Charged.from_dict, line.values.get("charged", ())):
            charge(page, promises[each.promise], each)
    return promises
