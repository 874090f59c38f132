"""``dg.select``: private choice of the best among finitely many candidates."""

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
from dpgrain.choices.scores import STEPS, BlockLosses, sum_losses
from dpgrain.errors import ParameterError, reraise_keyboard_interrupt
from dpgrain.inputs.array_blocks import LabelledRows, default_unit
from dpgrain.inputs.callbacks import check_callback, map_records, silent, slice_records
from dpgrain.inputs.guarantees import array_guarantee
from dpgrain.inputs.numbers import vector
from dpgrain.inputs.population import Population
from dpgrain.noise import RandomSource, RandomState
from dpgrain.noise.distributions import raise_scale
from dpgrain.publishing import Charge, Plan, Promise, Query, in_budget, publishes
from dpgrain.publishing.call import KeepsQuery
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.release_plan import compose, present
from dpgrain.units import Level, Relation, Unit, User
from dpgrain.words import choice_text as words

Method: TypeAlias = Literal["auto", "permute_and_flip", "exponential", "repeat"]
METHODS: tuple[Method, ...] = ("auto", "permute_and_flip", "exponential", "repeat")
Evaluation: TypeAlias = Callable[[FloatArray, float, RandomSource], float]


# Share of ε for publishing the winner's mean loss.
_SCORE_SHARE = 0.2
# Mean number of runs per candidate if candidates are drawn at random.
_RUNS_EACH = 10.0
# Minimum ε: below it, Laplace noise on the grid of losses would overflow its integers.
_LEAST_EPSILON = 1e-3


