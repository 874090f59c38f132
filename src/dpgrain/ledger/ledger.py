"""``dg.Ledger``: a durable record of releases about some people, charged before data are read."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NoReturn

from dpgrain import _validate
from dpgrain._files import output_folders
from dpgrain._formatting import percent
from dpgrain._report_mixins import LedgerReportMixin
from dpgrain.errors import AccessError, DataError, ParameterError, RefusedError
from dpgrain.ledger import accounts, move
from dpgrain.ledger.accounts import AlreadyReleasedError, BudgetExceededError, Charged
from dpgrain.ledger.entries import LedgerEntry
from dpgrain.ledger.lasting_promise import LastingPromise, scope_key, split_planned
from dpgrain.ledger.lines import AFTER_DAMAGE, StoredLine, check_chain
from dpgrain.ledger.price_units import Units
from dpgrain.ledger.renewals import RenewedPromise
from dpgrain.ledger.stores import store_at
from dpgrain.ledger.stores.sqlite_store import memory_transaction
from dpgrain.ledger.stores.store_protocol import FORMAT, MOVED, Transaction
from dpgrain.ledger.window import Meeting
from dpgrain.publishing import process
from dpgrain.publishing.budget import open_budget
from dpgrain.publishing.guarantee import Guarantee, check_guarantee
from dpgrain.publishing.prices import Price
from dpgrain.publishing.receipt import Receipt, recorded
from dpgrain.publishing.risk import Risk
from dpgrain.scope.regions import EVERYTHING, Region
from dpgrain.words.ledger_text import TOO_FULL, refusal_text, remaining_text, seed_note

# Version of the format of lines.
_LANGUAGE = 1
# Digits of the hash of a line.
_DIGITS = 64


class _RolledBack(Exception):  # noqa: N818 - not an error: a dry run writes nothing
    """End of a dry run: the transaction is rolled back."""


class _PromiseRenewed(Exception):  # noqa: N818 - not an error: the charge is repeated
    """A promise was renewed after prices were computed for it; the charge is repeated."""


class Ledger(LedgerReportMixin):
    """A durable record of releases, which refuses a release that would break one of its promises.

    Args:
        place: the file, the address of a PostgreSQL database (``postgresql://…``), or ``env:NAME``
            for the environment variable with one of them.
        expected: a hash that the ledger must contain, such as the hash of the last receipt you
            know. An older copy of the file does not contain it.

    Raises:
        DataError: if there is no ledger, it is damaged, a later version wrote it, or it does not
            contain the expected hash.

    Inside ``with``, every release, fit and shuffled sum is charged to every promise of the ledger,
    in this process and in processes that it forks or starts (they find the ledger through the
    environment variable ``DPGRAIN_LEDGER``). The charge is on the disk before anything is read, and
    counts as a release whatever happens next. A budget inside the ledger is a second, narrower
    limit. Anyone who may read the releases may read the lines, because they contain no data.

    Formal guarantee: each promise holds for everything charged to the ledger, for adaptively chosen
    releases. This assumes that all releases about these people are charged to this ledger, that
    each person has one id, and that the file is never replaced by an older copy. Source:
    docs/theory, "Ledgers".

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
    >>> print(*str(ledger).splitlines()[1:])  # doctest: +NORMALIZE_WHITESPACE
    Promise on line 1: ε = 1, δ = 10⁻⁶ per user, for records of any time (zero_out).
    At least 76.4% remains.
    """

    def __init__(self, place: str | Path, *, expected: str | None = None) -> None:
        self._store = store_at(place)
        if expected is not None and not (isinstance(expected, str) and len(expected) == _DIGITS):
            raise ParameterError(
                f"expected must be a hash of {_DIGITS} digits in full or None, not "
                f"{_validate.describe(expected)}.",
                name="expected",
            )
        self._known: dict[int, LastingPromise] = {}
        with self._store.reading() as page:
            result = page.format()
        if result is not None and result < FORMAT:
            self._rebuild_accounts()
        with self._store.reading() as page:
            self._check_format(page)
            first, self._seen = self._checked(page, expected)
        self.id, self.name = str(first.field("id")), str(first.field("name"))
        self._user = str(first.field("user"))

    @staticmethod
    def create(
        place: str | Path, *, name: str, promises: Iterable[LastingPromise], user: str = ""
    ) -> Ledger:
        """Create and open a ledger.

        Args:
            place: the file, address or ``env:NAME``, as for :class:`Ledger`.
            name: the name of the people or data set that the ledger covers.
            promises: the promises; each release must fit into all of them.
            user: the user column, if it has the same name in all tables.

        Returns:
            The new ledger.

        Raises:
            ParameterError: if there are no promises, or the place is not empty.
            DataError: if the place cannot be written.
        """
        if not isinstance(name, str) or not name.strip():
            raise ParameterError(f"name must be text, not {_validate.describe(name)}.")
        # A 0-dimensional array is an Iterable, but cannot be iterated.
        is_listed = isinstance(promises, Iterable) and getattr(promises, "ndim", 1) > 0
        promise_list = list(promises) if is_listed else []
        listed = [one for one in promise_list if isinstance(one, LastingPromise)]
        if not listed or len(listed) < len(promise_list):
            raise ParameterError(
                "promises must be a list of LastingPromise, such as "
                "[LastingPromise.of(Element('day'), 1.0, 1e-6)]."
            )
        for promise in listed:
            _check_users(user, promise.plan)
        noted: dict[str, Any] = {"language": _LANGUAGE, "id": secrets.token_hex(16), "name": name}
        with store_at(place).creating() as page:
            page.set_format(FORMAT)
            last = StoredLine.after(None, _now(), "ledger", **noted, user=user)
            page.append(last)
            for promise in listed:
                last = _activate(page, last, promise)
                page.append(last)
        return Ledger(place)

    # ------------------------------------------------------------------------------ opening

    def _check_format(self, page: Transaction) -> None:
        result = page.format()
        if result is None:
            raise AccessError(f"{self._store.name!r} contains no ledger; create a new one.")
        if result > FORMAT and result != MOVED:
            raise self._too_new()

    def _too_new(self) -> DataError:
        return DataError(
            f"{self._store.name!r} was written by a later version of dpgrain; use that "
            "version or a later one."
        )

    def _checked(self, page: Transaction, expected: str | None) -> tuple[StoredLine, StoredLine]:
        """Check the hash chain, and return the first and the last line."""
        first = last = None
        matches = expected is None
        for last in check_chain(page.lines()):
            first = first or last
            matches = matches or last.hash == expected
        if first is None or last is None:
            raise AccessError(
                f"{self._store.name!r} contains no lines; if a move to it was interrupted, repeat the "
                f"move: dpgrain ledger import OLD {self._store.name}; otherwise it is damaged: "
                f"{AFTER_DAMAGE}."
            )
        if first.values.get("kind") != "ledger":
            raise AccessError(f"{self._store.name!r} contains no ledger; create a new one.")
        if first.values.get("language") != _LANGUAGE:
            raise self._too_new()
        if not matches:
            raise DataError(
                "expected must be a hash that the ledger contains, not "
                f"{_validate.describe(expected)}: the file was replaced by an older copy or "
                "another ledger."
            )
        return first, last

    def _rebuild_accounts(self) -> None:
        """Rebuild the accounts in the format of this version; lines are unchanged."""
        try:
            with self._store.writing() as page:
                known = page.format()
                if known is None or known >= FORMAT:
                    # Another process has converted the ledger since, and may have moved it.
                    return
                page.clear_accounts()
                accounts.rebuild(page, page.lines())
                page.set_format(FORMAT)
        except BudgetExceededError as error:
            raise DataError(
                f"{self._store.name!r} has charged more than the promise of line "
                f"{error.charged.promise:,} allows, because earlier versions treated dates in "
                "text as separate users; treat that promise as broken, and create a new "
                "ledger."
            ) from error

    # ------------------------------------------------------------------------------ charging

    @property
    def place(self) -> str:
        """File or database address, as another process can open it."""
        return self._store.place

    def __enter__(self) -> Ledger:
        if open_budget() is not None:
            raise ParameterError(
                "a budget is open; open the ledger first, and the budget inside it."
            )
        process.enter(self)
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        process.leave(self)
        self._store.close()
        return False

    def close(self) -> None:
        """Close the connection to the file or database; it is reopened on the next access."""
        self._store.close()

    def charge(self, *guarantees: Guarantee, mark: str = "", again: bool = True) -> Receipt:
        """Charge releases before they are made; on return, the charge is on the disk.

        Args:
            guarantees: the guarantee of each release. Several are charged together or not at all.
                Releases that read the same region for the same units are composed exactly, so all
                must be fixed before the first one is made. A release in the plan of a promise costs
                nothing of its caps.
            mark: a text to find the line in :attr:`entries`.
            again: False refuses a mark that any line already has.

        Returns:
            The receipt of all these releases.

        Raises:
            RefusedError: if a promise has no room for the releases, or the mark is refused; nothing
                is charged.
            DataError: if the ledger cannot be written, or was changed.
        """
        with recorded(self._is_written) as record:
            line = self._charge_line(guarantees, mark, again=again, record=record)
        return self._entry(line).receipt

    def rehearse(self, *guarantees: Guarantee, mark: str = "", again: bool = True) -> None:
        """Raise the errors that :meth:`charge` would raise now, without a charge.

        Args:
            guarantees: the guarantee of each release.
            mark: the mark of the line.
            again: False refuses a mark that any line already has.

        Raises:
            RefusedError: if a promise has no room for the releases, or the mark is refused.
            DataError: if the ledger cannot be written, or was changed.
        """
        self._charge_line(guarantees, mark, again=again, record=None)

    def _charge_line(
        self,
        guarantees: tuple[Guarantee, ...],
        mark: str,
        *,
        again: bool,
        record: Callable[[Receipt], None] | None,
    ) -> StoredLine:
        """Return the line that charges releases; ``record`` gets its receipt, None writes nothing."""
        if not guarantees:
            raise ParameterError("guarantees must contain at least one guarantee.")
        for guarantee in guarantees:
            check_guarantee(guarantee)
        again = _validate.boolean(again=again)
        if not isinstance(mark, str):
            raise ParameterError(f"mark must be text, not {_validate.describe(mark)}.", name="mark")
        _check_users(self._user, guarantees)
        folders = output_folders()
        # Computing prices is slow, so it precedes the transaction that blocks other processes.
        promises = self.promises
        charged = [
            each
            for number, promise in promises.items()
            for each in self._charges(number, promise, guarantees)
        ]

        def noted(page: Transaction, last: StoredLine) -> StoredLine:
            if page.in_force() != list(promises):
                raise _PromiseRenewed
            before = None if again else page.marked(mark)
            try:
                for each in charged:
                    accounts.charge(page, promises[each.promise], each)
            except BudgetExceededError:
                if before is None:
                    raise
                raise self._already_charged(page, mark, before, full=True) from None
            if before is not None:
                raise self._already_charged(page, mark, before, full=False)
            released = [guarantee.to_dict() for guarantee in guarantees]
            listed = [each.to_dict() for each in charged]
            more = {"mark": mark, "folders": folders} if mark else {}
            line = StoredLine.after(
                last,
                _now(),
                "release",
                releases=released,
                charged=listed,
                **{name: value for name, value in more.items() if value},
            )
            if mark:
                page.set_mark(mark, line.number)
            if record is not None:
                record(self._entry(line).receipt)
            return line

        try:
            return self._append(noted, durable=record is not None)
        except (_PromiseRenewed, AlreadyReleasedError):
            return self._charge_line(guarantees, mark, again=again, record=record)
        except BudgetExceededError as error:
            text = refusal_text(
                self.name,
                promises[error.charged.promise],
                error,
                self.entries,
                without_delta=any(each.delta == 0 for each in guarantees),
            )
            raise RefusedError(text, spent=True) from None

    def add(self, promise: LastingPromise) -> LedgerEntry:
        """Add a promise to a ledger without charges.

        Args:
            promise: the promise.

        Returns:
            The line of the promise.

        Raises:
            ParameterError: if anything was charged, because the new promise would not count it.
            DataError: if the ledger cannot be written.
        """
        promise = _validate.instance(LastingPromise, promise=promise)
        _check_users(self._user, promise.plan)

        def noted(page: Transaction, last: StoredLine) -> StoredLine:
            # A renewal counts the renewed promise as spent.
            if any("charged" in each.values or "renews" in each.values for each in page.lines()):
                raise ParameterError(
                    "promise must be added before anything is charged, because it would not "
                    "count that; renew a promise, or create another ledger, which adds its "
                    "promises to these."
                )
            return _activate(page, last, promise)

        return self._entry(self._append(noted))

    def renew(self, number: int, promise: LastingPromise) -> LedgerEntry:
        """Replace a promise by a new one; the caps of the old one count as fully spent.

        Args:
            number: the line of the earlier promise.
            promise: the promise for later releases, to the same units.

        Returns:
            The line of the new promise; :meth:`LastingPromise.together` returns the total of both.

        Raises:
            ParameterError: if the earlier promise is not in force, or protects other units.
            DataError: if the ledger cannot be written.

        Formal guarantee: the caps of both promises add if those of the renewal were not chosen from
        results; otherwise the δ of all possible choices add. Source: docs/theory, "Ledgers".
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

        def noted(page: Transaction, last: StoredLine) -> StoredLine:
            if number not in page.in_force():
                raise ParameterError(
                    f"number = {number} was renewed in the meantime; check the ledger."
                )
            return _activate(page, last, promise, renews=number)

        return self._entry(self._append(noted))

    def move(self, place: str | Path) -> Ledger:
        """Move the ledger to an empty file or database, such as from a file to PostgreSQL.

        Args:
            place: the new file, address or ``env:NAME``, as for :class:`Ledger`.

        Returns:
            The ledger at the new place, with the same id, lines and receipts.

        Raises:
            ParameterError: if the new place is not empty.
            DataError: if a place cannot be written, or the ledger was moved to another place.

        A final line closes this ledger before the new one opens, so at no moment both accept
        charges. After an interruption, call it again with the same place. Do not delete the old
        file before: an older copy of it would accept charges. Source: docs/theory, "Ledgers".

        >>> import tempfile
        >>> from dpgrain import User
        >>> folder = Path(tempfile.mkdtemp())
        >>> made = Ledger.create(
        ...     folder / "visits.ledger", name="visits",
        ...     promises=[LastingPromise.of(User(), 1.0, 1e-6)])
        >>> moved = made.move(folder / "people.ledger")
        >>> moved.id == made.id, made.moved_to == str(folder / "people.ledger")
        (True, True)
        """
        target = store_at(place)
        if self.moved_to is None:
            token = secrets.token_hex(16)
            move.reserve(target, token)
            self._append(
                lambda page, last: move.closing_line(page, last, _now(), target.name, token)
            )
        move.copy(self._store, target, _now())
        return Ledger(place)

    @property
    def moved_to(self) -> str | None:
        """Place to which the ledger was moved; None if it was not."""
        with self._store.reading() as page:
            return None if page.format() != MOVED else str(self._last(page).field("to"))

    def _append(
        self, noted: Callable[[Transaction, StoredLine], StoredLine], *, durable: bool = True
    ) -> StoredLine:
        """Append a line durably after checking the last one; roll back unless ``durable``."""
        try:
            with self._store.writing() as page:
                self._check_format(page)
                last = self._last(page)
                if page.format() == MOVED:
                    raise self._moved(last)
                line = noted(page, last)
                page.append(line)
                if not durable:
                    raise _RolledBack
        except _RolledBack:
            return line
        self._seen = line
        return line

    def _moved(self, last: StoredLine) -> AccessError:
        return AccessError(
            f"{self._store.name!r} was moved to {last.field('to')!r}; use that ledger, because this "
            "one accepts no charges; if none is there yet, repeat the move (dpgrain ledger import)."
        )

    def _last(self, page: Transaction) -> StoredLine:
        """Return the last line; raise if it was changed, or precedes a line seen before."""
        last, seen = page.last(), page.line(self._seen.number)
        if last is None or seen is None or seen.hash != self._seen.hash:
            raise self._replaced_by_older()
        last.check(last.number)
        return last

    def _replaced_by_older(self) -> DataError:
        return DataError(
            f"{self._store.name!r} lacks lines seen earlier: it was replaced by an "
            "older copy; treat every promise in it as fully spent."
        )

    def _charges(
        self, number: int, promise: LastingPromise, guarantees: Iterable[Guarantee]
    ) -> list[Charged]:
        """Return the charges of releases to a promise, planned releases first."""
        taken = set[int]()
        if promise.plan:
            with self._store.reading() as page:
                taken = page.used_plan(number)
        planned, others = split_planned(promise.plan, guarantees, taken)
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
        """Return the charge of a release to a promise."""
        region, room = promise.reach(guarantee.scope), None
        if promise.caps.pure > 0:
            # With reserved pure ε, the choice between prices depends on the remaining budget.
            room = self._spent(number, promise, region).remaining(promise.caps)
        price = promise.price(guarantee, room, meeting)
        return Charged(number, price, region, meeting=meeting)

    # ------------------------------------------------------------------------------ reading

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """All lines in order."""
        with self._store.reading() as page:
            return tuple(map(self._entry, page.lines()))

    @property
    def promises(self) -> dict[int, LastingPromise]:
        """Promises in force, by line."""
        with self._store.reading() as page:
            return {number: self._promise(page, number) for number in page.in_force()}

    def renewal_text(self, number: int) -> str:
        """Describe the total of a promise and all that it renews; empty if it renews none.

        Args:
            number: the line of the promise.

        Raises:
            ParameterError: if there is no such promise.
        """
        return self.total(number).renewal_text

    def risk(
        self,
        number: int,
        *,
        so_far: bool = False,
        false_alarms: float = 0.05,
        prior: float = 0.5,
    ) -> Risk:
        """Return limits on attacks on one unit of a promise, with all promises that it renews.

        Args:
            number: the line of the promise.
            so_far: True for the releases until now, as if all had been fixed in advance; by default,
                all past and future releases charged to these promises.
            false_alarms: the probability of a false alarm of the attacker's test, in (0, 1).
            prior: the probability of the unit before the releases, in (0, 1).

        Raises:
            ParameterError: if there is no such promise, or a value is out of range.

        Formal guarantee: the limits follow from the caps of all these promises, which dominate
        everything charged to them if no renewal's caps were chosen from results. Source:
        docs/theory, "Risk".
        """
        return self.total(number).risk(so_far=so_far, false_alarms=false_alarms, prior=prior)

    def total(self, number: int) -> RenewedPromise:
        """Return a promise with all that it renews, and what was spent of them.

        Args:
            number: the line of the promise.

        Raises:
            ParameterError: if there is no such promise.
        """
        chain = self._chain(number)
        spent = {line: self._spent(line, one, one.reach(EVERYTHING)) for line, one in chain.items()}
        return RenewedPromise(chain, spent, private=all(entry.private for entry in self.entries))

    def left(self, number: int, region: Region = EVERYTHING) -> float:
        """Return the remaining share of a promise, for information only.

        Args:
            number: the line of the promise.
            region: the region of the units; the fullest account in it counts.

        Raises:
            ParameterError: if no such promise is in force.
        """
        promise = self._in_force(number)
        region = _validate.instance(Region, region=region)
        return max(1.0 - self._spent(number, promise, promise.reach(region)).share, 0.0)

    def remaining_text(self, number: int) -> str:
        """Describe the spent ε of a promise, its other parts, and a release that would fit.

        Args:
            number: the line of the promise.

        Raises:
            ParameterError: if no such promise is in force.
        """
        self._in_force(number)
        return remaining_text(self.total(number))

    def fullest(self, number: int) -> Region:
        """Return the region of the first account with the smallest remaining budget.

        Args:
            number: the line of the promise.

        Raises:
            ParameterError: if no such promise is in force.
        """
        promise = self._in_force(number)
        with self._store.reading() as page:
            return accounts.fullest(page, promise, number)

    def projected_charges(self, number: int, *guarantees: Guarantee) -> tuple[Charged, ...]:
        """Return what releases would charge to a promise now, for information only.

        Args:
            number: the line of the promise.
            guarantees: the guarantee of each release.

        Raises:
            ParameterError: if no such promise is in force, or the contribution of a unit is
                unbounded.
        """
        return tuple(self._charges(number, self._in_force(number), guarantees))

    def projected_share(self, number: int, *guarantees: Guarantee) -> float:
        """Return the largest share of a promise that releases would use of one unit, at most.

        Args:
            number: the line of the promise.
            guarantees: the guarantee of each release.

        Raises:
            ParameterError: as for :meth:`projected_charges`.
        """
        caps, shares = self._in_force(number).caps, dict[Region, dict[Meeting, float]]()
        for charged in self.projected_charges(number, *guarantees):
            of_region = shares.setdefault(charged.region, {})
            share = charged.price.share_of(caps)
            of_region[charged.meeting] = of_region.get(charged.meeting, 0.0) + share
        # A window contains all of a region or a part of it, so only one of them is charged.
        return sum(max(of_region.values()) for of_region in shares.values())

    def contains(self, receipt: Receipt) -> bool:
        """Return whether this ledger charged the release of a receipt.

        Args:
            receipt: the receipt of a release.

        Raises:
            DataError: if the receipt names this ledger, but the line is missing.
        """
        receipt = _validate.instance(Receipt, receipt=receipt)
        if receipt.ledger != self.id:
            return False
        if not self._is_written(receipt):
            raise self._replaced_by_older()
        return True

    def _is_written(self, receipt: Receipt) -> bool:
        """Return whether the line of a receipt of this ledger is in it."""
        with self._store.reading() as page:
            line = page.line(receipt.number)
        return line is not None and line.hash == receipt.hash

    def verify(self) -> Receipt:
        """Check the hash chain and the accounts, and return the receipt of the last line.

        Raises:
            DataError: if the chain breaks, with the number of the line, or the accounts differ.
        """
        with self._store.reading() as page:
            _, last = self._checked(page, None)
            with memory_transaction() as anew:
                accounts.rebuild(anew, page.lines())
                if _account_state(anew) != _account_state(page):
                    raise DataError(
                        f"the accounts of {self._store.name!r} do not match its lines: the "
                        "file was changed; the lines themselves are intact."
                    )
        return self._entry(last).receipt

    def _already_charged(
        self, page: Transaction, mark: str, number: int, *, full: bool
    ) -> RefusedError:
        line = page.line(number)
        seeded = "" if line is None else seed_note([self._entry(line)])
        folders = () if line is None else tuple(map(str, line.list_field("folders")))
        into = f" by a run into {' and '.join(map(repr, folders))}," if folders else ""
        remedy = (
            f"to publish it again, {TOO_FULL}"
            if full
            else "pass again=True (--again) to publish it again at the same cost"
        )
        text = (
            f"{mark!r} was charged before, in line {number:,} of the ledger,{into} whether or not "
            f"it was published; {remedy}."
        )
        return RefusedError(f"{text} {seeded}".rstrip(), line=number, folders=folders)

    def _entry(self, line: StoredLine) -> LedgerEntry:
        return LedgerEntry(self.id, self.name, line)

    def _spent(self, number: int, promise: LastingPromise, region: Region) -> Units:
        with self._store.reading() as page:
            return accounts.spent(page, promise, number, region)

    def _in_force(self, number: int) -> LastingPromise:
        """Return the promise of a line; raise if it is not in force."""
        promise = self.promises.get(number) if isinstance(number, int) else None
        if promise is None:
            raise ParameterError(
                f"number must be the line of a promise in force, not {_validate.describe(number)}."
            )
        return promise

    def _chain(self, number: int) -> dict[int, LastingPromise]:
        """Return a promise and those that it renews, latest first, by line."""
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
                renews = line.optional_field("renews", int)
        return chain

    def _promise(self, page: Transaction, number: int) -> LastingPromise:
        """Return the promise of a line, cached because lines do not change."""
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
        return f"Ledger({self._store.name!r}, name={self.name!r})"

    def __str__(self) -> str:
        promises = (
            f"Promise on line {number}: {promise}. At least {percent(left, up=False)} remains."
            f"{' It ' + renewal if renewal else ''}"
            for number, promise in self.promises.items()
            for left, renewal in ((self.left(number), self.renewal_text(number)),)
        )
        return "\n".join([f"Ledger {self.name!r} in {self._store.name!r}", *promises])


def _check_users(user: str, guarantees: Iterable[Guarantee]) -> None:
    """Raise if a release identifies users by another column than the ledger."""
    for guarantee in guarantees:
        if user and guarantee.user and guarantee.user != user:
            raise ParameterError(
                f"the release identifies users by {guarantee.user!r}, but the ledger by "
                f"{user!r}; if they are the same, rename the column, or pass users as a "
                "pandas Series of that name."
            )


def _activate(
    page: Transaction, last: StoredLine, promise: LastingPromise, renews: int | None = None
) -> StoredLine:
    """Put a promise in force, and return its line."""
    noted = {} if renews is None else {"renews": renews}
    line = StoredLine.after(last, _now(), "promise", promise=promise.to_dict(), **noted)
    accounts.activate(page, line.number, renews)
    return line


def _account_state(page: Transaction) -> tuple[object, ...]:
    """Return the accounts, the published planned releases and the marks."""
    return page.accounts(), page.all_used_plans(), page.all_marks()


def _composed(guarantees: Iterable[Guarantee]) -> list[Guarantee]:
    """Compose the guarantees that affect the same units in the same region."""
    groups: dict[Any, Guarantee] = {}
    for one in guarantees:
        about = scope_key(one)
        groups[about] = groups[about] + one if about in groups else one
    return list(groups.values())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
