"""``dg.budget``: several releases under one promise; one that would break it is refused beforehand."""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from dpgrain import _validate
from dpgrain._formatting import percent, powers, rounded_down
from dpgrain.accounting import Loss, gaussian_epsilon
from dpgrain.errors import ParameterError, RefusedError
from dpgrain.publishing.caps import Caps, left_of
from dpgrain.publishing.collected import collect
from dpgrain.publishing.guarantee import Guarantee, check_guarantee
from dpgrain.publishing.ledgers import Charging, open_ledger
from dpgrain.publishing.planned import Planned
from dpgrain.publishing.prices import SUMMING, Price, price
from dpgrain.publishing.process import check_maker, check_process, mark_closed, mark_open
from dpgrain.units import PLAIN_UNITS

if TYPE_CHECKING:
    from dpgrain.publishing.query import Query


class Budget:
    """One promise (ε, δ) for all releases while it is open; :func:`budget` makes it.

    Args:
        epsilon: the promised ε of all releases together.
        delta: the promised δ of all releases together.
        pure: the cap E on the ε of releases that are charged as pure ε; by default 0, and all of ε
            where δ = 0.
        leak: the cap D on delta mass; by default a tenth of δ.
        plan: releases that are fixed beforehand, as queries or guarantees, and composed exactly.

    Raises:
        ParameterError: if a value is out of range, or the plan does not fit.

    The promise is in :attr:`caps`; :attr:`guarantee`, :attr:`spent` and :attr:`left` are notes to the
    holder of the budget.

    >>> import pyarrow as pa
    >>> from dpgrain import User, count, read
    >>> visits = read(pa.table({"who": [1, 2, 2]}), user="who")
    >>> with budget(1.0, 1e-6) as whole:
    ...     _ = count(visits, unit=User(), share=0.25)
    >>> whole, round(whole.left, 2), round(whole.guarantee.epsilon(), 2)
    (Budget(epsilon=1, delta=1e-06; spent 25%), 0.75, 0.47)
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        pure: float | None = None,
        leak: float | None = None,
        plan: Iterable[Any] = (),
    ) -> None:
        self._epsilon = _validate.positive(epsilon=epsilon)
        self._delta = _validate.delta(allow_zero=True, delta=delta)
        self._pid = os.getpid()
        if isinstance(plan, str) or not isinstance(plan, Iterable):
            raise ParameterError(
                f"plan must be a list of queries, not {_validate.describe(plan)}.",
                name="plan",
            )
        planned = [planned_guarantee(item) for item in plan]
        self._like = _all_alike(planned)
        self._planned = Counter(guarantee.event for guarantee in planned)
        losses = (_loss(guarantee) for guarantee in planned)
        bag = sum(losses, Loss())
        self._caps = Caps.stated(self.epsilon, self.delta, pure, leak, bag)
        self._guarantee: Guarantee | None = None
        self._spent = Price()
        self._lock = threading.Lock()

    @property
    def epsilon(self) -> float:
        """The promised ε."""
        return self._epsilon

    @property
    def delta(self) -> float:
        """The promised δ."""
        return self._delta

    @property
    def caps(self) -> Caps:
        """The prices within the budget, and its promise, fixed when it was made."""
        return self._caps

    @property
    def guarantee(self) -> Guarantee | None:
        """A note: the guarantee of all releases so far, as if they were fixed beforehand.

        Its ε is stated at the δ of the budget, so that it compares with the promise.
        """
        if self._guarantee is None:
            return None
        return replace(self._guarantee, delta=self._delta)

    @property
    def spent(self) -> Price:
        """A note: the prices taken by the releases so far from the caps."""
        return self._spent

    def __enter__(self) -> Budget:
        with _slot.lock:
            check_process(None)
            check_maker(self._pid)
            if _slot.budget is not None:
                raise ParameterError("a budget is already open; close it before opening another.")
            _slot.budget, _slot.pid, _slot.mark = self, os.getpid(), mark_open()
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        with _slot.lock:
            if _slot.budget is self:
                mark_closed(_slot.mark)
                _slot.budget, _slot.pid = None, None
        return False

    @property
    def left(self) -> float:
        """A note: the largest ``share=`` that a release can certainly have.

        >>> budget(1.0, 1e-6).left
        1.0
        """
        return max(1.0 - self.spent.share_of(self.caps.price), 0.0)

    def charge(
        self,
        guarantee: Guarantee,
        ledger: Charging | None = None,
        share: float | None = None,
        *,
        parts: Sequence[Guarantee] = (),
        mark: str = "",
        again: bool = True,
    ) -> Guarantee:
        """Charge a release that is about to be made, to the ledger as well if there is one.

        Args:
            guarantee: what the release promises.
            ledger: the ledger that is open, if one is.
            share: the part of the budget that the release was asked to take, if it was: its price is
                then that in this part of the caps.
            parts: the guarantees of the releases that it is composed of, where they are several.
            mark: the text by which the line of the ledger can be found.
            again: False where a ledger that has charged this mark before must refuse it.

        Returns:
            The guarantee to publish, with the ledger's receipt.

        Raises:
            RefusedError: if the budget or the ledger would not hold the release; neither is charged
                then.
            ParameterError: if it protects another unit; neither is charged then.
        """
        check_maker(self._pid)
        check_guarantee(guarantee)
        with self._lock:
            together = guarantee if self._guarantee is None else self._guarantee + guarantee
            if self._like is not None:
                # The sum refuses a release that does not protect the same unit of the same users.
                _ = self._like + guarantee
            planned = self._planned[guarantee.event] > 0
            spent = self.spent if planned else self._with(guarantee, share)
            published = _noted(guarantee, ledger, parts, mark, again=again)
            self._planned[guarantee.event] -= planned
            self._spent, self._guarantee = spent, together
        return published

    def _with(self, guarantee: Guarantee, share: float | None) -> Price:
        """Return what would be spent with another release, or refuse it if the caps do not hold it."""
        caps, unit = self.caps.price, PLAIN_UNITS[guarantee.level]
        room = self.spent.rest_of(caps) if share is None else caps.part(share)
        own = price(guarantee.event, guarantee.relation, unit, caps, room)
        together = self.spent + own
        if not self.caps.hold(together):
            raise RefusedError(
                f"the budget ε = {self.epsilon:g}, δ = {powers(self.delta)} has no room for this "
                f"release: {self._why(guarantee, own, room)}."
            )
        return together

    def _why(self, guarantee: Guarantee, own: Price, room: Price) -> str:
        """Say what a release that the budget does not hold needs, and the remedy."""
        caps = self.caps.price
        # Digits are cut off, so that the share that is named fits.
        less = f"share={rounded_down(self.left, 2)}" if self.left > SUMMING else ""
        if math.isfinite(own.leak) and own.leak > room.leak and own.mu <= room.mu:
            left = left_of(room.leak)
            return (
                f"selection by a threshold, or truncated noise, needs δ = {powers(own.leak)}, and "
                f"{left} of the {powers(caps.leak)} reserved for it is left; "
                f"{f'use {less}, or ' if less else ''}open the budget with a larger leak="
            )
        remedies = [*_with_delta(guarantee, room)]
        if less:
            remedies.append(f"request less, such as {less}")
        loss = guarantee.event.loss(1, guarantee.relation, PLAIN_UNITS[guarantee.level])
        if loss.pure > 0 and caps.pure == 0:
            remedies.append(
                "open the budget with pure=, which reserves a part for noise that is not Gaussian"
            )
        remedies.append("open a larger budget")
        return (
            f"it needs {_percent(own.share_of(caps))} of the budget, and "
            f"{percent(self.left, up=False)} is left; {'; or '.join(remedies)}"
        )

    def __reduce__(self) -> NoReturn:
        raise ParameterError(
            "a budget cannot be copied, because charges to one copy would not reach the other."
        )

    def __copy__(self) -> NoReturn:
        self.__reduce__()

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__reduce__()

    def __repr__(self) -> str:
        whole = f"epsilon={self.epsilon:g}, delta={self.delta:g}"
        return f"Budget({whole}; spent {_percent(self.spent.share_of(self.caps.price))})"


def _with_delta(guarantee: Guarantee, room: Price) -> Iterator[str]:
    """Say that noise of the same ε fits at a δ, where a release states none and noise has δ = 0."""
    if guarantee.delta > 0 or min(room.mu, room.leak) == 0:
        return
    epsilon = math.floor(1000 * gaussian_epsilon(room.leak, room.mu)) / 1000
    if epsilon >= _loss(guarantee).pure:
        yield (
            f"also pass delta=, because the budget allows Gaussian noise of ε = {epsilon:g} at δ "
            f"= {left_of(room.leak)}"
        )


def _percent(part: float) -> str:
    if part > 10:
        return "more than all" if math.isfinite(part) else "more than any amount"
    return percent(part)


def _all_alike(planned: list[Guarantee]) -> Guarantee | None:
    """Check that all guarantees compose, and return one of them; None without any."""
    for guarantee in planned[1:]:
        _ = planned[0] + guarantee
    return planned[0] if planned else None


def _loss(guarantee: Guarantee) -> Loss:
    return guarantee.event.loss(1, guarantee.relation, PLAIN_UNITS[guarantee.level])


def _noted(
    guarantee: Guarantee,
    ledger: Charging | None,
    parts: Sequence[Guarantee],
    mark: str,
    *,
    again: bool,
) -> Guarantee:
    """Charge a release to a ledger, if there is one, and return its guarantee with the receipt."""
    if ledger is None:
        return guarantee
    receipt = ledger.charge(*(parts or (guarantee,)), mark=mark, again=again)
    collect(receipt)
    return replace(guarantee, receipts=(*guarantee.receipts, receipt))


class _Slot:
    """The place of the open budget: one for the whole process, so that no thread is outside of it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.budget: Budget | None = None
        self.pid: int | None = None
        self.mark = ""


