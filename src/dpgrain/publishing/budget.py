"""``dg.budget``: one privacy budget for several releases, which are charged before they read data."""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from dpgrain import _validate
from dpgrain._formatting import SUM_TOLERANCE, percent, powers, remaining_delta, rounded_down
from dpgrain._report_mixins import BudgetReportMixin
from dpgrain.accounting import ApproximateDP, Loss, gaussian_epsilon
from dpgrain.errors import ParameterError, RefusedError
from dpgrain.publishing.caps import Caps
from dpgrain.publishing.guarantee import Guarantee, check_guarantee
from dpgrain.publishing.prices import Price, price
from dpgrain.publishing.process import (
    OpenLedger,
    check_creator,
    check_process,
    mark_closed,
    mark_open,
    open_ledger,
)
from dpgrain.publishing.release_plan import Plan
from dpgrain.units import PLAIN_UNITS

if TYPE_CHECKING:
    from dpgrain.publishing.query import Query


class Budget(BudgetReportMixin):
    """A shared (ε, δ) for all releases while it is open; created by :func:`budget`.

    Args:
        epsilon: the promised ε of all releases together.
        delta: the promised δ of all releases together.
        pure: the cap E on the ε of releases charged as pure ε; by default 0, or all of ε if δ = 0.
        leak: the cap D on delta mass; by default a tenth of δ.
        plan: releases fixed in advance, as queries or guarantees; they are composed exactly.

    Raises:
        ParameterError: if a value is out of range, or the plan does not fit.

    The promise is enforced by :attr:`caps`; :attr:`guarantee`, :attr:`spent` and :attr:`left` are
    information for the curator.

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
                f"plan must be a list of queries, not {_validate.describe(plan)}.", name="plan"
            )
        planned = [planned_guarantee(item) for item in plan]
        self._like = _compatible(planned)
        self._planned = Counter(guarantee.event for guarantee in planned)
        losses = (_loss(guarantee) for guarantee in planned)
        loss = sum(losses, Loss())
        self._caps = Caps.with_defaults(self.epsilon, self.delta, pure, leak, loss)
        self._guarantee: Guarantee | None = None
        self._charged: list[Guarantee] = []
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
        """The caps on prices and the promise, fixed when the budget was created."""
        return self._caps

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee of all releases so far, composed as if they had been fixed in advance.

        Its ε is at the δ of the budget, for comparison with the promise.
        """
        if self._guarantee is None:
            return None
        return replace(self._guarantee, delta=self._delta)

    @property
    def promise(self) -> Guarantee | None:
        """The promise of the budget as a guarantee, also for releases that depend on earlier ones.

        None before the first release, which determines the unit.
        """
        like = self.guarantee
        if like is None:
            return None
        event = ApproximateDP(self.epsilon, self.delta, like.level, like.relation)
        return replace(like, event=event)

    def require_charged(self, guarantees: Mapping[str, Guarantee]) -> None:
        """Raise unless guarantees are those of releases charged to this budget.

        Args:
            guarantees: the guarantee of each release, by its name in the error.

        Raises:
            ParameterError: if one is not, even if it is equal to one that is.
        """
        for name, guarantee in guarantees.items():
            # An equal guarantee may be of a release that another budget was charged for.
            if not any(each is guarantee for each in self._charged):
                raise ParameterError(
                    f"releases {name!r} was not charged to this budget; pass releases that were "
                    "published while it was open.",
                    name="releases",
                )

    @property
    def spent(self) -> Price:
        """The total price of the releases so far."""
        return self._spent

    def __enter__(self) -> Budget:
        with _slot.lock:
            check_process(None)
            check_creator(self._pid)
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
        """The largest ``share=`` that fits any release.

        >>> budget(1.0, 1e-6).left
        1.0
        """
        return max(1.0 - self.spent.share_of(self.caps.price), 0.0)

    def charge(
        self,
        guarantee: Guarantee,
        ledger: OpenLedger | None = None,
        share: float | None = None,
        *,
        parts: Sequence[Guarantee] = (),
        mark: str = "",
        again: bool = True,
    ) -> Guarantee:
        """Charge a release before it is made, also to the open ledger.

        Args:
            guarantee: the guarantee of the release.
            ledger: the open ledger; None without one.
            share: the requested share of the budget, which limits the price; None without one.
            parts: the guarantees of the parts of a composed release.
            mark: the text that identifies the line of the ledger.
            again: False if the ledger must refuse a mark that it has charged before.

        Returns:
            The guarantee to publish, with the ledger's receipt.

        Raises:
            RefusedError: if the release does not fit into the budget or the ledger; neither is charged.
            ParameterError: if it protects another unit; neither is charged.
        """
        check_creator(self._pid)
        check_guarantee(guarantee)
        with self._lock:
            together = guarantee if self._guarantee is None else self._guarantee + guarantee
            if self._like is not None:
                # The sum raises unless both protect the same unit of the same users.
                _ = self._like + guarantee
            planned = self._planned[guarantee.event] > 0
            spent = self.spent if planned else self._with(guarantee, share)
            published = _with_receipt(guarantee, ledger, parts, mark, again=again)
            self._planned[guarantee.event] -= planned
            self._spent, self._guarantee = spent, together
            self._charged.append(published)
        return published

    def _with(self, guarantee: Guarantee, share: float | None) -> Price:
        """Return the total price with another release, or raise RefusedError if it exceeds the caps."""
        caps, unit = self.caps.price, PLAIN_UNITS[guarantee.level]
        room = self.spent.remainder(caps) if share is None else caps.part(share)
        own = price(guarantee.event, guarantee.relation, unit, caps, room)
        together = self.spent + own
        if not self.caps.allow(together):
            raise RefusedError(
                f"the budget ε = {self.epsilon:g}, δ = {powers(self.delta)} has no room for this "
                f"release: {self._why(guarantee, own, room)}.",
                spent=True,
            )
        return together

    def _why(self, guarantee: Guarantee, own: Price, room: Price) -> str:
        """Describe the price of a refused release, and the remedies."""
        caps = self.caps.price
        # Truncated, so that the suggested share fits.
        less = f"share={rounded_down(self.left, 2)}" if self.left > SUM_TOLERANCE else ""
        if math.isfinite(own.leak) and own.leak > room.leak and own.mu <= room.mu:
            left = remaining_delta(room.leak)
            return (
                f"a part of its δ, {powers(own.leak)}, is for names that are not listed in advance "
                f"(or for truncated noise), and {left} of δ = {powers(caps.leak)} is left for such "
                f"parts; {f'use {less}, or ' if less else ''}list the names (domain=), or "
                "open the budget with a larger leak="
            )
        remedies = [*_gaussian_noise(guarantee, room)]
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

    def __str__(self) -> str:
        spent, left = _percent(self.spent.share_of(self.caps.price)), percent(self.left, up=False)
        delta = powers(self.delta)
        return f"Budget of ε = {self.epsilon:g} and δ = {delta}: {spent} spent, {left} left"

    def __repr__(self) -> str:
        whole = f"epsilon={self.epsilon:g}, delta={self.delta:g}"
        return f"Budget({whole}; spent {_percent(self.spent.share_of(self.caps.price))})"


