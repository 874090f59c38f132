"""``dg.mean_of_users``: mean of one vector per user, with a choice of methods."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpgrain import _validate
from dpgrain._lazy_import import lazy_import
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.inputs.columns import is_distributed
from dpgrain.inputs.guarantees import array_guarantee
from dpgrain.inputs.population import SHARE, Population
from dpgrain.inputs.record_limit import RecordLimit, Weights, check_weights
from dpgrain.means import Recentred, recentring_budget, weighted
from dpgrain.means.clipped import METHOD as CLIP
from dpgrain.means.clipped import ClippedMean, around_zero
from dpgrain.means.clipped import weights as clip_with_weight
from dpgrain.means.mean_protocol import Vectors
from dpgrain.means.problem import METHODS, Candidate, MeanEstimate, Method, Problem, get_method
from dpgrain.means.rules import RecordShares
from dpgrain.means.total_error import CONFIDENCE, UserCount
from dpgrain.means.user_vectors import LocalRecords, Records, check_dimension
from dpgrain.noise import RandomState
from dpgrain.publishing import Charge, Plan, Promise, Query, publishes
from dpgrain.publishing.call import KeepsQuery
from dpgrain.publishing.draws import CountedSource
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee, warn_unreliable_result
from dpgrain.publishing.release_plan import Expected, compose, present
from dpgrain.units import Relation, User
from dpgrain.words import mean_text as words
from dpgrain.words.mean_text import Choice, Coverage

if TYPE_CHECKING:
    from dpgrain.means import distributed_mean
else:
    distributed_mean = lazy_import("dpgrain.means.distributed_mean")


@dataclass(frozen=True, repr=False)
class MeanOfUsers(KeepsQuery):
    """Published mean of the vectors of users with records.

    Args:
        value: (d,) the mean; NaN if users did not agree, as determined by "softcore" or the search
            for a radius. In that case, set a larger radius or use another method.
        std_error: the standard deviation of each coordinate's noise; NaN without a mean. It covers
            only the noise.
        guarantee: the guarantee of the release.
        method: the private mean used.
        choice: the number of users on which this choice is based, after ``"stated"`` or
            ``"released"``; empty for a requested method.
        radius: the distance from the centre within which users count in full: stated, chosen
            privately, or the bound.
        outside: the approximate share of users farther away, who are clipped to the radius.
            ``error`` covers this and ``std_error`` does not; 0 if all count in full.
        n_users: the divisor of sums: the stated number of users, unless clearly fewer or more have
            records; or the released noisy number. With weights by records, their rounded noisy sum,
            in which a user with ``max_records`` counts as 1.
        error: the largest l2 distance of the vector from the mean of users with records, clipped to
            the bound, with at least 95% confidence. If no published number limits it, it is as
            large as the bound allows.
        error_of: the type of effects that the error covers.
        names: the names of the coordinates; empty if unknown.
        max_records: the largest number of a user's records that counts; None if users have equal
            weight.

    >>> found = mean_of_users(np.ones((100, 2)), bound=2.0, epsilon=1.0, delta=1e-6, method="clip")
    >>> found.method, sorted(found.to_dict())[:3]
    ('clip', ['confidence', 'covers', 'error'])
    >>> sure = mean_of_users(
    ...     np.ones((100, 2)), bound=2.0, epsilon=1e6, delta=1e-6, method="clip", n_users=100,
    ...     random_state=1)
    >>> str(sure).splitlines()[1].split(), sure.value.round(3).tolist()
    (['coordinate', 'estimate', 'std_error'], [1.0, 1.0])
    """

    value: FloatArray
    std_error: float
    guarantee: Guarantee
    method: str
    choice: Choice
    radius: float
    outside: float = 0.0
    n_users: int = 0
    error: float = math.inf
    error_of: Coverage = "bound"
    names: tuple[str, ...] = ()
    max_records: int | None = None

    #: Minimum probability that ``error`` covers the true error.
    confidence: ClassVar[float] = CONFIDENCE

    @property
    def covers(self) -> str:
        """The quantity that the numbers estimate."""
        if self.max_records is None:
            return "clipped mean"
        return f"clipped mean of records, up to {self.max_records:,} per user"

    @property
    def resolved(self) -> bool:
        """True if there is a mean, and the noise does not obscure the sum of weights."""
        return math.isfinite(self.std_error)

    @property
    def estimand(self) -> str:
        """Description of the average, with the weights of users."""
        return words.estimand(self)

    @property
    def reason(self) -> str:
        """Explanation of the method's choice, by public numbers."""
        return words.reason(self)

    @property
    def error_covers(self) -> str:
        """Description of what the error covers."""
        return words.error_covers(self)

    def __str__(self) -> str:
        return words.summary(self)

    def __repr__(self) -> str:
        return str(self)

    def explain(self) -> str:
        """Describe the numbers, the method, the largest error and the guarantee."""
        return words.explanation(self)

    def to_dict(self) -> dict[str, Any]:
        """Release as plain JSON values; null for NaN."""
        agreed = bool(np.isfinite(self.value).all())
        return {
            "estimate": self.value.tolist() if agreed else None,
            "std_error": self.std_error if self.resolved else None,
            "covers": self.covers,
            "error": self.error if agreed else None,
            "confidence": self.confidence,
            "error_covers": self.error_covers,
            "method": self.method,
            "reason": self.reason,
            "radius": self.radius if math.isfinite(self.radius) else None,
            "outside": self.outside,
            "n_users": self.n_users,
            "weights": "users" if self.max_records is None else "records",
            "max_records": self.max_records,
            "guarantee": self.guarantee.to_dict(),
        }

    def to_json(self) -> str:
        """Release as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)


@publishes
def mean_of_users(
    X: Any,
    *,
    users: Any = None,
    bound: float,
    epsilon: float | None = None,
    delta: float = 0.0,
    share: float | None = None,
    radius: float | None = None,
    method: str | Method = "auto",
    relation: Relation = "zero_out",
    n_users: int | None = None,
    dimension: int | None = None,
    weights: Weights = "users",
    max_records: int | None = None,
    random_state: RandomState = None,
) -> Query[MeanOfUsers]:
    """Publish the mean of users' vectors.

    Each vector is the mean of one user's records.

    Args:
        X: (m, d) records: an array, a data frame, an Arrow table; or a list of rows. Non-finite
            numbers are treated as 0, and so are all values of a list's row unless it has d cells.
            Rows of a Spark data frame remain on the cluster, which returns only sums and counts
            over all users.
        users: (m,) the user id of each record; None states that each record is a separate user,
            which the guarantee then assumes. Records without a user id are dropped. For a Spark
            data frame, the name of this column; all other columns are the record.
        bound: the public bound on the l2 norm of a record. Records above it are clipped.
        epsilon: privacy parameter ε, such as 1; smaller protects more. Omit it if you pass
            ``share``.
        delta: the δ of the guarantee, in (0, 1), such as 1e-6. The Gaussian noise of these means
            requires it; ``"winsorized"`` of a single column uses Laplace noise with 0.
        share: share of the open budget, such as 0.5, instead of ε and δ; see
            :func:`dpgrain.budget`.
        radius: the distance from their mean within which almost all users' vectors are, if it is
            known. Only accuracy depends on this concentration radius τ.
        method: the private mean. ``"auto"``: "recentred" if n, d, ε and δ allow it, otherwise
            "clip", regardless of a radius. ``"clip"``: clip to the bound. ``"recentred"``: estimate
            the centre in several steps, and clip around it. ``"softcore"``: the mean of the users
            close to most others, for few users. ``"winsorized"``: an interval for every coordinate.
            The last two use the radius. A custom :class:`~dpgrain.means.Method` is also possible.
            Rows on Spark support "clip", "recentred" and "auto".
        relation: neighbouring relation: a unit is removed, ``zero_out``, or replaced by another,
            ``replace``.
        n_users: the public number of users in the known population, which determines the method.
            The mean always covers only users with records: "clip" releases their number with the
            sum, "recentred" before it with 3% of the budget, and both divide by it if it clearly
            differs from the stated number. "softcore" ignores users without records, and finds no
            mean unless most users have records; "winsorized" treats them as the median, which is
            random unless most users have records. If it is unknown (None), only "clip" and
            "recentred" are possible.
        dimension: the public d. It is known for an array, a frame or a table, but must be stated
            for a list; otherwise, a row could determine the shape of the release.
        weights: equal weight for all ``users``, or weights by their number of ``records``, up to
            ``max_records``. The latter is the mean of the average record, not of the average
            person, and only for "clip", "recentred" and "auto" in this process. A user counts as
            min(records, max_records)/max_records: vectors, less a released centre, and weights have
            one noise. If the noise obscures the sum of weights, the centre is published, with a
            warning.
        max_records: the public number of a user's records above which the weight no longer grows,
            with ``weights="records"``. If it is None, a number that few users exceed is chosen
            privately, with 10% of the budget. More noise per record comes with a larger number.
        random_state: seed, for tests and research. The release is then *not private*.

    Raises:
        ParameterError: if a value is out of range, d is not stated for a list, there are too few
            users for the method, or the method does not support rows on Spark; and after charging,
            if more users have records than stated and the method compares them.

    Recentring clips the share :attr:`MeanOfUsers.outside` of the most distant users, unless a noisy
    check shows that this moves the mean: in that case, all users are clipped to the bound.
    :attr:`MeanOfUsers.error` covers this. An error much larger than the noise can hide an outlier.

    Formal guarantee: (ε, δ)-DP for users, for any records. If users' vectors are close together,
    the noise is smaller (Levy et al. 2021, Asi & Liu 2024): about 1/√m of the clipped mean's for m
    independent records each. Source: docs/theory, "Means of users", "Users
    weighted by records".

    >>> rng = np.random.default_rng(0)
    >>> X, users = 5 + rng.normal(size=(40_000, 3)), np.repeat(np.arange(4000), 10)
    >>> mean = mean_of_users(
    ...     X, users=users, bound=100.0, epsilon=1.0, delta=1e-6, random_state=1)
    >>> mean.method, mean.value.round().tolist(), mean.std_error < 0.01
    ('recentred', [5.0, 5.0, 5.0], True)

    If half of the users have one record of about 0, and half have 20 records of about 1, the
    average person has 0.5, and the average record 20/21:

    >>> users = np.repeat(np.arange(4000), np.tile([1, 20], 2000))
    >>> X = users[:, None] % 2 + rng.normal(scale=0.1, size=(users.size, 1))
    >>> options = {"bound": 5.0, "epsilon": 1.0, "delta": 1e-6, "random_state": 1}
    >>> people = mean_of_users(X, users=users, **options)
    >>> records = mean_of_users(X, users=users, weights="records", max_records=20, **options)
    >>> people.value.round(1).tolist(), records.value.round(2).tolist(), records.max_records
    ([0.5], [0.95], 20)
    """
    records = _collect_records(X, users, dimension)
    promise = Promise.of(User(), epsilon, delta, relation, share)
    bound = _check_bounds(bound, radius)
    resolved = _resolve_method(method, on_cluster=records.distributed)
    if not resolved.pure:
        promise.require_delta(
            "delta must be above 0, such as 1e-6, because means of users use Gaussian noise; only "
            "method='winsorized' of one column supports 0."
        )
    if n_users is not None:
        n_users = _validate.integer(minimum=1, n_users=n_users)
    check_weights(weights, max_records)
    if weights == "records":
        _check_weighted(resolved, on_cluster=records.distributed)
    return UserMeanQuery(
        promise, records, bound, radius, resolved, n_users, weights, max_records, random_state
    )


@dataclass(frozen=True, eq=False, repr=False)
class UserMeanQuery(Query[MeanOfUsers]):
    """Query for a mean of users' vectors."""

    promise: Promise
    records: Records
    bound: float
    radius: float | None
    method: Method
    n_users: int | None = None
    weights: Weights = "users"
    max_records: int | None = None
    random_state: RandomState = None

    def __post_init__(self) -> None:
        self.check_unit(User())

    @cached_property
    def roster(self) -> Population:
        """Release of the number of users with records, if the method releases it first."""
        # A stated population does not reveal how many of its users have records.
        return Population.create(None, self.promise)

    @cached_property
    def limit(self) -> RecordLimit | None:
        """Largest number of records, for weights by records, and its choice if it is not stated."""
        return RecordLimit.create(self.weights, self.max_records, self.promise)

    @cached_property
    def candidate(self) -> Candidate:
        """Private mean, or the maximum cost if the number of users is released first."""
        n = self.n_users
        problem = Problem(
            n or 1,
            self.records.dimension,
            self.promise,
            self.bound,
            self.radius,
            None if self.promise.delta == 0 else self.roster.event,
            n is not None and self.limit is None,
            None if self.limit is None else self.limit.event,
        )
        if self.limit is not None:
            assert self.method.weighted is not None  # noqa: S101 - checked by the function
            return self.method.weighted(problem)
        candidate = _max_cost(self.method, problem) if n is None else self.method.make(problem)
        if n is not None and candidate.compares and self.records.has_more_users_than(n):
            raise _population_error(n, candidate)
        return candidate

    @property
    def plan(self) -> Plan:
        """Noise of the mean and, if it is released first, of the number of users."""
        candidate, n, limit = self.candidate, self.n_users, self.limit
        number = self.roster.event if candidate.counts else None
        if limit is None:
            parts = present({**candidate.parts, "number of users": number})
        else:
            own = {"record limit": limit.event, "total weight": number}
            parts = present({**own, **candidate.parts})
        guarantee = array_guarantee(
            self.promise,
            compose(parts),
            (
                *(() if n is None else Population.create(n, self.promise).facts),
                *(self._counted if candidate.counts else ()),
                *(() if limit is None else limit.facts),
                Fact("dimension", (self.records.dimension,)),
                Fact("record-bound", (self.bound,)),
                *candidate.facts,
            ),
            users=self.records.labels,
            elements=None,
            rows=self.records.origin,
        )
        # Without a population or a radius, the distances between users' vectors are unknown.
        unknown = self.radius is None or n is None or limit is not None
        expected = None if unknown else Expected(candidate.expected)
        return Plan(guarantee, n, expected=expected, parts=parts)

    @property
    def _counted(self) -> tuple[Fact, ...]:
        """The public facts about the released number of users, or sum of weights."""
        if self.limit is None:
            return self.roster.facts
        return (Fact("summed-weights", (SHARE, self.roster.noise_sd)),)

    def run(self, charge: Charge) -> MeanOfUsers:
        """Compute users' vectors, and publish their mean."""
        candidate, n = self.candidate, self.n_users
        source, limit = charge.rounds(candidate.event), self.limit
        weighted = limit is not None
        with self.records.user_vectors(charge, self.bound, sizes=weighted) as (
            vectors,
            count_users,
        ):
            if limit is not None:
                return self._run_weighted(charge, source, vectors, limit)
            if n is not None and candidate.compares and count_users() > n:
                raise _population_error(n, candidate)
            number = None
            if candidate.counts:
                roster = self.roster
                number = UserCount(roster.size(count_users, charge), roster.noise_sd, n)
                candidate = candidate if candidate.then is None else candidate.then(number)
            mean = _clip_result(
                candidate.run(vectors, source, number), self.bound, charge.guarantee, candidate
            )
            return replace(mean, names=self.records.names)

    def _run_weighted(
        self, charge: Charge, source: CountedSource, vectors: Vectors, limit: RecordLimit
    ) -> MeanOfUsers:
        """Publish the mean of vectors, each with the user's number of records."""
        candidate, d = self.candidate, self.records.dimension
        noise: float = candidate.parts["sum and weight"].noise_multiplier  # type: ignore[attr-defined]
        most = limit.choose(vectors.vectors()[:, -1], noise, d, charge).most
        shares, number = vectors.mapped(RecordShares(most)), None
        if candidate.counts and candidate.then is not None:
            event = self.roster.event
            assert event is not None  # noqa: S101 - a sum of weights is never stated
            number = weighted.total_weight(shares, event, charge.rounds(event))
            candidate = candidate.then(number)
        mean = _clip_result(
            candidate.run(shares, source, number), self.bound, charge.guarantee, candidate
        )
        if not mean.resolved:
            warn_unreliable_result([("unclear-weights",)])
        return replace(mean, names=self.records.names, max_records=most)


