"""``dg.mean_of_users``: the mean of one vector per user, by the private mean that suits it best."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpgrain import _validate
from dpgrain._types import FloatArray
from dpgrain._wording import counted, rounded_up, shown
from dpgrain.accounting import Event
from dpgrain.arrays.blocks import arrange
from dpgrain.arrays.guarantees import promised
from dpgrain.arrays.roster import Roster
from dpgrain.errors import ParameterError, RunEnded
from dpgrain.inputs.numbers import cells
from dpgrain.means import (
    ClippedMean,
    Radius,
    Recentred,
    SoftCore,
    Vectors,
    Winsorized,
    clipped,
)
from dpgrain.means.recentred import RecentredRounds
from dpgrain.noise import RandomState, Source, source_of
from dpgrain.publishing import before_publishing, takes_share
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.units import RELATIONS, Relation, User

Method: TypeAlias = Literal["clip", "recentred", "softcore", "winsorized"]
METHODS: tuple[Method, ...] = ("clip", "recentred", "softcore", "winsorized")
#: Those whose cost does not follow from the number of users.
UNSTATED: tuple[Method, ...] = ("clip", "recentred")

# The share of ε that finds a radius that is not stated, between the bound and so little of it.
_FINDING, _SMALLEST = 0.2, 2.0**-14
# A radius at which most users agree is widened, for the others.
_WIDER = 2.0**0.5
# Recentring goes on only where the noise of a look around is at most this share of its radius, …
_NEARER = 0.25
# … looks take at most these shares of the budget, the first one and all together, …
_LOOK, _LOOKS = 0.0025, 0.16
# … and there are at most so many.
_MOST_LOOKS = 4
# The last look leaves so many users outside as its noise is of its radius, times this: what is cut off
# of them is then about as much; and never fewer than so many choices' noise, which tells who is there.
_OUTSIDE, _LEAST_OUTSIDE = 40.0, 8.0
# Where it takes more of them than this to tell, the result is a middle of most users, not a mean.
_MOST_OUTSIDE = 0.1


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
    method: Method
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
    method: Method | Literal["auto"] = "auto",
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
            err least, from n, d, ε, δ, the bound and the radius.
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
    bound = _checked(bound, radius, method, relation)
    epsilon = _validate.positive(epsilon=epsilon)
    if _validate.delta(allow_zero=True, delta=delta) == 0:
        raise ParameterError(
            "delta must be above 0, such as 1e-6: means of users have normal noise.", name="delta"
        )
    rows = arrange(len(records), users, None, User())
    roster = Roster.of(n_users, epsilon=epsilon, delta=delta, unit=User(), relation=relation)
    problem = _Problem(
        n_users or 1, records.shape[1], epsilon, delta, relation, bound, radius, roster.event
    )
    plan = problem.plan(method) if n_users is not None else problem.before(method)
    compares = isinstance(plan.mean, SoftCore) or plan.finder is not None
    if n_users is not None and rows.users > n_users and compares:
        raise ParameterError(
            f"n_users = {n_users} must be the size of a roster that holds every id that is passed, "
            f"as the method {plan.method!r} compares users: state its size, or leave it out.",
            name="n_users",
        )
    source = source_of(random_state)
    promise = promised(
        User(),
        relation,
        delta,
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
    before_publishing(promise, n_users=n_users)
    n = roster.users(rows.users, source)
    if n_users is None:
        plan = replace(problem, n=n).after(method, plan)
    vectors = Vectors(user_means(records[rows.kept], rows.blocks, len(rows.owners), bound))
    value, error, far = plan.run(vectors, source)
    if plan.method == "clip":
        # A sum around 0 is off by as many shares of the mean as the number of users is.
        off = roster.noise_sd / n * float(np.linalg.norm(value)) / math.sqrt(problem.d)
        error = math.hypot(error, off)
    length = float(np.linalg.norm(value))
    if length > bound:
        # The mean is within the bound, whatever the noise says.
        value = value * (bound / length)
    drawn_in = plan.mean.beyond if isinstance(plan.mean, Recentred) and far < bound else 0.0
    return MeanOfUsers(value, error, promise, plan.method, plan.reason, far, drawn_in, n)


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


def _checked(bound: float, radius: float | None, method: str, relation: Relation) -> float:
    _validate.one_of(("auto", *METHODS), method=method)
    _validate.one_of(RELATIONS, relation=relation)
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


@dataclass(frozen=True)
class _Plan:
    """A private mean, calibrated: public numbers only.

    Args:
        method: which one.
        mean: the aggregator; its radius is replaced by the one that is found, if one is.
        expected: the rms error to expect of the noise, if users lie within the radius that is stated.
        facts: what it takes as public, in words.
        finder: what finds a radius first.
        reason: why this one.
        tells: whether enough users are there for a mean, rather than a middle of most of them.
    """

    method: Method
    mean: ClippedMean | Recentred | SoftCore | Winsorized
    expected: float
    facts: tuple[str, ...] = ()
    finder: Radius | None = None
    reason: str = "as asked for"
    tells: bool = True

    @property
    def event(self) -> Event:
        return self.mean.event if self.finder is None else self.finder.event + self.mean.event

    def run(self, vectors: Vectors, source: Source) -> tuple[FloatArray, float, float]:
        """The value, the sd of its noise, and the radius."""
        mean = self.mean
        nothing = np.full(vectors.dimension, np.nan)
        if self.finder is not None and not isinstance(mean, ClippedMean):
            found = self.finder.find(vectors, source)
            if found is None:
                return nothing, math.nan, math.nan
            # So close lie most; almost all do a little farther away.
            mean = replace(mean, radius=min(found * _WIDER, 1e90))
        run = mean.start(source)
        try:
            for _ in range(mean.rounds):
                value = run.estimate(vectors)
        except RunEnded:
            return nothing, math.nan, mean.radius if isinstance(mean, SoftCore) else math.nan
        if isinstance(mean, Recentred) and isinstance(run, RecentredRounds):
            last = run.radii[-1]
            return value, mean.multiplier(mean.rounds - 1) * last / mean.n_users, last
        far = mean.clip if isinstance(mean, ClippedMean) else mean.radius
        assert isinstance(far, float)  # noqa: S101 - for the type checker
        return value, mean.noise_sd, far


@dataclass(frozen=True)
class _Problem:
    """What is known beforehand: how many users, coordinates, and how much may be told.

    Where the number of users is not stated, ``n`` is 1 before it is released, and what was released
    after; ``beside`` is that release.
    """

    n: int
    d: int
    epsilon: float
    delta: float
    relation: Relation
    bound: float
    radius: float | None
    beside: Event | None = None

    def plan(self, method: Method | Literal["auto"]) -> _Plan:
        """The private mean that is asked for, or the one that is expected to err least."""
        if method != "auto":
            return self._made(method)
        # Without a radius only those that find the place by themselves are compared.
        possible: tuple[Method, ...] = ("clip", "recentred") if self.radius is None else METHODS
        # Clipping is possible with any number of users.
        plans = [self._made(possible[0])]
        for each in possible[1:]:
            try:
                plan = self._made(each)
            except ParameterError:
                # Too few users for it.
                continue
            if plan.tells:
                plans.append(plan)
        return self._chosen(plans)

    def _chosen(self, plans: list[_Plan]) -> _Plan:
        """The one that is expected to err least, with the reason."""
        best = min(plans, key=lambda plan: plan.expected)
        if self.radius is not None:
            errors = (f"{plan.method} {rounded_up(plan.expected, 3)}" for plan in plans)
            why = f"the least error to expect with this radius: {', '.join(errors)}"
        elif best.method == "clip":
            why = (
                f"{self._people} are too few to tell in {self._space} how far from each other they "
                "lie; state a radius if that is known, or ask for method='recentred', the middle of "
                "most of them"
            )
        else:
            why = (
                f"{self._people} can look for their centre in {self._space}, so that noise "
                "follows how close to it they lie, not the bound"
            )
        return replace(best, reason=why)

    def before(self, method: Method | Literal["auto"]) -> _Plan:
        """All that may be spent, fixed before the number of users is released.

        Raises:
            ParameterError: if the cost of the method follows from the number of users.
        """
        if method == "clip":
            return self._clip()
        if method not in ("auto", "recentred"):
            raise ParameterError(
                f"n_users must be stated with the method {method!r}, whose cost follows from the size "
                "of the roster: state it, or use 'recentred' or 'clip'.",
                name="n_users",
            )
        mean = Recentred.calibrate(
            **self._promise, rounds=_MOST_LOOKS + 1, radius=2 * self.bound, choose=True
        )
        facts = (
            f"at most {_MOST_LOOKS + 1} looks, each around what the one before has published, as far "
            "as a radius that is chosen inside the budget"
            + (", or one mean of vectors clipped to the bound" if method == "auto" else "")
            + "; how many, and how they share the noise, follows from the number that was released",
        )
        return _Plan("recentred", mean, math.inf, facts)

    def after(self, method: Method | Literal["auto"], spent: _Plan) -> _Plan:
        """The mean for the number of users that was released, at no more than what is spent.

        Args:
            method: as asked for.
            spent: from :meth:`before`. Sums have as much of μ² together, in whatever parts, and there
                are no more choices of radii, each with the same noise.
        """
        if method == "clip":
            return replace(spent, mean=replace(spent.mean, n_users=self.n))
        assert isinstance(spent.mean, Recentred)  # noqa: S101 - as it was made
        looks = self._looks(spent.mean)
        if method == "recentred":
            return looks
        # The whole of μ² in one sum.
        one = _of_rounds(spent.mean, 1)
        mean = ClippedMean(self.bound, one.noise_multiplier, self.n, 1, level="user", exact=True)
        clip = _Plan("clip", mean, mean.noise_sd * math.sqrt(self.d))
        try:
            self._shares()
        except ParameterError:
            return self._chosen([clip])
        return self._chosen([clip, looks] if looks.tells else [clip])

    def _looks(self, spent: Recentred) -> _Plan:
        """Looks for as many users, made of what is spent."""
        try:
            shares = self._shares()
        except ParameterError:
            # Too few users for it: asked for nevertheless, it is the middle of most of them.
            shares = (_LOOKS, 1 - _LOOKS)
        far = (2 * self.bound,) * (len(shares) - 1) + (self.radius or 2 * self.bound,)
        mean = replace(_of_rounds(spent, len(shares)), n_users=self.n, shares=shares, radius=far)
        return self._around(mean)

    def _made(self, method: Method) -> _Plan:
        match method:
            case "clip":
                return self._clip()
            case "recentred":
                return self._recentred()
            case "softcore":
                return self._softcore()
            case "winsorized":
                return self._winsorized()

    def _clip(self) -> _Plan:
        mean = ClippedMean.calibrate(
            **self._promise, clip=self.bound, rounds=1, unit=User(), exact=True
        )
        return _Plan("clip", mean, mean.noise_sd * math.sqrt(self.d))

    def _recentred(self) -> _Plan:
        shares = self._shares()
        options: dict[str, Any] = {**self._promise, "rounds": len(shares), "shares": shares}
        far = (2 * self.bound,) * (len(shares) - 1) + (self.radius or 2 * self.bound,)
        return self._around(Recentred.calibrate(**options, radius=far, choose=True))

    def _around(self, mean: Recentred) -> _Plan:
        """Looks, with the share of users that the last one leaves outside."""
        least = _LEAST_OUTSIDE * mean.choice_scale / self.n
        outside = min(max(_OUTSIDE * self._blurred(), least), 0.5)
        mean = replace(mean, beyond=outside, bound=self.bound)
        facts = (
            f"{mean.rounds} looks, each around what the one before has published, as far as a radius "
            f"that is chosen inside the budget, at most {mean.radius_of(mean.rounds - 1):g} in the "
            f"end, and leaves about {outside:.0%} of the users outside then",
        )
        expected = mean.noise_sd * math.sqrt(self.d)
        if self.radius is not None:
            return _Plan("recentred", mean, expected, facts)
        # Of a radius that is not known the least there is any hope of.
        return _Plan("recentred", mean, expected * _SMALLEST, facts, tells=least <= _MOST_OUTSIDE)

    def _shares(self) -> tuple[float, ...]:
        """The shares of the budget of a few looks, each twice the last, and of the mean itself."""
        blurred = self._blurred()
        first = max(_LOOK, (blurred / _NEARER) ** 2)
        looks = min(_MOST_LOOKS, math.floor(math.log2(_LOOKS / first + 1)))
        if looks < 1:
            enough = math.ceil(self.n * blurred / (_NEARER * math.sqrt(_LOOKS)))
            raise ParameterError(
                f"n_users = {self.n:,} are too few for the method 'recentred' in {self._space}: "
                f"about {enough:,} suffice; use 'clip', or 'softcore'.",
                name="n_users",
            )
        spent = [first * 2**look for look in range(looks)]
        return (*spent, 1 - sum(spent))

    @property
    def _people(self) -> str:
        """How many users there are, or about how many, in words."""
        return ("" if self.beside is None else "about ") + counted(self.n, "user")

    @property
    def _space(self) -> str:
        return counted(self.d, "dimension")

    def _blurred(self) -> float:
        """The rms noise of a mean to which the whole budget goes, ÷ its radius."""
        return self._clip().expected / self.bound

    def _softcore(self) -> _Plan:
        finder, options = self._found()
        radius = self.radius or self.bound
        mean = SoftCore.calibrate(**{**self._promise, **options}, rounds=1, radius=radius)
        facts = (
            self._near(finder),
            f"no mean unless about {int(mean.event.threshold):,} users are close to as many",
        )
        return _Plan("softcore", mean, mean.noise_sd * math.sqrt(self.d), facts, finder)

    def _winsorized(self) -> _Plan:
        finder, options = self._found()
        # Intervals of the smallest radius are the hardest to find.
        radius = self.radius or self.bound * _SMALLEST
        mean = Winsorized.calibrate(
            **{**self._promise, **options},
            rounds=1,
            radius=radius,
            bound=self.bound,
            dimension=self.d,
        )
        facts = (
            self._near(finder),
            f"vectors padded to {mean.size:,} coordinates, rotated by public random signs, and each "
            "coordinate clipped to an interval that is chosen inside the budget",
        )
        return _Plan("winsorized", mean, mean.noise_sd * math.sqrt(self.d), facts, finder)

    def _near(self, finder: Radius | None) -> str:
        """Where the concentration radius comes from, in words."""
        if finder is None:
            return f"a concentration radius of {self.radius:g}, which only accuracy rests on"
        return (
            f"a concentration radius found with {_FINDING:.0%} of ε, from {finder.smallest:.3g} to "
            f"{finder.largest:g}"
        )

    def _found(self) -> tuple[Radius | None, dict[str, Any]]:
        """What finds a radius that is not stated, and the rest of the promise."""
        if self.radius is not None:
            return None, {}
        finder = Radius.calibrate(
            epsilon=_FINDING * self.epsilon,
            n_users=self.n,
            smallest=self.bound * _SMALLEST,
            largest=self.bound,
            relation=self.relation,
        )
        return finder, {"beside": finder.event.beside(self.beside)}

    @property
    def _promise(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "n_users": self.n,
            "relation": self.relation,
            "beside": self.beside,
        }


def _of_rounds(mean: Recentred, rounds: int) -> Recentred:
    """As many rounds as these, whose sums have no more of μ² together."""
    noise = mean.noise_multiplier * math.sqrt(rounds / mean.rounds) * (1 + 1e-12)
    return replace(mean, noise_multiplier=noise, rounds=rounds, shares=None)