def _gaussian_noise(guarantee: Guarantee, room: Price) -> Iterator[str]:
    """Suggest Gaussian noise if it fits at the ε of a release with δ = 0."""
    if guarantee.delta > 0 or min(room.mu, room.leak) == 0:
        return
    epsilon = math.floor(1000 * gaussian_epsilon(room.leak, room.mu)) / 1000
    if epsilon >= _loss(guarantee).pure:
        yield (
            f"use Gaussian noise, of which the budget allows ε = {epsilon:g} at δ = "
            f"{remaining_delta(room.leak)}"
        )


def _percent(part: float) -> str:
    if part > 10:
        return "more than all" if math.isfinite(part) else "more than any amount"
    return percent(part)


def _compatible(planned: list[Guarantee]) -> Guarantee | None:
    """Check that all guarantees compose, and return one of them; None without any."""
    for guarantee in planned[1:]:
        _ = planned[0] + guarantee
    return planned[0] if planned else None


def _loss(guarantee: Guarantee) -> Loss:
    return guarantee.event.loss(1, guarantee.relation, PLAIN_UNITS[guarantee.level])


def _with_receipt(
    guarantee: Guarantee,
    ledger: OpenLedger | None,
    parts: Sequence[Guarantee],
    mark: str,
    *,
    again: bool,
) -> Guarantee:
    """Charge a release to the ledger, if there is one, and add the receipt to its guarantee."""
    if ledger is None:
        return guarantee
    receipt = ledger.charge(*(parts or (guarantee,)), mark=mark, again=again)
    return replace(guarantee, receipts=(*guarantee.receipts, receipt))