def _population_error(n_users: int, candidate: Candidate) -> ParameterError:
    return ParameterError(
        f"n_users must be the size of a roster that includes every id passed, not {n_users}, "
        f"because the method {candidate.method!r} compares users; pass its size, or omit n_users.",
        name="n_users",
    )


def _clip_result(
    estimate: MeanEstimate, bound: float, guarantee: Guarantee, plan: Candidate
) -> MeanOfUsers:
    """Return the result for publication, clipped to the bound like the mean itself."""
    value, length = estimate.value, float(np.linalg.norm(estimate.value))
    if length > bound:
        value, length = value * (bound / length), bound
    # The distance of two vectors within the bound is at most this.
    most = bound + length
    known = estimate.error < most or math.isnan(most)
    return MeanOfUsers(
        value,
        estimate.noise_sd,
        guarantee,
        plan.method,
        plan.choice,
        estimate.radius,
        estimate.outside,
        estimate.n_users,
        estimate.error if known else most,
        estimate.covers if known else "bound",
    )


def _collect_records(X: Any, users: Any, dimension: int | None) -> Records:
    """Return records with their users, wherever they are stored."""
    if not isinstance(X, Records) and not is_distributed(X):
        return LocalRecords.from_arrays(X, users, dimension)
    records = X if isinstance(X, Records) else distributed_mean.TableRecords.from_frame(X, users)
    if dimension is not None:
        check_dimension(_validate.integer(minimum=1, dimension=dimension), records.dimension)
    return records


