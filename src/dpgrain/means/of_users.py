"""``dg.mean_of_users``: the mean of one vector per user, by the private mean that suits it best."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain._wording import counted, rounded_up, shown
from dpgrain.arrays.blocks import arrange
from dpgrain.arrays.guarantees import guarantee_of
from dpgrain.arrays.roster import Roster
from dpgrain.errors import ParameterError
from dpgrain.inputs.numbers import cells
from dpgrain.means import Recentred, Vectors, clipped, looks
from dpgrain.means.clipped import METHOD as CLIP
from dpgrain.means.clipped import ClippedMean, around_zero
from dpgrain.means.methods import METHODS, method_of
from dpgrain.means.problem import Candidate, Method, Problem
from dpgrain.noise import RandomState, source_of
from dpgrain.publishing import Promise, before_publishing, takes_share
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.units import Relation, User


@dataclass(frozen=True)
class MeanOfUsers:
    """The mean over users of one vector each, as it is published.

    Args:
        value: (d,) the mean; not a number where users did not agree, as "softcore" and a search for a
            radius may find: then state a larger radius, or ask for another method.
        std_error: the standard deviation of the noise of each coordinate; not a number without a mean.
            What clipping takes from users far from the others is not in it.
        guarantee: what is promised.
        method: which private mean it is.
        reason: why, in one sentence, from public numbers.
        radius: how far from the centre users count in full; as stated, as found, or the bound.
        outside: about the share of the users that lie farther away and are drawn in to there, which is
            not in ``std_error``; 0 where all count in full.
        n_users: the number of users that sums were divided by: as stated, or as released with noise,
            whose part of the error is in ``std_error`` where it does not vanish.

    >>> found = mean_of_users(np.ones((100, 2)), bound=2.0, epsilon=1.0, delta=1e-6, method="clip")
    >>> found.method, sorted(found.to_dict())[:3]
    ('clip', ['guarantee', 'method', 'n_users'])
    >>> sure = mean_of_users(
    ...     np.ones((100, 2)), bound=2.0, epsilon=1e6, delta=1e-6, method="clip", n_users=100
    ... )
    >>> str(sure).split("\\n")[0]
    'mean (1, 1) ± 1.96e-5 each (clip).'
    """

    value: FloatArray
    std_error: float
    guarantee: Guarantee
    method: str
    reason: str
    radius: float
    outside: float = 0.0
    n_users: int = 0

    def __str__(self) -> str:
        if not np.isfinite(self.value).all():
            found = f"no mean of {counted(len(self.value), 'number')}: users did not agree"
            return f"{found} ({self.method}).\n{self.guarantee}"
        drawn = ""
        if self.outside:
            drawn = (
                f"; about {self.outside:.2g} of the users lie farther than {self.radius:.3g} from the "
                "centre and are drawn in, which is not in the error"
            )
        return (
            f"mean {shown(self.value)} ± {rounded_up(self.std_error, 3)} each "
            f"({self.method}{drawn}).\n{self.guarantee}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The release as plain JSON values; null for what is not a number."""
        agreed = bool(np.isfinite(self.value).all())
        return {
            "value": self.value.tolist() if agreed else None,
            "std_error": self.std_error if agreed else None,
            "method": self.method,
            "reason": self.reason,
            "radius": self.radius if math.isfinite(self.radius) else None,
            "outside": self.outside,
            "n_users": self.n_users,
            "guarantee": self.guarantee.to_dict(),
        }

    def to_json(self) -> str:
        """The release as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)


@takes_share
def mean_of_users(
    X: ArrayLike,
    *,
    users: Any = None,
    bound: float,
    epsilon: float | None = None,
    delta: float = 0.0,
    share: float | None = None,  # noqa: ARG001 - read by takes_share
    radius: float | None = None,
    method: str | Method = "auto",
    relation: Relation = "zero_out",
    n_users: int | None = None,
    dimension: int | None = None,
    random_state: RandomState = None,
) -> MeanOfUsers:
    """Publish the mean of users' vectors, each the mean of a user's records.

    Args:
        X: (m, d) records: an array, a data frame, an Arrow table; or a list of rows. What is not
            a finite number counts as 0, as all of a list's row does that has not d cells.
        users: (m,) whose each record is; None for one record per user. A record without user is left
            out.
        bound: the public bound B on the l2 norm of a record; longer ones are shortened to it.
        epsilon: the promised ε.
        delta: the promised δ.
        share: the share of the open budget, such as 0.5, in place of ε and δ; see
            :func:`dpgrain.budget`.
        radius: the concentration radius τ: nearly all users' vectors lie within it of their common
            mean, as is known beforehand; None if it is not. Only accuracy rests on it.
        method: ``"clip"``: clip to the bound; ``"recentred"``: several looks, each around what the
            last one has found; ``"softcore"``: the mean of the users close to most others, for few
            users; ``"winsorized"``: an interval for every coordinate; ``"auto"``: what is expected to
            err least, from n, d, ε, δ, the bound and the radius. A :class:`~dpgrain.means.Method`
            of your own is possible, too.
        relation: the neighbouring relation.
        n_users: the public size of the roster. If it is not known (None), about how many users have
            records is released first, with 3% of the budget, and only "clip" and "recentred" are
            possible. Users of a roster without records count as 0 (clip), as the centre (recentred,
            winsorized), or not at all. Where a share of the roster is missing, each look of
            ``"recentred"`` leaves that share of the way to go, which is not in the error: leave the
            roster out, state the number who have records, if that is public, or clip.
        dimension: the public d. An array, a frame or a table has it; of a list it must be stated: to
            take it from the rows would let one of them decide the shape of what is published.
        random_state: a seed, for tests and research: it makes the release not private.

    Raises:
        ParameterError: if a value is out of range, d is not stated for a list, or there are too few
            users for the method.

    Recentring draws in the share :attr:`MeanOfUsers.outside` of the users, who lie farthest, unless
    the noise of taking all in full is less than what that may cost; ``"clip"`` to a true bound is
    without bias.

    Formal guarantee: (ε, δ)-DP for users, whatever their records are. Users' vectors that lie close
    together have less noise (Levy et al. 2021, Asi & Liu 2024): about 1/√m of the clipped mean's for m
    independent records each. Source: docs/theory.md, "Means of users".

    >>> rng = np.random.default_rng(0)
    >>> X, users = 5 + rng.normal(size=(40_000, 3)), np.repeat(np.arange(4000), 10)
    >>> mean = mean_of_users(X, users=users, bound=100.0, epsilon=1.0, delta=1e-6)
    >>> mean.method, mean.value.round().tolist(), mean.std_error < 0.01
    ('recentred', [5.0, 5.0, 5.0], True)
    """
    records = _records(X, dimension)
    promise = Promise.of(User(), epsilon, delta, relation)
    bound = _checked(bound, radius)
    asked = _asked(method)
    promise.require_delta("delta must be above 0, such as 1e-6: means of users have normal noise.")
    rows = arrange(len(records), users, None, User())
    roster = Roster.of(n_users, promise)
    problem = Problem(n_users or 1, records.shape[1], promise, bound, radius, roster.event)
    plan = _before(asked, problem) if n_users is None else asked.make(problem)
    if n_users is not None and rows.users > n_users and plan.compares:
        raise ParameterError(
            f"n_users = {n_users} must be the size of a roster that holds every id that is passed, "
            f"as the method {plan.method!r} compares users: state its size, or leave it out.",
            name="n_users",
        )
    source = source_of(random_state)
    guarantee = guarantee_of(
        promise,
        plan.event.beside(roster.event),
        (
            *roster.facts,
            f"vectors of {counted(problem.d, 'number')}",
            f"a bound of {bound:g}, which longer records are shortened to",
            *plan.facts,
        ),
        private=source.private,
        users=users,
        elements=None,
    )
    before_publishing(guarantee, n_users=n_users)
    n = roster.users(rows.users, source)
    if plan.then is not None:
        plan = plan.then(replace(problem, n=n))
    vectors = Vectors(user_means(records[rows.kept], rows.blocks, len(rows.owners), bound))
    value, error, far = plan.run(vectors, source)
    chosen = asked if plan.method == asked.name else method_of(plan.method)
    if chosen.centre is None:
        # A sum around 0 is off by as many shares of the mean as the number of users is.
        off = roster.noise_sd / n * float(np.linalg.norm(value)) / math.sqrt(problem.d)
        error = math.hypot(error, off)
    length = float(np.linalg.norm(value))
    if length > bound:
        # The mean is within the bound, whatever the noise says.
        value = value * (bound / length)
    drawn_in = plan.outside if far < bound else 0.0
    return MeanOfUsers(value, error, guarantee, plan.method, plan.reason, far, drawn_in, n)


def user_means(records: FloatArray, codes: NDArray[Any], users: int, bound: float) -> FloatArray:
    """The mean of each user's records, shortened to a bound.

    Args:
        records: (m, d).
        codes: (m,) the user of each, from 0.
        users: how many there are, each with a record.
        bound: the l2 norm that a record has at most.

    >>> user_means(np.array([[3.0], [1.0], [9.0]]), np.array([1, 1, 0]), 2, 4.0).tolist()
    [[4.0], [2.0]]
    """
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(users))
    sizes = np.bincount(codes, minlength=users)
    if users == 0:
        return np.zeros((0, records.shape[1]))
    # Each user's sum is made of that user's rows alone, in their order.
    sums = np.add.reduceat(clipped(records, bound)[order], starts, axis=0)
    means: FloatArray = sums / sizes[:, None]
    return means


def _records(X: Any, dimension: int | None = None) -> FloatArray:
    if dimension is not None:
        dimension = _validate.integer(minimum=1, dimension=dimension)
    elif isinstance(X, list | tuple):
        raise ParameterError(
            "dimension must be stated for a list of records, such as dimension=2: of rows of several "
            "lengths one would decide. Or pass an array, which has a shape."
        )
    array = cells(X, dimension)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype.kind not in "fiub":
        raise ParameterError("X must be numbers of shape (m, d), one row for each record.")
    if dimension not in (None, array.shape[1]):
        raise ParameterError(
            f"dimension = {dimension} must be the length of a record, which is {array.shape[1]}."
        )
    with np.errstate(all="ignore"):
        # Row by row in memory: sums along a row must not depend on how many rows there are.
        array = array.astype(np.float64, order="C")
    array[~np.isfinite(array)] = 0.0
    return array


def _asked(method: str | Method) -> Method:
    """The method that is asked for."""
    if isinstance(method, Method):
        return method
    _validate.one_of((AUTO.name, *METHODS), method=method)
    return AUTO if method == AUTO.name else method_of(method)


def _before(method: Method, problem: Problem) -> Candidate:
    """All that may be spent, fixed before the number of users is released.

    Raises:
        ParameterError: if the cost of the method follows from the number of users.
    """
    if method.unstated is None:
        raise ParameterError(
            f"n_users must be stated with the method {method.name!r}, whose cost follows from the size "
            "of the roster: state it, or use 'recentred' or 'clip'.",
            name="n_users",
        )
    return method.unstated(problem)


def _checked(bound: float, radius: float | None) -> float:
    if not 1e-90 <= _validate.positive(bound=bound) <= 1e90:
        raise ParameterError(
            f"bound must lie between 1e-90 and 1e90, not {bound!r}; rescale.", name="bound"
        )
    if radius is not None and not 2.0**-20 * bound <= _validate.positive(radius=radius) <= bound:
        raise ParameterError(
            f"radius must be at most the bound {bound:g}, and no less than a millionth of it, not "
            f"{radius!r}.",
            name="radius",
        )
    return float(bound)


def _best(problem: Problem) -> Candidate:
    """The private mean that is expected to err least."""
    # Clipping is possible with any number of users.
    candidates = [CLIP.make(problem)]
    for name in METHODS:
        method = method_of(name)
        # Without a radius only those that find the place by themselves are compared.
        if method is CLIP or not (method.alone or problem.radius is not None):
            continue
        try:
            found = method.make(problem)
        except ParameterError:
            # Too few users for it.
            continue
        if found.tells:
            candidates.append(found)
    return _chosen(problem, candidates)


def _chosen(problem: Problem, candidates: list[Candidate]) -> Candidate:
    """The one that is expected to err least, with the reason."""
    best = min(candidates, key=lambda each: each.expected)
    if problem.radius is not None:
        errors = (f"{each.method} {rounded_up(each.expected, 3)}" for each in candidates)
        why = f"the least error to expect with this radius: {', '.join(errors)}"
    else:
        why = method_of(best.method).why.format(people=problem.people, space=problem.space)
    return replace(best, reason=why)


def _best_unstated(problem: Problem) -> Candidate:
    """What looks may spend, of which they or one clipped mean are made for the number of users."""
    spent = looks.most(problem)
    before = looks.unstated(problem, ", or one mean of vectors clipped to the bound")
    return replace(before, then=lambda known: _best_of(known, spent))


def _best_of(problem: Problem, spent: Recentred) -> Candidate:
    """One clipped mean or looks, whichever is expected to err less, for what is spent."""
    # The whole of μ² in one sum.
    noise = looks.of_rounds(spent, 1).noise_multiplier
    mean = ClippedMean(problem.bound, noise, problem.n, 1, level="user", exact=True)
    clip, looking = around_zero(problem, mean), looks.remade(problem, spent)
    try:
        looks.shares(problem)
    except ParameterError:
        return _chosen(problem, [clip])
    return _chosen(problem, [clip, looking] if looking.tells else [clip])


AUTO = Method("auto", _best, unstated=_best_unstated)