_slot = _Slot()

# No process is forked while another thread opens or closes a budget: the lock would stay held there.
os.register_at_fork(
    before=lambda: _slot.lock.acquire(),
    after_in_parent=lambda: _slot.lock.release(),
    after_in_child=lambda: _slot.lock.release(),
)


def budget(
    epsilon: float,
    delta: float = 0.0,
    *,
    pure: float | None = None,
    leak: float | None = None,
    plan: Iterable[Query[Any] | Callable[[], Any] | Guarantee] = (),
) -> Budget:
    """Open one budget for several releases on the same people's data.

    Args:
        epsilon: the promised ε of all releases together.
        delta: the promised δ of all releases together.
        pure: the ε that is kept for releases without Gaussian noise, whose ε add up; by default none,
            and all of ε where δ = 0. Without it such a release is charged as Gaussian noise that is
            no better, which is cheaper for many small releases and dearer for a large one.
        leak: the part of δ that is kept as delta mass for names below a threshold and for the tails
            of noise that is not Gaussian; by default a tenth. With 0 Gaussian releases have all of
            δ, and their noise is .5% smaller.
        plan: releases that are fixed beforehand, each as a query (``count.query(…)``, which
            :func:`dpgrain.publish` makes a release of), as a function without arguments that returns
            one, so that noise and mechanism are chosen as inside the budget, or as its guarantee. They
            are composed exactly, which is cheaper, and may then be made in any order, or left out; the
            rest of the budget is for releases that are not planned.

    Raises:
        ParameterError: if a parameter is out of range, or the plan does not fit.

    Every release inside ``with`` is charged before anything is read, whichever thread makes it, and
    refused if the budget would not hold it. All releases must protect the same unit of the same users,
    by the same partition and relation. With ``share=0.5`` a release takes half of the budget, in any
    order; a release with its own ε and δ is charged at its price. A process that is forked or started
    while a budget is open refuses to publish. A process that was started before, or without this one's
    environment, is not seen: it is assumed that none of them publishes about these people (a model of
    :mod:`dpgrain.learn` that is sent to one, as with ``n_jobs=``, is refused there). It is also
    assumed that series and columns of one name are the same users, or the same partition.

    Only functions that give a guarantee are charged. The parts of which other releases are built
    (:mod:`dpgrain.means`, the parties and streams of sums without a curator) are not.

    Formal guarantee: (ε, δ)-DP for everything published inside, however each release was chosen from
    the outcomes of those before: prices (e, m, ℓ) are added up and held against caps that are fixed
    when the budget is made. Source: docs/theory, "Budgets".

    >>> import pyarrow as pa
    >>> from dpgrain import User, count, read
    >>> table = read(pa.table({"who": [1, 2, 2], "page": ["a", "a", "b"]}), user="who")
    >>> with budget(1.0, 1e-6) as b:
    ...     visits = count(table, unit=User(), clip=5.0, share=0.5)
    ...     pages = count(table, by="page", unit=User(), clip=5.0, domain=["a"], share=0.5)
    >>> b
    Budget(epsilon=1, delta=1e-06; spent 100%)
    """
    return Budget(epsilon, delta, pure=pure, leak=leak, plan=plan)