def _resolve_method(method: str | Method, *, on_cluster: bool) -> Method:
    """Return the requested method."""
    if not isinstance(method, Method):
        _validate.one_of((AUTO.name, *METHODS), method=method)
        method = AUTO if method == AUTO.name else get_method(method)
    if on_cluster:
        distributed_mean.require_sums(method)
    return method


def _check_weighted(method: Method, *, on_cluster: bool) -> None:
    """Reject what weights by records do not support."""
    if on_cluster:
        raise ParameterError(
            "weights must be 'users' for rows on a cluster, not 'records'; change it, "
            "or bring the rows here (frame.toPandas()).",
            name="weights",
        )
    if method.weighted is None:
        raise ParameterError(
            f"weights must be 'users' with the method {method.name!r}, not 'records', because it "
            "compares users; use 'clip', 'recentred' or 'auto'.",
            name="weights",
        )


def _max_cost(method: Method, problem: Problem) -> Candidate:
    """Return the maximum cost, fixed before the number of users is released."""
    if method.make_without_n is None:
        raise ParameterError(
            f"n_users is required with the method {method.name!r}, because its cost depends on "
            "the size of the roster; pass n_users, or use 'recentred' or 'clip'.",
            name="n_users",
        )
    return method.make_without_n(problem)


def _check_bounds(bound: float, radius: float | None) -> float:
    if not 1e-90 <= _validate.positive(bound=bound) <= 1e90:
        raise ParameterError(
            f"bound must be between 1e-90 and 1e90, not {_validate.describe(bound)}; rescale.",
            name="bound",
        )
    if radius is not None and not 2.0**-20 * bound <= _validate.positive(radius=radius) <= bound:
        raise ParameterError(
            f"radius must be between a millionth of the bound, {bound:g}, and the bound, not "
            f"{radius!r}.",
            name="radius",
        )
    return float(bound)