@dataclass(frozen=True)
class Choice(KeepsQuery):
    """Privately chosen candidate.

    Args:
        index: the index of the candidate, from 0.
        value: the candidate.
        guarantee: the guarantee of the choice.
        loss: the noisy mean loss of the candidate over the population; None if it was not
            published. Users without records have the lower end as loss. If the number of users is
            not stated, it is the mean over units with records.
        std_error: the standard error of the noise in ``loss``, for one evaluation; the smallest of
            several (``method="repeat"``) is also biased downwards.

    >>> found = select([0.0, 1.0], lambda guess, x: abs(guess - x), np.ones(100), epsilon=1.0)
    >>> found.index, found.value, found.guarantee.level
    (1, 1.0, 'record')
    >>> print(str(found).splitlines()[0])
    Chosen: 1 (index 1 of 2, from 0).
    """

    index: int
    value: Any
    guarantee: Guarantee
    loss: float | None = None
    std_error: float | None = None

    def __str__(self) -> str:
        return words.summary(self)

    def explain(self) -> str:
        """Describe the choice, the mean loss and the guarantee."""
        return words.explanation(self)


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
    """Choose the candidate with approximately the smallest mean loss over users.

    Args:
        candidates: the candidates, fixed without the data, such as thresholds or a
            :func:`ball_cover`.
        loss: a function ``loss(candidate, records)``, or ``loss(candidate, X, y)`` if ``data`` is a
            tuple. It returns one number per record, (m,), which depends only on that record and the
            candidate. It is first tested on records of zeros; later, a record for which it raises
            has the largest loss.
        data: m records: an array, a table or a list, or a tuple of these.
        users: (m,) the user of each record; None protects only records. Records without a user are
            dropped.
        epsilon: privacy parameter ε, such as 1; smaller protects more. Omit it if you pass
            ``share``.
        delta: the δ of the guarantee; the choice itself is pure, and 0 is the default.
        share: share of the open budget, such as 0.5, instead of ε and δ; see
            :func:`dpgrain.budget`.
        lower: the lower end of losses; smaller losses are clamped to it.
        bound: the distance of the upper end from ``lower``, to which larger losses and NaN are
            clamped.
        method: ``"permute_and_flip"``, the least error for an ε; ``"exponential"``, the exponential
            mechanism, with half the cost in a budget; ``"auto"``, the latter inside a budget,
            otherwise the former; ``"repeat"``, the best of noisy evaluations of randomly drawn
            candidates.
        unit: the protected unit: ``User()``, ``Element()`` or ``Record()``; by default (None) a
            user if users are passed, otherwise a record. The loss of a unit is the mean over its
            records, and candidates are compared by the sum over units.
        elements: (m,) the cell of each record in a public partition, for ``Element()``.
        relation: neighbouring relation: a unit is removed, ``zero_out``, or replaced by another,
            ``replace``.
        n_users: the public number of users in the known population, if any. The choice does not
            depend on it; a mean loss is divided by it, or otherwise by a number of units that is
            part of the release.
        score: True also publishes the winner's mean loss, for a fifth of ε. With ``"repeat"`` it is
            always published, at no further cost, if ``n_users`` is stated or ``evaluation`` is set.
            Under ``replace`` and without ``n_users``, its noise is doubled.
        runs: the mean number of evaluations of ``"repeat"``; by default 10 per candidate.
        evaluation: a function ``evaluation(losses, epsilon, source)`` for ``"repeat"``, which
            returns an ε-DP estimate of the mean of losses in [0, 1], (loss − lower)/bound, one for
            each unit with records. By default, the mean over the population with Laplace noise. If
            it raises, the candidate is treated as the worst.
        random_state: seed, for tests and research. The release is then *not private*.

    Raises:
        ParameterError: if a parameter is out of range or lengths differ.

    Each candidate is evaluated once. The release contains only the index, the candidate and, on
    request, the noisy loss.

    Formal guarantee: ε-DP for the unit and relation, for any data: a unit changes the sum of losses
    of every candidate by at most ``bound``, and under ``zero_out`` all in the same direction.
    Totals are integers, and choices and noise have their exact distributions. Source: Levy et al.
    2021, section 6, with one choice instead of their Algorithm 5 (which is ``"repeat"``: 3ε₁ for
    ε₁-DP evaluations; 48 for 8 in their Theorem 7). Proof: docs/theory, "Choosing among
    hypotheses".

    >>> records = np.array([0.2, 0.3, 0.4] * 400)
    >>> users = np.repeat(np.arange(400), 3)
    >>> choice = select([0.0, 0.3, 0.9], lambda c, x: abs(x - c), records, users, epsilon=1.0)
    >>> choice.value, choice.guarantee.epsilon()
    (0.3, 1.0)
    """
    unit = default_unit(unit, users, n_users)
    promise = Promise.of(unit, epsilon, delta, relation, share)
    if isinstance(unit, User) and unit.max_elements is not None:
        raise ParameterError(
            "unit must be User() without max_elements: a user's mean loss is already bounded."
        )
    _validate.one_of(METHODS, method=method)
    _validate.boolean(score=score)
    lower, bound = _range(lower, bound)
    count = _check_candidates(candidates)
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
        check_callback(
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
        LabelledRows.create(m, users, elements, unit, others=named),
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
    """Query for a choice among candidates; its parameters are those of :func:`select`."""

    promise: Promise
    candidates: Sequence[Any]
    loss: Callable[..., Any]
    records: tuple[Any, ...]
    whose: LabelledRows
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
    def mechanism(self) -> _SingleChoice | _RepeatedChoice:
        """Method of the choice, with its noise."""
        promise, count = self.promise, len(self.candidates)
        if (self.score or self.method == "repeat") and promise.epsilon < _LEAST_EPSILON:
            raise ParameterError(
                f"epsilon must be at least {_LEAST_EPSILON:g} if a loss is published, not "
                f"{promise.epsilon!r}."
            )
        parts = _unit_contribution(promise.level, self.n_users, self.score)
        if self.method == "repeat":
            assert self.runs is not None  # noqa: S101 - it is stated, or has its default
            return _plan_repeated_choice(promise, parts, count, self.runs, self.evaluation)
        return _plan_single_choice(
            promise, parts, count, gumbel=self.method == "exponential", score=self.score
        )

    @property
    def plan(self) -> Plan:
        """Noise of the choice and, if it is published, of the loss."""
        guarantee = array_guarantee(
            self.promise,
            compose(self.mechanism.parts),
            (
                *(() if self.n_users is None else Population(self.n_users).facts),
                Fact("candidates", (len(self.candidates),)),
                Fact("record-losses", (self.lower, self.lower + self.bound)),
                *self.mechanism.facts,
            ),
            users=self.whose.users,
            elements=self.whose.elements,
        )
        return Plan(guarantee, self.n_users, parts=self.mechanism.parts)

    def run(self, charge: Charge) -> Choice:
        """Evaluate the candidates, and choose one."""
        m, rows = self.whose.rows, charge.read(self.whose.arranged)
        blocks = BlockLosses(rows, self.lower, self.bound)

        def losses(index: int) -> NDArray[np.int64]:
            def some(first: int, last: int) -> NDArray[Any]:
                whole = (first, last) == (0, m)
                parts = (
                    self.records if whole else (slice_records(p, first, last) for p in self.records)
                )
                return vector(self.loss(self.candidates[index], *parts))

            # If the loss of a record fails or is NaN, the record has the largest loss.
            return blocks.of(map_records(some, m))

        chosen = self.mechanism.choose(losses, self.n_users, charge)
        mean = None if chosen.mean is None else self.lower + self.bound * chosen.mean
        error = None if chosen.spread is None else self.bound * chosen.spread
        choice = self.candidates[chosen.index]
        return Choice(chosen.index, choice, charge.guarantee, mean, error)


def _range(lower: Any, bound: float) -> tuple[float, float]:
    """Check the range of a loss, and return it as floats."""
    if isinstance(lower, bool) or not isinstance(lower, Real) or not abs(float(lower)) <= 1e100:
        raise ParameterError(
            f"lower must be a number between -1e100 and 1e100, not {_validate.describe(lower)}."
        )
    if not 1e-100 <= _validate.positive(bound=bound) <= 1e100:
        raise ParameterError(
            f"bound must be between 1e-100 and 1e100, not {_validate.describe(bound)}."
        )
    return float(lower), float(bound)


def _records(records: tuple[Any, ...]) -> int:
    if not all(
        len(part.shape) > 0 if hasattr(part, "shape") else isinstance(part, Sized)
        for part in records
    ):
        raise ParameterError("data must have one entry for each record.")
    sizes = {part.shape[0] if hasattr(part, "shape") else len(part) for part in records}
    if len(sizes) != 1:
        raise ParameterError("data must all have the same length, with one entry for each record.")
    return int(sizes.pop())


# The methods of choice ------------------------------------------------------------------------

Losses: TypeAlias = Callable[[int], NDArray[np.int64]]


@dataclass(frozen=True)
class _SingleChoice:
    """Plan to evaluate each candidate once, and choose by noisy totals."""

    count: int
    choice: ExponentialMechanism | ApproximateDP
    score: Laplace | None
    facts: tuple[Fact, ...] = ()

    @property
    def parts(self) -> dict[str, Event]:
        """Noise of the choice and of its loss."""
        return present({"choice": self.choice, "loss": self.score})

    def choose(self, losses: Losses, n: int | None, charge: Charge) -> _ChosenCandidate:
        """Choose a candidate; return its index and, if published, its noisy mean in bounds."""
        sums = [_LossSums.create(losses(i)) for i in range(self.count)]
        totals = np.array([each.lost for each in sums], dtype=np.int64)
        if isinstance(self.choice, ExponentialMechanism):
            index = int(charge.order(self.choice, -totals, STEPS)[0])
        else:
            index = charge.flip(self.choice, -totals, STEPS)
        if self.score is None:
            return _ChosenCandidate(index)
        width = self.score.noise_multiplier
        return sums[index].noisy(self.score, n is None, charge).chosen(index, width, n)


@dataclass(frozen=True)
class _RepeatedChoice:
    """Plan to evaluate randomly drawn candidates with noise, and choose the best."""

    event: SelectBest
    one: Laplace | ApproximateDP
    count: int
    epsilon: float
    evaluation: Evaluation | None  # None for the mean with Laplace noise
    counted: bool = False  # units are counted along with their losses

    @property
    def parts(self) -> dict[str, Event]:
        """Noise of all evaluations."""
        return {"evaluations": self.event}

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The public facts of the choice."""
        drawn = Fact("evaluations", (self.event.mean,))
        if self.evaluation is None:
            return (drawn,)
        return drawn, Fact("own-evaluations", (self.epsilon,))

    def choose(self, losses: Losses, n: int | None, charge: Charge) -> _ChosenCandidate:
        """Choose a candidate; return its index and its noisy mean in bounds."""
        by_index: dict[int, NDArray[np.int64]] = {}

        def run(index: int, one: Charge) -> tuple[float, _ChosenCandidate]:
            if index not in by_index:
                # Losses are cached, because a repeated candidate needs only new noise.
                by_index[index] = losses(index)
            if self.evaluation is not None:
                mean = self._evaluated(by_index[index] / STEPS, one)
                return -mean, _ChosenCandidate(index, mean)
            assert isinstance(self.one, Laplace)  # noqa: S101 - but for a caller's evaluation
            sums = _LossSums.create(by_index[index]).noisy(self.one, self.counted, one)
            # Candidates are compared by sums: means would also compare noisy numbers of units.
            return -sums.lost, sums.chosen(index, self.one.noise_multiplier, n)

        return charge.best_of(self.event, self.count, run)

    def _evaluated(self, losses: NDArray[np.float64], one: Charge) -> float:
        """Return the caller's estimate of a candidate's mean loss; NaN if it raises."""
        evaluation = self.evaluation
        assert evaluation is not None  # noqa: S101 - asked where there is one
        try:
            with silent():
                return float(evaluation(losses, self.epsilon, one.rounds(self.one)))
        except BaseException as error:
            # An error would reveal the records, so it is treated like NaN.
            reraise_keyboard_interrupt(error)
            return math.nan


@dataclass(frozen=True)
class _ChosenCandidate:
    """Chosen index and, if published, the noisy mean loss in bounds with its error."""

    index: int
    mean: float | None = None
    spread: float | None = None


@dataclass(frozen=True)
class _LossSums:
    """Sums of units' losses and of 1 − loss (or None), in steps or noisy in bounds."""

    lost: float
    rest: float | None

    @staticmethod
    def create(losses: NDArray[np.int64]) -> _LossSums:
        """Add up the losses of all units in steps."""
        return _LossSums(sum_losses(losses), sum_losses(STEPS - losses))

    def noisy(self, part: Laplace, counted: bool, charge: Charge) -> _LossSums:
        """Add Laplace noise to the first sum and, if units are counted, to the second."""
        assert self.rest is not None  # noqa: S101 - of sums without noise
        sums = np.array([int(self.lost), int(self.rest)][: 1 + counted])
        lost, *rest = (charge.noisy(part, sums, float(raise_scale(STEPS))) / STEPS).tolist()
        return _LossSums(lost, rest[0] if counted else None)

    def chosen(self, index: int, width: float, n: int | None) -> _ChosenCandidate:
        """Return the published mean over the population, or over units with records."""
        error = math.sqrt(2.0) * width
        if n is not None:
            return _ChosenCandidate(index, self.lost / n, error / n)
        if self.rest is None:
            return _ChosenCandidate(index)
        units = max(self.lost + self.rest, 1.0)
        mean = self.lost / units
        share = min(max(mean, 0.0), 1.0)
        return _ChosenCandidate(index, mean, error * math.hypot(1 - share, share) / units)


def _plan_single_choice(
    promise: Promise,
    parts: Contribution,
    count: int,
    *,
    gumbel: bool,
    score: bool,
) -> _SingleChoice:
    """Plan the noise of one choice, and of one score."""
    epsilon, relation, level = promise.epsilon, promise.relation, parts.block
    width = parts.sensitivity(1, relation) / (_SCORE_SHARE * epsilon)
    published = Laplace(width, parts) if score else None
    # The margin prevents rounding from raising the sum above ε.
    left = epsilon if published is None else epsilon * (1 - _SCORE_SHARE) * (1 - 1e-12)
    # Under `zero_out` the totals of all candidates change in the same direction, by at most one
    # bound.
    rate = left if relation == "zero_out" else left / 2
    choice: ExponentialMechanism | ApproximateDP = PureDP(rate, level=level)
    if gumbel:
        # This division and the accountant's inverse are rounded; the margin adds noise.
        choice = ExponentialMechanism((1 / rate) * (1 + 2.0**-50), one_way=True, level=level)
    return _SingleChoice(count, choice, published)


def _plan_repeated_choice(
    promise: Promise,
    parts: Contribution,
    count: int,
    runs: float,
    evaluation: Evaluation | None,
) -> _RepeatedChoice:
    """Plan the noise of one evaluation, of which the best of several is chosen."""
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
    return _RepeatedChoice(calibration.event, one(rate), count, rate, evaluation, counted)


def _unit_contribution(level: Level, n_users: int | None, score: bool) -> Contribution:
    """Return the contribution of a unit: its loss in [0, 1] and, if needed, 1 − loss."""
    # Their l1 norm is 1, so the number of units is free if a unit is removed. Replacing a unit
    # changes both by 2 in total.
    counted = score and n_users is None
    return Contribution(level, "shared", "nonnegative" if counted else "one", "l1")


def _check_candidates(candidates: Any) -> int:
    """Check the candidates, and return their number."""
    # Frames and series are indexed by name instead of position, and an array without axes has no
    # items.
    named = isinstance(candidates, Mapping) or hasattr(candidates, "iloc")
    listed = hasattr(candidates, "__getitem__") and hasattr(candidates, "__len__")
    if named or not listed or not len(getattr(candidates, "shape", (1,))):
        raise ParameterError(
            f"candidates must be a sequence in a public order, not {type(candidates).__name__}."
        )
    if len(candidates) == 0:
        raise ParameterError("candidates must not be empty.")
    return len(candidates)
