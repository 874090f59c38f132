"""``dg.Ledger``: one record of all publications about some people, charged before data are read."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NoReturn

from dpgrain import _validate
from dpgrain._formatting import powers, rounded_up
from dpgrain._report_mixins import LedgerReportMixin
from dpgrain.errors import DataError, ParameterError, RefusedError
from dpgrain.ledger import accounts, plans
from dpgrain.ledger.accounts import Charged, DoesNotFitError, TakenError
from dpgrain.ledger.entries import Entry, seeds_in_words
from dpgrain.ledger.lines import Line, checked
from dpgrain.ledger.promise import LastingPromise
from dpgrain.ledger.refusal import left_in_words, refusal
from dpgrain.ledger.stores import store_at
from dpgrain.ledger.stores.memory import memory_page
from dpgrain.ledger.stores.protocol import FORMAT, Page
from dpgrain.ledger.units import Units
from dpgrain.ledger.window import Meeting
from dpgrain.publishing import ledgers
from dpgrain.publishing.budget import open_budget
from dpgrain.publishing.guarantee import Guarantee, check_guarantee
from dpgrain.publishing.prices import Price
from dpgrain.publishing.receipt import Receipt
from dpgrain.scope.regions import EVERYTHING, Region

# Version of the language in which lines are written.
_LANGUAGE = 1


class _TakenBack(Exception):  # noqa: N818 - it is no error: a dry run writes nothing
    """The end of a dry run: the transaction with its line is taken back."""


class _RenewedMeanwhile(Exception):  # noqa: N818 - it is no error: the charge is tried again
    """A promise was renewed after prices were found for it."""


class Ledger(LedgerReportMixin):
    """A lasting record of releases: one that would break a promise of it is refused beforehand.

    Args:
        place: the file, or the address of a PostgreSQL database (``postgresql://…``).
        expected: a hash that the ledger must hold, such as that of the last receipt that you know: an
            older copy that was put in its place does not hold it.

    Raises:
        DataError: if there is no ledger, it is damaged, a later version has made it, or it does not
            hold the expected hash.

    Every release, fit and shuffled sum inside ``with`` is charged to every promise of the ledger, in
    this process and in those that it forks or starts (which find it by ``DPGRAIN_LEDGER`` in their
    environment), and is on the disk before anything is read. What was charged counts as released,
    whatever happens then. A budget inside is a narrower promise: a release must fit into both. A line
    can be read by everybody who reads the releases; it holds nothing of the data.

    Formal guarantee: each promise holds for everything that the ledger has charged, however each
    release was chosen from the outcomes of those before. It is assumed that these people's records are
    published through this ledger alone, that each of them has one id, and that no older copy is put in
    its place. Source: docs/theory, "Ledgers".

    >>> import tempfile
    >>> import pyarrow as pa
    >>> from dpgrain import User, count, read
    >>> table = read(pa.table({"who": [1, 2, 2]}), user="who")
    >>> place = Path(tempfile.mkdtemp()) / "visits.ledger"
    >>> made = Ledger.create(place, name="visits", promises=[LastingPromise.of(User(), 1.0, 1e-6)])
    >>> with Ledger(place) as ledger:
    ...     visits = count(table, unit=User(), clip=5.0, epsilon=0.5, delta=1e-7)
    >>> visits.guarantee.receipts[0].number, ledger.verify().number
    (2, 2)
    """

    def __init__(self, place: str | Path, *, expected: str | None = None) -> None:
        self._store = store_at(place)
        if expected is not None and not isinstance(expected, str):
            raise ParameterError(
                f"expected must be a hash or None, not {_validate.describe(expected)}.",
                name="expected",
            )
        self._known: dict[int, LastingPromise] = {}
        with self._store.reading() as page:
            result = page.format()
        if result is not None and result < FORMAT:
            self._make_accounts_again()
        with self._store.reading() as page:
            self._check_format(page)
            first, self._seen = self._checked(page, expected)
        self.id, self.name = str(first.field("id")), str(first.field("name"))
        self._user = str(first.field("user"))

    @staticmethod
    def create(
        place: str | Path, *, name: str, promises: Iterable[LastingPromise], user: str = ""
    ) -> Ledger:
        """Make a ledger, and open it.

        Args:
            place: the file, or the address of a PostgreSQL database.
            name: the name of the people whose records it is about.
            promises: what is promised to them; each release must fit into all promises.
            user: the column that names the user of a record, if all tables have the same.

        Raises:
            ParameterError: if there is no promise, or something at the place.
            DataError: if the place cannot be written.
        """
        if not isinstance(name, str) or not name.strip():
            raise ParameterError(f"name must be text, not {_validate.describe(name)}.")
        # An array without axes says that it can be listed, and cannot.
        is_listed = isinstance(promises, Iterable) and getattr(promises, "ndim", 1) > 0
        given = list(promises) if is_listed else []
        listed = [one for one in given if isinstance(one, LastingPromise)]
        if not listed or len(listed) < len(given):
            raise ParameterError(
                "promises must be a list of LastingPromise, such as "
                "[LastingPromise.of(Element('day'), 1.0, 1e-6)]."
            )
        for promise in listed:
            _check_users(user, promise.plan)
        noted: dict[str, Any] = {"language": _LANGUAGE, "id": secrets.token_hex(16), "name": name}
        with store_at(place).creating() as page:
            page.set_format(FORMAT)
            last = Line.after(None, _now(), "ledger", **noted, user=user)
            page.append(last)
            for promise in listed:
                last = _promised(page, last, promise)
                page.append(last)
        return Ledger(place)

    # ------------------------------------------------------------------------------ opening

    def _check_format(self, page: Page) -> None:
        result = page.format()
        if result is None:
            raise DataError(f"{self._store.name!r} contains no ledger; create a new one.")
        if result > FORMAT:
            raise self._too_new()

    def _too_new(self) -> DataError:
        return DataError(
            f"{self._store.name!r} was written by a later version of dpgrain; use that "
            "version or a later one."
        )

    def _checked(self, page: Page, expected: str | None) -> tuple[Line, Line]:
        """Check the chain of lines, and return the first and the last."""
        first = last = None
        held = expected is None
        for last in checked(page.lines()):
            first = first or last
            held = held or last.hash == expected
        if first is None or last is None or first.values.get("kind") != "ledger":
            raise DataError(f"{self._store.name!r} contains no ledger; create a new one.")
        if first.values.get("language") != _LANGUAGE:
            raise self._too_new()
        if not held:
            raise DataError(
                "expected must be a hash that the ledger contains, not "
                f"{_validate.describe(expected)}: the file was replaced by an older copy or "
                "another ledger."
            )
        return first, last

    def _make_accounts_again(self) -> None:
        """Bring what is kept beside the lines to this version's format; the lines stay."""
        try:
            with self._store.writing() as page:
                page.clear_accounts()
                accounts.made_again(page, page.lines())
                page.set_format(FORMAT)
        except DoesNotFitError as error:
            raise DataError(
                f"{self._store.name!r} has charged more than the promise of line "
                f"{error.charged.promise:,} allows, because earlier versions treated dates in "
                "text as separate users; treat that promise as broken, and create a new "
                "ledger."
            ) from error

    # ------------------------------------------------------------------------------ charging

    @property
    def place(self) -> str:
        """The file or database, as another process can open it."""
        return self._store.place

    def __enter__(self) -> Ledger:
        if open_budget() is not None:
            raise ParameterError(
                "a budget is open; open the ledger first, and the budget inside it."
            )
        ledgers.enter(self)
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        ledgers.leave(self)
        self._store.close()
        return False

    def close(self) -> None:
        """Close the connection to the file or database; it is opened again when it is needed."""
        self._store.close()

    def charge(self, *guarantees: Guarantee, mark: str = "", again: bool = True) -> Receipt:
        """Charge releases that are about to be made; when this returns, that is on the disk.

        Args:
            guarantees: what each release promises. Several are charged as a whole or not at all; those
                that read the same region for the same units are composed exactly, and all must be
                fixed before the first of them is made. One that a promise plans is taken out of that
                plan, and takes nothing of its caps.
            mark: a text by which :attr:`entries` can be searched for the line.
            again: False to refuse a mark that a line has already, whoever has charged it.

        Returns:
            The receipt, which is that of all these releases.

        Raises:
            RefusedError: if a promise does not hold the releases, or the mark is refused; nothing is
                charged then.
            DataError: if the ledger cannot be written, or was changed.
        """
        line = self._charged_in_a_line(guarantees, mark, again=again, kept=True)
        return Receipt(self.id, self.name, line.number, line.hash)

    def rehearse(self, *guarantees: Guarantee, mark: str = "", again: bool = True) -> None:
        """Raise what :meth:`charge` would raise now, and charge nothing.

        Args:
            guarantees: what each release promises.
            mark: the text by which the line would be found.
            again: False to refuse a mark that a line has already.

        Raises:
            RefusedError: if a promise does not hold the releases, or the mark is refused.
            DataError: if the ledger cannot be written, or was changed.
        """
        self._charged_in_a_line(guarantees, mark, again=again, kept=False)

    def _charged_in_a_line(
        self, guarantees: tuple[Guarantee, ...], mark: str, *, again: bool, kept: bool
    ) -> Line:
        """Return the line that charges releases, written unless it is to be taken back."""
        if not guarantees:
            raise ParameterError("guarantees must contain at least one guarantee.")
        for guarantee in guarantees:
            check_guarantee(guarantee)
        again = _validate.boolean(again=again)
        if not isinstance(mark, str):
            raise ParameterError(f"mark must be text, not {_validate.describe(mark)}.", name="mark")
        _check_users(self._user, guarantees)
        # Prices take a while to find, and are found before others have to wait.
        promises = self.promises
        charged = [
            each
            for number, promise in promises.items()
            for each in self._charges(number, promise, guarantees)
        ]

        def noted(page: Page, last: Line) -> Line:
            if page.in_force() != list(promises):
                raise _RenewedMeanwhile
            before = None if again else page.marked(mark)
            if before is not None:
                raise self._charged_before(page, mark, before)
            for each in charged:
                accounts.charge(page, promises[each.promise], each)
            released = [guarantee.to_dict() for guarantee in guarantees]
            listed = [each.to_dict() for each in charged]
            more = {"mark": mark} if mark else {}
            line = Line.after(last, _now(), "release", releases=released, charged=listed, **more)
            if mark:
                page.set_mark(mark, line.number)
            return line

        try:
            return self._append(noted, kept=kept)
        except (_RenewedMeanwhile, TakenError):
            return self._charged_in_a_line(guarantees, mark, again=again, kept=kept)
        except DoesNotFitError as error:
            told = refusal(self.name, promises[error.charged.promise], error, self.entries)
            raise RefusedError(told) from None

    def add(self, promise: LastingPromise) -> Entry:
        """Add a promise to a ledger that has charged nothing yet.

        Returns:
            The line of the promise.

        Raises:
            ParameterError: if something was charged: it would not be counted.
            DataError: if the ledger cannot be written.
        """
        promise = _validate.instance(LastingPromise, promise=promise)
        _check_users(self._user, promise.plan)

        def noted(page: Page, last: Line) -> Line:
            # As long as nothing was charged, every line but the first is a promise.
            if last.values.get("kind") == "release" or len(page.in_force()) < last.number:
                raise ParameterError(
                    "promise must be added before anything is charged, because it would not "
                    "count that; renew a promise, or create another ledger, which adds its "
                    "promises to these."
                )
            return _promised(page, last, promise)

        return self._entry(self._append(noted))

    def renew(self, number: int, promise: LastingPromise) -> Entry:
        """Let a promise take the place of an earlier one, whose caps then count as used up.

        Args:
            number: the line of the earlier promise.
            promise: the promise for what is released from now on, to the same units.

        Returns:
            The line of the new promise; :meth:`LastingPromise.together` says what both promise.

        Raises:
            ParameterError: if the earlier promise is not in force, or protects other units.
            DataError: if the ledger cannot be written.
        """
        earlier = self._in_force(number)
        promise = _validate.instance(LastingPromise, promise=promise)
        _check_users(self._user, promise.plan)
        same = ("level", "partition", "window", "relation")
        if any(getattr(earlier, name) != getattr(promise, name) for name in same):
            raise ParameterError(
                "promise must protect the same units as the one that it renews; for other "
                "units create another ledger, which adds its promises to these."
            )

        def noted(page: Page, last: Line) -> Line:
            if number not in page.in_force():
                raise ParameterError(
                    f"number = {number} was renewed in the meantime; check the ledger."
                )
            return _promised(page, last, promise, renews=number)

        return self._entry(self._append(noted))

    def _append(self, noted: Callable[[Page, Line], Line], *, kept: bool = True) -> Line:
        """Append a line durably, after the last one was checked; or take it back."""
        try:
            with self._store.writing() as page:
                self._check_format(page)
                last = self._last(page)
                line = noted(page, last)
                page.append(line)
                if not kept:
                    raise _TakenBack
        except _TakenBack:
            return line
        self._seen = line
        return line

    def _last(self, page: Page) -> Line:
        """Return the last line, which must be what was written, and not before what was seen."""
        last, seen = page.last(), page.line(self._seen.number)
        if last is None or seen is None or seen.hash != self._seen.hash:
            raise self._older()
        last.check(last.number)
        return last

    def _older(self) -> DataError:
        return DataError(
            f"{self._store.name!r} lacks lines that were seen before: it was replaced by an "
            "older copy; treat every promise in it as fully spent."
        )

    def _charges(
        self, number: int, promise: LastingPromise, guarantees: Iterable[Guarantee]
    ) -> list[Charged]:
        """Return what releases take of a promise: its plan first, then the caps."""
        taken = set[int]()
        if promise.plan:
            with self._store.reading() as page:
                taken = page.taken(number)
        planned, others = plans.taken_out(promise.plan, guarantees, taken)
        free = [
            Charged(number, Price(), promise.reach(guarantee.scope), place)
            for place, guarantee in planned.items()
        ]
        return free + [
            self._charged(number, promise, each, meeting)
            for each in _composed(others)
            for meeting in promise.meetings(each.scope)
        ]

    def _charged(
        self, number: int, promise: LastingPromise, guarantee: Guarantee, meeting: Meeting
    ) -> Charged:
        """Return what a release takes of a promise, and of which accounts."""
        region, room = promise.reach(guarantee.scope), None
        if promise.caps.pure > 0:
            # Where the promise keeps pure ε, the choice between prices depends on what is left.
            room = self._spent(number, promise, region).rest_of(promise.caps)
        price = promise.price(guarantee, room, meeting)
        return Charged(number, price, region, meeting=meeting)

    # ------------------------------------------------------------------------------ reading

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All lines, in their order."""
        with self._store.reading() as page:
            return tuple(map(self._entry, page.lines()))

    @property
    def promises(self) -> dict[int, LastingPromise]:
        """The promises in force, by the numbers of their lines."""
        with self._store.reading() as page:
            return {number: self._promise(page, number) for number in page.in_force()}

    def renewed_with(self, number: int) -> str:
        """Say what a promise and all those that it renews promise together; empty if it renews none.

        Args:
            number: the line of the promise.

        Raises:
            ParameterError: if there is no such promise.
        """
        earlier = sorted(set(self._chain(number)) - {number})
        if not earlier:
            return ""
        epsilon, delta = self.promised(number)
        return (
            f"renews line {' and '.join(map(str, earlier))}; together they promise "
            f"ε = {rounded_up(epsilon)} at δ = {powers(delta)}."
        )

    def promised(self, number: int) -> tuple[float, float]:
        """Return ε and δ of a promise together with all promises that it renews.

        Args:
            number: the line of the promise.

        Raises:
            ParameterError: if there is no such promise.
        """
        latest, *earlier = self._chain(number).values()
        if not earlier:
            return latest.epsilon, latest.delta
        delta = sum(one.delta for one in (latest, *earlier))
        return latest.together(*earlier).epsilon(delta), delta

    def left(self, number: int, region: Region = EVERYTHING) -> float:
        """Return the share of a promise that is left; a note, not a promise.

        Args:
            number: the line of the promise.
            region: the region of units that are asked about, of which the fullest account counts.

        Raises:
            ParameterError: if no such promise is in force.
        """
        promise = self._in_force(number)
        region = _validate.instance(Region, region=region)
        return max(1.0 - self._spent(number, promise, promise.reach(region)).share, 0.0)

    def left_in_words(self, number: int) -> str:
        """Say how much ε of a promise is used, which part of it is scarce, and what would fit; a note.

        Args:
            number: the line of the promise.

        Raises:
            ParameterError: if no such promise is in force.
        """
        promise = self._in_force(number)
        return left_in_words(promise, self._spent(number, promise, promise.reach(EVERYTHING)))

    def fullest(self, number: int) -> Region:
        """Return the region of the units of which least is left, the first one of several; a note.

        Args:
            number: the line of the promise.

        Raises:
            ParameterError: if no such promise is in force.
        """
        promise = self._in_force(number)
        with self._store.reading() as page:
            return accounts.fullest(page, promise, number)

    def would_take(self, number: int, *guarantees: Guarantee) -> tuple[Charged, ...]:
        """Return what releases would take of a promise if they were charged now; a note.

        Args:
            number: the line of the promise.
            guarantees: what each release promises.

        Raises:
            ParameterError: if no such promise is in force, or nothing bounds what a unit adds.
        """
        return tuple(self._charges(number, self._in_force(number), guarantees))

    def holds(self, receipt: Receipt) -> bool:
        """Return whether a release was charged in a line of this ledger.

        Args:
            receipt: what the release carries of its line.

        Raises:
            DataError: if the receipt is of this ledger, and the line is not there.
        """
        receipt = _validate.instance(Receipt, receipt=receipt)
        if receipt.ledger != self.id:
            return False
        with self._store.reading() as page:
            line = page.line(receipt.number)
        if line is None or line.hash != receipt.hash:
            raise self._older()
        return True

    def verify(self) -> Receipt:
        """Check every line, and that the accounts are what the lines make them; return the last.

        Raises:
            DataError: if the chain breaks, with the number of the line, or the accounts differ.
        """
        with self._store.reading() as page:
            _, last = self._checked(page, None)
            with memory_page() as anew:
                accounts.made_again(anew, page.lines())
                if _kept(anew) != _kept(page):
                    raise DataError(
                        f"the accounts of {self._store.name!r} do not match its lines: the "
                        "file was changed; the lines themselves are intact."
                    )
        return self._entry(last).receipt

    def _charged_before(self, page: Page, mark: str, number: int) -> RefusedError:
        line = page.line(number)
        seeded = "" if line is None else seeds_in_words([self._entry(line)])
        said = (
            f"{mark!r} was charged before, in line {number:,} of the ledger, whether or not "
            "it was published; pass again=True (--again) to publish again, which is charged "
            "again."
        )
        return RefusedError(f"{said} {seeded}".rstrip(), line=number)

    def _entry(self, line: Line) -> Entry:
        return Entry(self.id, self.name, line)

    def _spent(self, number: int, promise: LastingPromise, region: Region) -> Units:
        with self._store.reading() as page:
            return accounts.spent(page, promise, number, region)

    def _in_force(self, number: int) -> LastingPromise:
        """Return the promise of a line, which must be in force."""
        promise = self.promises.get(number) if isinstance(number, int) else None
        if promise is None:
            raise ParameterError(
                f"number must be the line of a promise in force, not {_validate.describe(number)}."
            )
        return promise

    def _chain(self, number: int) -> dict[int, LastingPromise]:
        """Return a promise and those that it renews, the latest first, by their lines' numbers."""
        chain: dict[int, LastingPromise] = {}
        renews: Any = _validate.integer(minimum=0, number=number)
        with self._store.reading() as page:
            while renews is not None:
                line = page.line(renews)
                if line is None or "promise" not in line.values:
                    raise ParameterError(
                        f"number must be the line of a promise, not {_validate.describe(number)}.",
                        name="number",
                    )
                chain[renews] = self._promise(page, renews)
                renews = line.optional("renews", int)
        return chain

    def _promise(self, page: Page, number: int) -> LastingPromise:
        """Return the promise of a line, which is read once: lines do not change."""
        if number not in self._known:
            line = page.line(number)
            if line is None:
                raise DataError(f"line {number:,} of the ledger is missing: the file was changed.")
            line.check(number)
            self._known[number] = LastingPromise.from_dict(line.values.get("promise"))
        return self._known[number]

    def __reduce__(self) -> NoReturn:
        raise ParameterError(
            "a ledger cannot be copied to another process; open it there with "
            "dg.Ledger(place), or start workers while it is open, which share it."
        )

    def __repr__(self) -> str:
        return f"Ledger({self._store.name!r}: {self.name}, {self._seen.number:,} lines seen)"


def _check_users(user: str, guarantees: Iterable[Guarantee]) -> None:
    """Raise unless releases distinguish users as the ledger does, where both say how."""
    for guarantee in guarantees:
        if user and guarantee.user and guarantee.user != user:
            raise ParameterError(
                f"the release identifies users by {guarantee.user!r}, but the ledger by "
                f"{user!r}; if they are the same, rename the column, or pass users as a "
                "pandas Series of that name."
            )


def _promised(page: Page, last: Line, promise: LastingPromise, renews: int | None = None) -> Line:
    """Put a promise in force, and return its line."""
    noted = {} if renews is None else {"renews": renews}
    line = Line.after(last, _now(), "promise", promise=promise.to_dict(), **noted)
    accounts.put_in_force(page, line.number, renews)
    return line


def _kept(page: Page) -> tuple[object, ...]:
    """Return the accounts, which planned releases were made, and which lines have marks."""
    return page.accounts(), page.all_taken(), page.all_marks()


def _composed(guarantees: Iterable[Guarantee]) -> list[Guarantee]:
    """Compose the guarantees that are about the same units in the same region."""
    groups: dict[Any, Guarantee] = {}
    for one in guarantees:
        about = plans.about(one)
        groups[about] = groups[about] + one if about in groups else one
    return list(groups.values())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