def _best(problem: Problem) -> Candidate:
    """Return iterations if there are enough users, otherwise clipping to the bound."""
    with suppress(ParameterError):
        recentred = get_method("recentred").make(problem)
        if recentred.is_recommended:
            return _explained(problem, recentred)
    return _explained(problem, CLIP.make(problem))


def _explained(problem: Problem, best: Candidate) -> Candidate:
    """Return a private mean with the number of users on which its choice is based."""
    return replace(best, choice=("stated" if problem.stated else "released", problem.n))


def _best_unstated(problem: Problem) -> Candidate:
    """Return the maximum cost of iterations; the number of users decides later."""
    spent = recentring_budget.max_schedule(problem)
    before = recentring_budget.candidate_without_n(problem, or_mean=True)

    return replace(
        before, then=lambda number: _best_for_count(replace(problem, n=number.divisor), spent)
    )


def _best_for_count(problem: Problem, spent: Recentred) -> Candidate:
    """Return iterations for enough users, otherwise a clipped mean of the same cost."""
    recentred = recentring_budget.with_known_count(problem, spent)
    if recentred.is_recommended:
        return _explained(problem, recentred)
    norm = clip_with_weight(problem.bound, problem.d).norm
    mean = ClippedMean(
        norm, recentring_budget.total_noise_multiplier(spent), 1, 1, level="user", exact=True
    )
    return _explained(problem, around_zero(problem, mean))


AUTO = Method(
    "auto",
    _best,
    make_without_n=_best_unstated,
    distributed=True,
    weighted=lambda problem: weighted.recentred_candidate(problem, or_clip=True),
)
