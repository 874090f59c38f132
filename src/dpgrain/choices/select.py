"""``dg.select``: the best of finitely many candidates, chosen under differential privacy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain._wording import rounded_up, shown
from dpgrain.accounting import (
    ApproximateDP,
    Contribution,
    Event,
    ExponentialMechanism,
    Laplace,
    PureDP,
    SelectBest,
    calibrate,
)
from dpgrain.arrays.blocks import Unread, unit_of
from dpgrain.arrays.guarantees import guarantee_of
from dpgrain.arrays.roster import Roster
from dpgrain.choices.scores import STEPS, BlockLosses, total
from dpgrain.errors import ParameterError, only_interrupts
from dpgrain.inputs.calls import by_record, part_of, probe, silent
from dpgrain.inputs.numbers import vector
from dpgrain.noise import RandomState, Source
from dpgrain.noise.laws import raised
from dpgrain.publishing import Charge, Planned, Promise, Query, in_budget, publishes
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.units import Level, Relation, Unit, User

Method: TypeAlias = Literal["auto", "permute_and_flip", "exponential", "repeat"]
METHODS: tuple[Method, ...] = ("auto", "permute_and_flip", "exponential", "repeat")
Evaluation: TypeAlias = Callable[[FloatArray, float, Source], float]


# Share of ε that pays for the winner's mean loss.
_SCORE_SHARE = 0.2
# Mean number of runs of each candidate where candidates are drawn at random.
_RUNS_EACH = 10.0
# Least ε: with a smaller one Laplace noise on the grid of losses would not fit into its integers.
_LEAST_EPSILON = 1e-3


@dataclass(frozen=True)
class Choice:
    """A privately chosen candidate.

    Args:
        index: the number of the candidate, from 0.
        value: the candidate.
        guarantee: the guarantee of the choice.
        loss: the mean loss of the candidate over the roster, with noise; None where none was published.
            A user without records counts with the lower end. Without a stated roster it is the mean
            over the units that have records.
        std_error: the standard error of the noise in ``loss``, for one evaluation; the smallest of
            several (``method="repeat"``) is also biased downwards.

    >>> found = select([0.0, 1.0], lambda guess, x: abs(guess - x), np.ones(100), epsilon=1.0)
    >>> found.index, found.value, found.guarantee.level
    (1, 1.0, 'record')
    >>> print(str(found)[:70])
    the choice is 1: candidate 1.
    Record-level differential privacy with ε
    """

    index: int
    value: Any
    guarantee: Guarantee
    loss: float | None = None
    std_error: float | None = None

    def __str__(self) -> str:
        loss = "" if self.loss is None else f", mean loss {self.loss:.4g}"
        error = "" if self.std_error is None else f" ± {rounded_up(self.std_error, 3)}"
        return (
            f"the choice is {shown(self.value)}: candidate {self.index}{loss}{error}.\n"
            f"{self.guarantee}"
        )


@publishes
def select(
    candidates: Sequence[Any],
    loss: Callable[..., Any],
    data: Any,
    users: Any = None,
    epsilon: float | None = None,
    *,
    delta: float = 0.0,
    share: float | None = None,
    lower: float = 0.0,
    bound: float = 1.0,
    method: Method = "auto",
    unit: Unit | None = None,
    elements: Any = None,
    relation: Relation = "zero_out",
    n_users: int | None = None,
    score: bool = False,
    runs: float | None = None,
    evaluation: Evaluation | None = None,
    random_state: RandomState = None,
) -> Query[Choice]:
    """Choose the candidate with about the smallest mean loss over users.

    Args:
        candidates: the candidates, which are fixed without the data, such as thresholds or a
            :func:`ball_cover`.
        loss: a function ``loss(candidate, records)``, or ``loss(candidate, X, y)`` where ``data`` is a
            tuple. It returns (m,) one number for each record, which depends on that record and the
            candidate alone. It is tried on records of zeros first; a record on which it raises later
            counts most.
        data: m records: an array, a table or a list, or a tuple of these.
        users: (m,) the user of each record; None protects records alone. A record without a user is
            left out.
        delta: the promised δ; the choice itself is pure, and 0 is the default.
        lower: the loss that counts as none; smaller losses count as this one.
        bound: the distance above ``lower`` from which a loss counts most; NaN counts most, too.
        method: ``"permute_and_flip"``, the least error for an ε; ``"exponential"``, the exponential
            mechanism, whose price in a budget is half as high; ``"auto"``, the second of these two
            inside a budget, and else the first; ``"repeat"``, noisy evaluations of candidates drawn at
            random, of which the best is kept.
        unit: the protected unit: ``User()``, ``Element()`` or ``Record()``; by default (None) a user
            where users are passed, and a record otherwise. A unit's loss is the mean over its records,
            and candidates are compared by the sum over units.
        elements: (m,) the cell of each record, by a public partition, for ``Element()``.
        n_users: the public size of the roster, if it is known. The choice does not depend on it; a mean
            loss is divided by it, or else by a number of units that is part of the release.
        score: whether to publish the winner's mean loss also, with a fifth of ε. With ``"repeat"``
            it is published anyhow, at no further cost, where ``n_users`` is stated or
            ``evaluation`` given. Under ``replace`` and without ``n_users`` its noise is doubled.
        runs: the mean number of evaluations of ``"repeat"``; by default 10 per candidate.
        evaluation: a function ``evaluation(losses, epsilon, source)`` for ``"repeat"``, which
            returns an ε-DP estimate of the mean of losses in [0, 1], (loss − lower)/bound, one for
            each unit that has records. By default it is the mean over the roster with Laplace
            noise. Where it raises, the candidate counts as the worst.

    Raises:
        ParameterError: if a parameter is out of range or lengths differ.

    Each candidate is evaluated once. Nothing but the index and the candidate is published, and the
    noisy loss where it is asked for.

    Formal guarantee: ε-DP for the unit and relation, whatever the data: a unit moves the sum of losses
    of every candidate by at most ``bound``, and under ``zero_out`` all one way. Totals are whole
    numbers, and choices and noise have their exact laws. Source: Levy et al. 2021, section 6, with one
    choice instead of their Algorithm 5 (which is ``"repeat"``: 3ε₁ for ε₁-DP evaluations; 48 for 8 in
    their Theorem 7). Proof: docs/theory, "Choosing among hypotheses".

    >>> records = np.array([0.2, 0.3, 0.4] * 400)
    >>> users = np.repeat(np.arange(400), 3)
    >>> choice = select([0.0, 0.3, 0.9], lambda c, x: abs(x - c), records, users, epsilon=1.0)
    >>> choice.value, choice.guarantee.epsilon()
    (0.3, 1.0)
    """
    unit = unit_of(unit, users, n_users)
    promise = Promise.of(unit, epsilon, delta, relation, share)
    if isinstance(unit, User) and unit.max_elements is not None:
        raise ParameterError(
            "unit must be User() without max_elements: a user's mean loss is already bounded."
        )
    _validate.one_of(METHODS, method=method)
    _validate.truth(score=score)
    lower, bound = _range(lower, bound)
    count = _count_of(candidates)
    if method == "repeat":
        runs = _RUNS_EACH * count if runs is None else _validate.positive(runs=runs)
    elif runs is not None or evaluation is not None:
        raise ParameterError("runs and evaluation must be omitted unless method='repeat'.")
    elif method == "auto":
        method = "exponential" if in_budget() else "permute_and_flip"
    records = data if isinstance(data, tuple) else (data,)
    m = _records(records)
    named = {f"data[{place}]": part for place, part in enumerate(records)}
    named = named if isinstance(data, tuple) else {"data": data}
    for index in range(count):
        probe(
            lambda *parts, candidate=candidates[index]: vector(loss(candidate, *parts)),
            records,
            (),
            "loss",
            "one number for each record",
        )
    return SelectQuery(
        promise,
        [candidates[index] for index in range(count)],
        loss,
        records,
        Unread.of(m, users, elements, unit, others=named),
        lower,
        bound,
        method,
        None if n_users is None else _validate.integer(minimum=1, n_users=n_users),
        score,
        runs,
        evaluation,
        random_state,
    )


@dataclass(frozen=True, eq=False, repr=False)
class SelectQuery(Query[Choice]):
    """A query for a choice among candidates; its parameters are those of :func:`select`.

    Args:
        promise: what is promised.
        candidates: the candidates.
        loss: the function that gives each record's loss.
        records: the records, in one part or several.
        whose: whose each record is.
        lower: the loss that counts as none.
        bound: the distance above it from which a loss counts most.
        method: how to choose, not ``"auto"``.
        n_users: the public size of the roster; None where it is not stated.
        score: whether to publish the winner's mean loss.
        runs: the mean number of evaluations of ``"repeat"``.
        evaluation: the caller's evaluation of ``"repeat"``.
        random_state: a seed, for tests and research.
    """

    promise: Promise
    candidates: Sequence[Any]
    loss: Callable[..., Any]
    records: tuple[Any, ...]
    whose: Unread
    lower: float
    bound: float
    method: Method
    n_users: int | None = None
    score: bool = False
    runs: float | None = None
    evaluation: Evaluation | None = None
    random_state: RandomState = None

    def __post_init__(self) -> None:
        self.check_unit(self.whose.unit)

    @cached_property
    def way(self) -> _Once | _Repeated:
        """The way to choose, with its noise."""
        promise, count = self.promise, len(self.candidates)
        if (self.score or self.method == "repeat") and promise.epsilon < _LEAST_EPSILON:
            raise ParameterError(
                f"epsilon must be at least {_LEAST_EPSILON:g} if a loss is published, not "
                f"{promise.epsilon!r}."
            )
        parts = _parts_of(promise.level, self.n_users, self.score)
        if self.method == "repeat":
            assert self.runs is not None  # noqa: S101 - it is stated, or has its default
            return _repeated(promise, parts, count, self.runs, self.evaluation)
        return _once(promise, parts, count, gumbel=self.method == "exponential", score=self.score)

    @property
    def plan(self) -> Planned:
        """The noise of the choice, and of the loss where that is published."""
        guarantee = guarantee_of(
            self.promise,
            self.way.event,
            (
                *(() if self.n_users is None else Roster(self.n_users).facts),
                f"{len(self.candidates):,} candidates",
                f"a loss of each record by itself, clipped to [{self.lower:g}, "
                f"{self.lower + self.bound:g}]",
                *self.way.facts,
            ),
            private=True,
            users=self.whose.users,
            elements=self.whose.elements,
        )
        return Planned(guarantee, self.n_users)

    def run(self, charge: Charge) -> Choice:
        """Evaluate the candidates, and choose one."""
        m, rows = self.whose.rows, charge.read(self.whose.arranged)
        blocks = BlockLosses(rows, self.lower, self.bound)

        def losses(index: int) -> NDArray[np.int64]:
            def some(first: int, last: int) -> NDArray[Any]:
                whole = (first, last) == (0, m)
                parts = self.records if whole else (part_of(p, first, last) for p in self.records)
                return vector(self.loss(self.candidates[index], *parts))

            # A record on which the loss fails counts most, like one whose loss is no number.
            return blocks.of(by_record(some, m))

        chosen = self.way.choose(losses, self.n_users, charge)
        mean = None if chosen.mean is None else self.lower + self.bound * chosen.mean
        error = None if chosen.spread is None else self.bound * chosen.spread
        choice = self.candidates[chosen.index]
        return Choice(chosen.index, choice, charge.guarantee, mean, error)


def _range(lower: Any, bound: float) -> tuple[float, float]:
    """Check the range of a loss, and return it as floats."""
    if isinstance(lower, bool) or not isinstance(lower, Real) or not abs(float(lower)) <= 1e100:
        raise ParameterError(
            f"lower must be a number between -1e100 and 1e100, not {_validate.said(lower)}."
        )
    if not 1e-100 <= _validate.positive(bound=bound) <= 1e100:
        raise ParameterError(
            f"bound must be between 1e-100 and 1e100, not {_validate.said(bound)}."
        )
    return float(lower), float(bound)


def _records(records: tuple[Any, ...]) -> int:
    """Return the number of records."""
    if not all(
        len(part.shape) > 0 if hasattr(part, "shape") else isinstance(part, Sized)
        for part in records
    ):
        raise ParameterError("data must have one entry for each record.")
    sizes = {part.shape[0] if hasattr(part, "shape") else len(part) for part in records}
    if len(sizes) != 1:
        raise ParameterError("data must all have the same length, with one entry for each record.")
    return int(sizes.pop())


# The ways to choose ----------------------------------------------------------------------------

Losses: TypeAlias = Callable[[int], NDArray[np.int64]]


@dataclass(frozen=True)
class _Once:
    """The plan to evaluate each candidate once and choose one by its noisy total, in public numbers.

    Args:
        event: the event of all that is published.
        count: the number of candidates.
        choice: the event of the choice, by Gumbel noise or permute-and-flip.
        score: the event of the published loss, or None if no loss is published.
        facts: further public facts, in words.
    """

    event: Event
    count: int
    choice: ExponentialMechanism | ApproximateDP
    score: Laplace | None
    facts: tuple[str, ...] = ()

    def choose(self, losses: Losses, n: int | None, charge: Charge) -> _Chosen:
        """Choose a candidate: its index, and its noisy mean in bounds where that is published."""
        sums = [_Total.of(losses(i)) for i in range(self.count)]
        totals = np.array([each.lost for each in sums], dtype=np.int64)
        if isinstance(self.choice, ExponentialMechanism):
            index = int(charge.order(self.choice, -totals, STEPS)[0])
        else:
            index = charge.flip(self.choice, -totals, STEPS)
        if self.score is None:
            return _Chosen(index)
        width = self.score.noise_multiplier
        return sums[index].noisy(self.score, n is None, charge).chosen(index, width, n)


@dataclass(frozen=True)
class _Repeated:
    """The plan to evaluate candidates drawn at random with noise, and keep the smallest result.

    Args:
        event: the event of all that is published.
        count: the number of candidates.
        one: the event of one evaluation: Laplace noise, or what the caller states of its own.
        epsilon: the ε of one evaluation.
        evaluation: the caller's evaluation; None for the mean with Laplace noise.
        counted: whether units are counted along with their losses.
    """

    event: SelectBest
    one: Laplace | ApproximateDP
    count: int
    epsilon: float
    evaluation: Evaluation | None
    counted: bool = False

    @property
    def facts(self) -> tuple[str, ...]:
        """The public facts of the choice, in words."""
        drawn = (
            f"{self.event.mean:g} evaluations on average, whose number and time are not published"
        )
        if self.evaluation is None:
            return (drawn,)
        return (
            drawn,
            f"evaluations that are {rounded_up(self.epsilon)}-DP, as stated by the caller",
        )

    def choose(self, losses: Losses, n: int | None, charge: Charge) -> _Chosen:
        """Choose a candidate: its index, and its noisy mean in bounds."""
        by_index: dict[int, NDArray[np.int64]] = {}

        def run(index: int, one: Charge) -> tuple[float, _Chosen]:
            if index not in by_index:
                # Losses are kept, because only the noise is new when a candidate is drawn again.
                by_index[index] = losses(index)
            if self.evaluation is not None:
                mean = self._evaluated(by_index[index] / STEPS, one)
                return -mean, _Chosen(index, mean)
            assert isinstance(self.one, Laplace)  # noqa: S101 - but for a caller's evaluation
            sums = _Total.of(by_index[index]).noisy(self.one, self.counted, one)
            # Candidates are compared by their sums: means would compare noisy numbers of units, too.
            return -sums.lost, sums.chosen(index, self.one.noise_multiplier, n)

        return charge.best_of(self.event, self.count, run)

    def _evaluated(self, losses: NDArray[np.float64], one: Charge) -> float:
        """Return the caller's estimate of a candidate's mean loss, or NaN where it raises."""
        evaluation = self.evaluation
        assert evaluation is not None  # noqa: S101 - asked where there is one
        try:
            with silent():
                return float(evaluation(losses, self.epsilon, one.lend(self.one)))
        except BaseException as error:
            # An error would reveal the records, so it counts like a result that is no number.
            only_interrupts(error)
            return math.nan


@dataclass(frozen=True)
class _Chosen:
    """An index, and a noisy mean loss in bounds with its error where one is published."""

    index: int
    mean: float | None = None
    spread: float | None = None


@dataclass(frozen=True)
class _Total:
    """The sum of units' losses and that of their complements, in steps or, with noise, in bounds.

    Args:
        lost: the sum of losses.
        rest: the sum of 1 − loss over the units; None where it is not published.
    """

    lost: float
    rest: float | None

    @staticmethod
    def of(losses: NDArray[np.int64]) -> _Total:
        """Add up the losses of all units, which are in steps."""
        return _Total(total(losses), total(STEPS - losses))

    def noisy(self, part: Laplace, counted: bool, charge: Charge) -> _Total:
        """Add Laplace noise to the first sum and, where units are counted, to the second."""
        assert self.rest is not None  # noqa: S101 - of sums without noise
        sums = np.array([int(self.lost), int(self.rest)][: 1 + counted])
        lost, *rest = (charge.noisy(part, sums, float(raised(STEPS))) / STEPS).tolist()
        return _Total(lost, rest[0] if counted else None)

    def chosen(self, index: int, width: float, n: int | None) -> _Chosen:
        """Return what is published: the mean over a roster, or over the units that have records."""
        error = math.sqrt(2.0) * width
        if n is not None:
            return _Chosen(index, self.lost / n, error / n)
        if self.rest is None:
            return _Chosen(index)
        units = max(self.lost + self.rest, 1.0)
        mean = self.lost / units
        share = min(max(mean, 0.0), 1.0)
        return _Chosen(index, mean, error * math.hypot(1 - share, share) / units)


def _once(
    promise: Promise,
    parts: Contribution,
    count: int,
    *,
    gumbel: bool,
    score: bool,
) -> _Once:
    """Plan the noise of one choice, and of one score."""
    epsilon, relation, level = promise.epsilon, promise.relation, parts.block
    width = parts.sensitivity(1, relation) / (_SCORE_SHARE * epsilon)
    published = Laplace(width, parts) if score else None
    # The margin keeps rounding from carrying the sum above ε.
    left = epsilon if published is None else epsilon * (1 - _SCORE_SHARE) * (1 - 1e-12)
    # Under `zero_out` the totals of all candidates move one way, by at most one bound.
    rate = left if relation == "zero_out" else left / 2
    choice: ExponentialMechanism | ApproximateDP = PureDP(rate, level=level)
    if gumbel:
        # The division is rounded, and so is what the accountant makes of it; we err towards more noise.
        choice = ExponentialMechanism((1 / rate) * (1 + 2.0**-50), one_way=True, level=level)
    whole: Event = choice if published is None else choice + published
    return _Once(whole, count, choice, published)


def _repeated(
    promise: Promise,
    parts: Contribution,
    count: int,
    runs: float,
    evaluation: Evaluation | None,
) -> _Repeated:
    """Plan the noise of one evaluation, of which the best of several is kept."""
    relation = promise.relation
    sensitivity = parts.sensitivity(1, relation)

    def one(rate: float) -> Laplace | ApproximateDP:
        if evaluation is not None:
            return PureDP(rate, level=parts.block, relation=relation)
        return Laplace(sensitivity / rate, parts)

    def of(rate: float) -> SelectBest:
        return SelectBest(one(rate), runs)

    calibration = calibrate(of, promise.epsilon, promise.delta, search="largest", relation=relation)
    rate, counted = calibration.parameter, parts.coordinates != "one"
    return _Repeated(calibration.event, one(rate), count, rate, evaluation, counted)


def _parts_of(level: Level, n_users: int | None, score: bool) -> Contribution:
    """Return how each unit enters the sums: by its loss in [0, 1], and maybe by 1 − loss.

    Two such numbers have the l1 norm 1, so that the number of units costs nothing beside the sum of
    losses where a unit is removed. A unit that is exchanged moves them by 2 together.
    """
    counted = score and n_users is None
    return Contribution(level, "shared", "nonnegative" if counted else "one", "l1")


def _count_of(candidates: Any) -> int:
    """Check the candidates, and return their number."""
    # Frames and series are read by names, not by places, and an array without axes has none.
    named = isinstance(candidates, Mapping) or hasattr(candidates, "iloc")
    listed = hasattr(candidates, "__getitem__") and hasattr(candidates, "__len__")
    if named or not listed or not len(getattr(candidates, "shape", (1,))):
        raise ParameterError(
            f"candidates must be a sequence in a public order, not {type(candidates).__name__}."
        )
    if len(candidates) == 0:
        raise ParameterError("candidates must not be empty.")
    return len(candidates)