# Releases are asked for that are charged together.
_composed: ContextVar[bool] = ContextVar("composed", default=False)


@contextmanager
def composed() -> Iterator[None]:
    """Ask inside for queries that are charged together with others, and publish nothing.

    Noise and mechanism are chosen as while a budget is open.
    """
    token = _composed.set(True)
    try:
        yield
    finally:
        _composed.reset(token)


def refuse_composed() -> None:
    """Refuse to publish by itself what is asked for to be composed with others.

    Raises:
        ParameterError: inside :func:`composed`.
    """
    if _composed.get():
        raise ParameterError(
            "plan must contain functions that return a query, such as count.query(…), and "
            "publish nothing."
        )


def planned_guarantee(item: Any) -> Guarantee:
    """Return the guarantee of a planned release: stated, or that of a query's plan.

    Args:
        item: a guarantee, a query, or a function without arguments that returns a query.

    Raises:
        ParameterError: if it is neither, or the function publishes.
    """
    if isinstance(item, Guarantee):
        return item
    if callable(item):
        with composed():
            item = item()
    if isinstance(plan := getattr(item, "plan", None), Planned):
        return plan.guarantee
    raise ParameterError(
        "plan must contain queries, functions without arguments that return a query, or "
        f"guarantees, not {type(item).__name__}."
    )