class _BudgetSlot:
    """The open budget: one for the whole process, so it covers all threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.budget: Budget | None = None
        self.pid: int | None = None
        self.mark = ""


_slot = _BudgetSlot()

# A fork waits for threads that open or close a budget; otherwise the child's lock would stay locked.
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
    """Open one privacy budget for several releases on the same people's data.

    Args:
        epsilon: the promised ε of all releases together.
        delta: the promised δ of all releases together.
        pure: the part of ε reserved for releases without Gaussian noise, whose ε add up; by default
            none, or all of ε if δ = 0. Without it, such a release is charged like Gaussian noise with
            at least its loss, which is cheaper for many small releases and more expensive for a large
            one.
        leak: the part of δ reserved as delta mass for selection by a threshold and for the tails of
            noise that is not Gaussian; by default a tenth. With 0, Gaussian releases can use all of
            δ, and their noise is 0.5% smaller.
        plan: releases fixed in advance, each as a query (``count.query(…)``, to publish with
            :func:`dpgrain.publish`), as a function without arguments that returns a query, which
            chooses noise and mechanism as inside the budget, or as a guarantee. They are composed
            exactly, which is cheaper, and can be published in any order or skipped; the rest of the
            budget is for unplanned releases.

    Raises:
        ParameterError: if a parameter is out of range, or the plan does not fit.

    Every release inside ``with``, in any thread, is charged before anything is read, and refused if it
    does not fit. All releases must protect the same unit of the same users, with the same partition and
    relation. With ``share=0.5`` a release uses half of the budget, in any order; a release with its own
    ε and δ is charged at its price. Processes forked or started while a budget is open cannot publish.

    It is assumed that processes started earlier, or without this environment, publish nothing about
    these people (a model of :mod:`dpgrain.learn` sent to one, as with ``n_jobs=``, raises there), and
    that series and columns of the same name mean the same users, or the same partition.

    Only functions that return a guarantee are charged, not the building blocks of other releases
    (:mod:`dpgrain.means`, the parties and streams of sums without a curator).

    Formal guarantee: (ε, δ)-DP for everything published inside, however each release was chosen from
    the earlier outcomes: prices (e, m, ℓ) are added up and compared with caps fixed when the budget
    is created. Source: docs/theory, "Budgets".

    >>> import pyarrow as pa
    >>> from dpgrain import User, count, read
    >>> table = read(pa.table({"who": [1, 2, 2], "page": ["a", "a", "b"]}), user="who")
    >>> with budget(1.0, 1e-6) as b:
    ...     visits = count(table, unit=User(), clip=5.0, share=0.5)
    ...     pages = count(table, by="page", unit=User(), clip=5.0, domain=["a"], share=0.5)
    >>> print(b)
    Budget of ε = 1 and δ = 10⁻⁶: 100% spent, 0% left
    """
    return Budget(epsilon, delta, pure=pure, leak=leak, plan=plan)


# True while queries of a composed release are created.
_composed: ContextVar[bool] = ContextVar("composed", default=False)


@contextmanager
def composed() -> Iterator[None]:
    """Create queries for a composed release, as inside an open budget; nothing is published."""
    token = _composed.set(True)
    try:
        yield
    finally:
        _composed.reset(token)


def planned_guarantee(item: Any) -> Guarantee:
    """Return the guarantee of a planned release: a guarantee, a query, or a function for a query."""
    if isinstance(item, Guarantee):
        return item
    if callable(item):
        with composed():
            item = item()
    if isinstance(plan := getattr(item, "plan", None), Plan):
        return plan.guarantee
    raise ParameterError(
        "plan must contain queries, functions without arguments that return a query, or "
        f"guarantees, not {type(item).__name__}."
    )


def in_budget() -> bool:
    """Return True while a budget or ledger is open, or inside :func:`composed`."""
    return _slot.budget is not None or _composed.get() or open_ledger() is not None


def is_open() -> bool:
    """Return True while a budget is open in this process."""
    return _slot.budget is not None


def open_budget() -> Budget | None:
    """Return the open budget or None; raise ParameterError if one is open in another process."""
    check_process(_slot.pid)
    return _slot.budget


def charge(
    guarantee: Guarantee,
    budget: Budget | None = None,  # must still be open
    share: float | None = None,
    *,
    parts: Sequence[Guarantee] = (),  # of each region, which a ledger charges separately
    mark: str = "",
    again: bool = True,
) -> Guarantee:
    """Charge a release to the open budget and ledger; return the guarantee to publish."""
    if _composed.get():
        raise ParameterError(
            "plan must contain functions that return a query, such as count.query(…), and "
            "publish nothing."
        )
    current = _slot.budget
    check_process(_slot.pid)
    if budget is not None and budget is not current:
        raise ParameterError("the budget of this release's share was closed; publish inside it.")
    check_guarantee(guarantee)
    ledger = open_ledger()
    if current is None:
        return _with_receipt(guarantee, ledger, parts, mark, again=again)
    return current.charge(guarantee, ledger, share, parts=parts, mark=mark, again=again)