def in_budget() -> bool:
    """Return True while a budget or ledger is open, or releases are asked for that are composed."""
    return _slot.budget is not None or _composed.get() or open_ledger() is not None


def is_open() -> bool:
    """Return True while a budget is open here."""
    return _slot.budget is not None


def open_budget() -> Budget | None:
    """Return the budget that is open, None if none is.

    Raises:
        ParameterError: if a budget is open in another process.
    """
    check_process(_slot.pid)
    return _slot.budget


def charge(
    guarantee: Guarantee,
    budget: Budget | None = None,
    share: float | None = None,
    *,
    parts: Sequence[Guarantee] = (),
    mark: str = "",
    again: bool = True,
) -> Guarantee:
    """Charge a release that is about to be made to the budget and the ledger that are open, if any.

    Args:
        guarantee: what the release promises.
        budget: the budget of which the release takes a share, if it does.
        share: the part of the budget that it takes then.
        parts: the guarantees of the releases that it is composed of, where they are several: a ledger
            charges each region with those that read it.
        mark: the text by which the line of the ledger can be found.
        again: False where a ledger that has charged this mark before must refuse it.

    Returns:
        The guarantee to publish, with the receipt of the ledger.

    Raises:
        RefusedError: if budget or ledger do not hold the release.
        ParameterError: if the budget is closed by now or open in another process.
        DataError: if the ledger cannot be written.
    """
    current = _slot.budget
    check_process(_slot.pid)
    if budget is not None and budget is not current:
        raise ParameterError("the budget of this release's share was closed; publish inside it.")
    check_guarantee(guarantee)
    ledger = open_ledger()
    if current is None:
        return _noted(guarantee, ledger, parts, mark, again=again)
    return current.charge(guarantee, ledger, share, parts=parts, mark=mark, again=again)
