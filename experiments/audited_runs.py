"""Audits of fits, means of users, shuffled sums, streams, choices, scores and networks.

    python experiments/audited_runs.py [--only WORDS] [--canaries 2000] [--draws 200000] [--runs 2000]
        [--write]

Queries that ``dg.audit`` rejects, because they draw their own noise or use arrays, each for
all possible units: claims at ε = 3 (δ = 10⁻⁶, or 0 for pure DP), lower bounds on ε in one of three
ways (``ways_of_audit.py``), and the smallest excess that the audit would detect, found by running
the same query with more ε. All bounds of the table have joint confidence 0.99. Networks need
PyTorch, and Hugging Face's loop transformers. ``--write`` puts the table into the page on audits.
The exit code is 4 if a claim is refuted.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np
from audits import put
from numpy.typing import NDArray
from ways_of_audit import OneRun, OnNeighbours, Size, Way, WholeRuns, audited

import dpgrain as dg
from dpgrain import learn, papers, shuffle
from dpgrain._formatting import powers
from dpgrain.accounting import PureDP
from dpgrain.accounting.events.best_of import SelectBest
from dpgrain.auditing import AuditLine, Canaries
from dpgrain.means import ClippedMean, Vectors
from dpgrain.noise import RandomSource, SystemSource
from dpgrain.optimize import Constant, Last, Sgd
from dpgrain.publishing.charge import Charge
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.query import Query
from dpgrain.units import Unit

Array: TypeAlias = NDArray[np.float64]
EPSILON, DELTA, CONFIDENCE = 3.0, 1e-6, 0.99
# δ for audits of draws and whole runs if the guarantee is not pure.
LARGE_DELTA = 0.01
UNITS: dict[str, Unit] = {
    "record": dg.Record(),
    "element": dg.Element(),
    "user": dg.User(),
    "user of 3 elements": dg.User(max_elements=3),
}
# The canaries of each unit: their records, and the number of elements per user.
HELD = {"record": (1, 1), "element": (2, 2), "user": (3, 1), "user of 3 elements": (3, 1)}
# Rounds of a descent, each of all blocks, and the size of its steps: so small that no canary is
# fitted on the way, and each gradient is clipped.
ROUNDS, STEP = 4, 1e-6


@dataclass(frozen=True)
class Case:
    """A query of the table."""

    query: str
    unit: str
    options: str
    way: Way

    def __str__(self) -> str:
        return ", ".join(part for part in (self.query, self.unit, self.options) if part)


# ------------------------------------------------------------------------------------------ one run


def of_units(
    query: str,
    train: Callable[[str, Canaries, float], Any],
    options: str = "",
    units: tuple[str, ...] = tuple(UNITS),
) -> Iterator[Case]:
    """Yield a case for each unit, audited by canaries in one run."""
    for unit in units:
        records, elements = HELD[unit]
        yield Case(query, unit, options, OneRun(partial(train, unit), records, elements))


def whose(unit: str, rows: Canaries) -> dict[str, Any]:
    """Return the user ids, as the unit requires."""
    if unit == "record":
        return {}
    if unit == "user":
        return {"users": rows.users}
    # A user with three counted elements has each record in a separate one.
    elements = np.arange(len(rows.users)) % 3 if unit != "element" else rows.elements
    return {"users": rows.users, "elements": elements}


def fitted(
    estimator: str, options: dict[str, Any], unit: str, rows: Canaries, epsilon: float
) -> tuple[Array, Guarantee]:
    """Fit a model to canaries: each has a separate feature with a slope that is never 0."""
    asked: dict[str, Any] = {"clip": 1.0, "rounds": ROUNDS, "sampling": "full", "algorithm": STEPS}
    if estimator in ("LinearSVC", "LogisticRegression"):
        asked["classes"] = [0.0, 1.0]
    target = 2.0 if estimator == "PoissonRegressor" else 1.0
    model = getattr(learn, estimator)(
        unit=UNITS[unit], epsilon=epsilon, delta=DELTA, n_users=rows.n_users, fit_intercept=False,
        **{**asked, **options},
    )  # fmt: skip
    model.fit(rows.gradients, np.full(len(rows.gradients), target), **whose(unit, rows))
    return np.ravel(model.coef_), model.guarantee_


STEPS = Sgd(Constant(STEP), average=Last())


class Towards:
    """A loss with the record as its gradient."""

    def value(self, theta: Any, X: Any, y: Any) -> Any:  # noqa: ARG002 - as losses are called
        """Return the loss of each record."""
        return X @ theta

    def gradient(self, theta: Any, X: Any, y: Any) -> Any:  # noqa: ARG002 - as losses are called
        """Return the gradient of each record."""
        return X

    def proximal(self, theta: Any, X: Any, y: Any, step: Any) -> Any:  # noqa: ARG002
        """Return the least point of each record's loss and of the distance to a point."""
        return theta - step * X


def minimised(
    options: dict[str, Any], unit: str, rows: Canaries, epsilon: float
) -> tuple[Array, Guarantee]:
    """Minimise a loss with the canaries as gradients."""
    start = np.zeros(rows.gradients.shape[1])
    asked: dict[str, Any] = {"solver": STEPS, "rounds": ROUNDS, "sampling": "full"}
    found = learn.minimise(
        Towards(), rows.gradients, np.zeros(len(rows.gradients)), start, epsilon=epsilon,
        delta=DELTA, unit=UNITS[unit], n_users=rows.n_users, **whose(unit, rows),
        **{**asked, **options},
    )  # fmt: skip
    return start - found.theta, found.guarantee


def by_default(unit: str, rows: Canaries, epsilon: float) -> tuple[Array, Guarantee]:
    """Fit a model with default options: its slope is the same for any fit.

    Bound, number of users and steps are found inside the budget; the noisy gradients are published.
    """
    model = learn.QuantileRegressor(unit=UNITS[unit], epsilon=epsilon, delta=DELTA)
    model.fit(rows.gradients, np.full(len(rows.gradients), 1e12), **whose(unit, rows))
    width = rows.gradients.shape[1]
    return -model.history_.gradients[:, :width].sum(axis=0), model.guarantee_


def by_recipe(
    recipe: papers.Recipe, unit: str, rows: Canaries, epsilon: float
) -> tuple[Array, Guarantee]:
    """Minimise by a recipe, which publishes the mean of each round."""
    X = rows.gradients / np.linalg.norm(rows.gradients, axis=1, keepdims=True)
    start = np.zeros(X.shape[1])
    found = learn.minimise(
        Towards(), X, np.zeros(len(X)), start, epsilon=epsilon, delta=DELTA, solver=recipe,
        unit=UNITS[unit], n_users=rows.n_users, **whose(unit, rows),
    )  # fmt: skip
    return found.history.gradients.sum(axis=0), found.guarantee


def mean_of(
    options: dict[str, Any], unit: str, rows: Canaries, epsilon: float
) -> tuple[Array, Guarantee]:
    """Publish the mean of canaries, who are users."""
    del unit
    found = dg.mean_of_users(
        rows.gradients, users=rows.users, bound=1.0, epsilon=epsilon, delta=DELTA,
        n_users=rows.n_users, **options,
    )  # fmt: skip
    return found.value, found.guarantee


def summed(kind: Any, unit: str, rows: Canaries, epsilon: float) -> tuple[Array, Guarantee]:
    """Add up canaries without a curator; each device is a user."""
    del unit
    protocol = kind(
        n_users=rows.n_users, dim=rows.gradients.shape[1], epsilon=epsilon, delta=DELTA,
        relation="zero_out",
    )  # fmt: skip
    firsts = rows.gradients[np.unique(rows.users, return_index=True)[1]]
    return protocol.simulate(firsts), protocol.guarantee


def streamed(unit: str, rows: Canaries, epsilon: float) -> tuple[Array, Guarantee]:
    """Pass canaries through a stream; its state becomes visible after half of them."""
    del unit
    mean = papers.PanPrivate.calibrate(epsilon=epsilon, delta=DELTA, n_users=rows.n_users, rounds=1)
    width = rows.gradients.shape[1]
    stream, vectors = (
        papers.PanPrivateStream(mean, width),
        dict(zip(rows.users, rows.gradients, strict=True)),
    )
    half, published = mean.n_users // 2, None
    for place in range(mean.n_users):
        if place == half:
            seen = stream.state * mean.step
        published = stream.receive(vectors.get(place))
    # Earlier users are in the state, later ones in the additions since.
    after = np.asarray(published) * mean.n_users - seen
    score = np.where(np.arange(width) < half, seen, after)
    return score, Guarantee("user", "", "zero_out", DELTA, mean.event)


# ------------------------------------------------------------------- draws, and runs, on neighbours


def rows_of(unit: str, records: int) -> dict[str, Any]:
    """Return the user ids: the first row belongs to another user, all others to the unit."""
    if unit == "record":
        return {"unit": UNITS[unit]}
    users = np.minimum(np.arange(records), 1)
    return {
        "unit": UNITS[unit],
        "users": users,
        **({"elements": users} if unit == "element" else {}),
    }


def on_rows(
    query: str, ask: Callable[..., Query[Any]], options: str, one: float, other: float
) -> Iterator[Case]:
    """Yield cases of a query of numbers; a unit has three records, or is a record.

    Args:
        ask: a function of the numbers and user ids of rows.
        one: the number of all records of the unit.
    """

    def made(unit: str, epsilon: float) -> tuple[Query[Any], Query[Any]]:
        with_unit = [other, one] if unit == "record" else [other, one, one, one]
        some, none = (
            ask(np.array(rows), epsilon=epsilon, **rows_of(unit, len(rows)))
            for rows in (with_unit, [other])
        )
        return some, none

    for unit in ("record", "element", "user"):
        yield Case(query, unit, options, OnNeighbours(partial(made, unit)))


def far(candidate: float, x: Any) -> Any:
    """How far records are from a candidate."""
    return np.abs(x - candidate)


def chosen(method: Any, x: Array, **asked: Any) -> Query[Any]:
    """Choose one of eight candidates; a record at 0 makes the last worse than the others."""
    return dg.select.query([0.0] * 7 + [1.0], far, x, method=method, **asked)


def repeated(unit: str, epsilon: float, runs: int) -> tuple[Array, Array, Guarantee]:
    """Evaluate a candidate repeatedly; the score is the smallest published loss."""
    queries = [
        dg.select.query(
            [0.0], far, np.array(x), method="repeat", runs=2.0, n_users=1, epsilon=epsilon,
            **rows_of(unit, len(x)),
        )
        for x in ([0.0, 1.0], [0.0])
    ]  # fmt: skip
    one, other = (run_often(query, lambda choice: choice.loss or 0.0, runs) for query in queries)
    return one, other, queries[0].plan.guarantee


def run_often(query: Query[Any], score: Callable[[Any], float], runs: int) -> Array:
    """Return the scores of many runs of a query, each with independent noise."""
    guarantee, source, found = query.plan.guarantee, SystemSource(), np.empty(runs)
    for place in range(runs):
        with Charge(guarantee, source) as charge:
            found[place] = score(query.run(charge))
    return found


# The mean number of runs, and the probabilities of the best result without the unit and of the
# second best with it. With many runs the second is published more rarely by nearly e³ᵋ without it,
# if each run costs ε.
_MANY, _BEST, _SECOND = 20.0, 0.5, 0.3


def kept(epsilon: float, runs: int) -> tuple[Array, Array, Guarantee]:
    """Publish the best of a random number of runs; the score is whether it was the second best."""
    each = epsilon / 3
    event = PureDP(each, level="user")
    less = np.exp(-each)
    laws = [(_BEST * less, _SECOND), (_BEST, _SECOND * less)]
    source = SystemSource()

    def once(law: tuple[float, float], source: RandomSource) -> tuple[float, int]:
        uniform = float(source.words(1)[0]) / 2.0**64
        result = 2 if uniform < law[0] else int(uniform < sum(law))
        return float(result), result

    one, other = (
        np.array([
            dg.best_of(partial(once, law), event=event, mean=_MANY, source=source).result == 1
            for _ in range(runs)
        ], dtype=np.float64)
        for law in laws
    )  # fmt: skip
    return one, other, Guarantee("user", "", "zero_out", 0.0, SelectBest(event, _MANY))


def numbered(epsilon: float, runs: int) -> tuple[Array, Array, Guarantee]:
    """Add up numbers without a curator; the score is the sum."""
    protocol = shuffle.ScalarSum(
        n_users=100, bound=1.0, epsilon=epsilon, delta=DELTA, relation="zero_out"
    )
    one, other = (
        run_often(protocol.query(np.array(x)), lambda found: float(found.value[0]), runs)
        for x in ([9.0], [np.nan])
    )
    return one, other, protocol.guarantee


# A fifth of the users is sampled for each of six rounds; each user has a separate coordinate.
DRAWN, RATE, DRAWN_ROUNDS = 1000, 0.2, 6


def drawn_mean(epsilon: float, bands: int) -> ClippedMean:
    """Return the mean of sampled users, with noise of this number of bands."""
    return ClippedMean.calibrate(
        epsilon=epsilon, delta=DELTA, n_users=DRAWN, rounds=DRAWN_ROUNDS, sampling_rate=RATE,
        unit=dg.User(), bands=bands,
    )  # fmt: skip


def drawn(bands: int, epsilon: float, runs: int) -> tuple[Array, Array, Guarantee]:
    """Request the vectors of sampled users."""
    mean = drawn_mean(epsilon, bands)

    def published(vectors: Array) -> Array:
        run = mean.start(SystemSource(), np.arange(DRAWN))
        return np.array([run.estimate(Vectors(vectors)) for _ in range(mean.rounds)])

    return *drawn_scores(published, mean, runs), Guarantee(
        "user", "", "zero_out", DELTA, mean.event
    )


def drawn_scores(
    published: Callable[[Array], Array], mean: ClippedMean, runs: int
) -> tuple[Array, Array]:
    """Return scores of users who are there and of users who are not, of many runs.

    The score is the log likelihood ratio of all published values. With several bands, a user
    belongs to one part of the rounds, and no one knows which.

    Args:
        published: a function of the (users, users) vectors, which returns the (rounds, users) means.
        runs: the number of scores.
    """
    column = np.array(mean.matrix.column)
    found = []
    for length in (1e3, 0.0):
        scores = []
        for _ in range(-(-runs // DRAWN)):
            sums = published(length * np.eye(DRAWN)) * mean.divisor / mean.clip
            # Without its correlation, the noise of the rounds is independent.
            fresh = np.array([
                sum(weight * sums[place - back] for back, weight in enumerate(column[: place + 1]))
                for place in range(mean.rounds)
            ])  # fmt: skip
            by_round = np.array([
                log_ratio(fresh[place : place + mean.bands], column, mean)
                for place in range(mean.rounds)
            ])  # fmt: skip
            parts = [by_round[part :: mean.bands].sum(axis=0) for part in range(mean.bands)]
            scores.append(np.logaddexp.reduce(parts) - np.log(mean.bands))
        found.append(np.concatenate(scores)[:runs])
    return found[0], found[1]


def log_ratio(fresh: Array, column: Array, mean: ClippedMean) -> Array:
    """Return (users,) log likelihood ratios of one round with possibly sampled users.

    Args:
        fresh: (rounds, users) sums affected by the round, as multiples of the bound.
        column: (bands,) the effect.
    """
    effect = column[: len(fresh)]
    ratio = (effect @ fresh - effect @ effect / 2) / mean.noise_multiplier**2
    rate = min(mean.bands * mean.sampling_rate, 1.0)
    return np.asarray(np.log1p(rate * np.expm1(ratio)))


def drawn_descent(epsilon: float, runs: int) -> tuple[Array, Array, Guarantee]:
    """Minimise a loss by the gradients of drawn users."""

    def query(X: Array) -> Query[Any]:
        return learn.minimise.query(
            Towards(), X, np.zeros(DRAWN), np.zeros(DRAWN), epsilon=epsilon, delta=DELTA,
            unit=dg.User(), n_users=DRAWN, users=np.arange(DRAWN), solver=STEPS, clip=1.0,
            rounds=DRAWN_ROUNDS, sampling="pairs", sampling_rate=RATE,
        )  # fmt: skip

    guarantee = query(np.eye(DRAWN)).plan.guarantee

    def published(vectors: Array) -> Array:
        with Charge(guarantee, SystemSource()) as charge:
            return np.array(query(vectors).run(charge).history.gradients)

    return *drawn_scores(published, drawn_mean(epsilon, 1), runs), guarantee


def agreed(method: str, epsilon: float, runs: int) -> tuple[Array, Array, Guarantee]:
    """Publish the mean of a hundred users, all but one at 0.

    The score is the mean, and the least that there can be where none is found.
    """
    queries = [
        dg.mean_of_users.query(
            np.zeros((99, 1)) if end is None else np.append(np.zeros((99, 1)), [[end]], axis=0),
            bound=4.0, radius=0.5, n_users=100, method=method, epsilon=epsilon, delta=DELTA,
        )
        for end in (4.0, None)
    ]  # fmt: skip
    one, other = (
        run_often(query, lambda found: np.nan_to_num(found.value[0], nan=-4.0), runs)
        for query in queries
    )
    return one, other, queries[0].plan.guarantee


def descended(recipe: papers.Recipe, epsilon: float, runs: int) -> tuple[Array, Array, Guarantee]:
    """Minimise by a recipe of users who agree: of a hundred all but one are at 0.

    The score is the mean of the first round, and the least that there can be where none is found.
    """
    queries = [
        learn.minimise.query(
            Towards(), np.append(np.zeros((99, 1)), [[end]], axis=0), np.zeros(100), np.zeros(1),
            solver=recipe, unit=dg.User(), n_users=100, users=np.arange(100), epsilon=epsilon,
            delta=DELTA,
        )
        for end in (1.0, 0.0)
    ]  # fmt: skip

    def first(found: Any) -> float:
        return next((float(row[0]) for row in found.history.gradients), -1.0)

    with warnings.catch_warnings():
        # That a run ends where users do not agree is a part of the score.
        warnings.simplefilter("ignore", dg.EndedWarning)
        one, other = (run_often(query, first, runs) for query in queries)
    return one, other, queries[0].plan.guarantee


def typical(epsilon: float) -> tuple[Query[Any], Query[Any]]:
    """Publish a typical number of records of one user, and of none."""
    one, other = (
        papers.typical_records.query(np.zeros(users), epsilon=epsilon) for users in (1, 0)
    )
    return one, other


def released(noise: Any, epsilon: float) -> tuple[Query[Any], Query[Any]]:
    """Publish a mean of a function of users with one replaced element."""
    delta = DELTA if noise == "gaussian" else 0.0
    one, other = (
        papers.release_mean.query(
            np.array([value]), sensitivity=1.0, epsilon=epsilon, delta=delta, noise=noise
        )
        for value in (1.0, 0.0)
    )
    return one, other


# ------------------------------------------------------------------------------------------- cases


def cases() -> Iterator[Case]:
    """Yield all queries of the table."""
    for estimator in ESTIMATORS:
        yield from of_units(estimator, partial(fitted, estimator, {}))
    yield from of_units("LogisticRegression", partial(fitted, "LogisticRegression", TUNED), "tune")
    yield from of_units("QuantileRegressor", by_default, "defaults")
    yield from of_units("minimise", partial(minimised, {}))
    yield from of_units("minimise", partial(minimised, {"exact": True}), "exact")
    for recipe in RECIPES:
        yield from of_units(
            "minimise", partial(by_recipe, recipe), type(recipe).__name__, ("user",)
        )
    for method in ("clip", "recentred"):
        train = partial(mean_of, {"method": method, "radius": 1.0})
        yield from of_units("mean_of_users", train, method, ("user",))
    for method in ("winsorized", "softcore"):
        yield Case(
            "mean_of_users",
            "user",
            method,
            WholeRuns(partial(agreed, method), LARGE_DELTA, times=2),
        )
    for recipe in AGREEING:
        times = 0.25 if isinstance(recipe, papers.PhasedErmSco) else 1
        way = WholeRuns(partial(descended, recipe), LARGE_DELTA, times)
        yield Case("minimise", "user", type(recipe).__name__, way)
    for bands, options in ((1, "a fifth drawn"), (2, "a fifth drawn, 2 bands")):
        way = WholeRuns(partial(drawn, bands), LARGE_DELTA, times=20)
        yield Case("ClippedMean", "user", options, way)
    yield Case("minimise", "user", "a fifth drawn", WholeRuns(drawn_descent, LARGE_DELTA, times=20))
    for kind in (shuffle.VectorSum, shuffle.PoissonSum):
        yield from of_units(kind.__name__, partial(summed, kind), units=("user",))
    yield Case("ScalarSum", "user", "", WholeRuns(numbered, LARGE_DELTA, times=4))
    yield from of_units("PanPrivateStream", streamed, "a look", ("user",))
    for method in ("permute_and_flip", "exponential"):
        yield from on_rows("select", partial(chosen, method), method, 0.0, 0.5)
    for unit in ("record", "element", "user"):
        yield Case("select", unit, "repeat", WholeRuns(partial(repeated, unit), times=2))
    yield Case("best_of", "user", "", WholeRuns(kept, times=4))
    yield from on_rows("accuracy", accuracy, "", 1.0, 0.0)
    yield from on_rows("auc", auc, "", 1.0, 0.0)
    yield from on_rows("r2", r2, "", 1.0, 0.0)
    yield Case("typical_records", "user", "", OnNeighbours(typical))
    for noise, delta in (("gaussian", LARGE_DELTA), ("laplace", 0.0)):
        drawn_on = OnNeighbours(partial(released, noise), delta, "replace")
        yield Case("release_mean", "element", noise, drawn_on)
    if find_spec("torch") is not None:
        from audited_networks import networks

        yield from networks()


def accuracy(x: Array, **asked: Any) -> Query[Any]:
    """Publish the accuracy of labels that are all right."""
    return learn.accuracy.query(x, x, classes=[0.0, 1.0], **asked)


def auc(x: Array, **asked: Any) -> Query[Any]:
    """Publish the AUC of certain probabilities."""
    return learn.auc.query(x, x, positive=1.0, **asked)


def r2(x: Array, **asked: Any) -> Query[Any]:
    """Publish R² of predictions at the largest possible distance."""
    return learn.r2.query(x, 1 - x, lower=0.0, upper=1.0, **asked)


ESTIMATORS = (
    "LinearRegression",
    "LogisticRegression",
    "LinearSVC",
    "HuberRegressor",
    "PoissonRegressor",
    "QuantileRegressor",
)
# Training options of networks and their loops.
OF_NETWORKS = ("torch", "transformers", "datasets")
TUNED = {"tune": {"clip": [1.0, 2.0]}}
# A recipe's public parameters for canaries of norm 1 with linear loss.
KNOWN = papers.Known(lipschitz=1.0, distance=1.0, records=3, smoothness=1.0, strength=0.1)
RECIPES: tuple[papers.Recipe, ...] = (
    papers.Concentrated(KNOWN, rounds=2),
    papers.ShuffleConcentrated(KNOWN, rounds=2),
    papers.ShuffleGd(KNOWN, rounds=2),
    papers.ShuffleAgd(KNOWN, rounds=1),
    papers.ShuffleAgdSmoothed(KNOWN, rounds=1),
    papers.ShuffleSgd(KNOWN, rounds=1),
    papers.ShuffleRestarts(KNOWN, rounds=1),
    papers.PanPrivateAgd(KNOWN, rounds=1),
    papers.PanPrivateConcentrated(KNOWN, rounds=1),
)
# Public parameters of recipes that need agreeing users.
AGREED = papers.Known(
    lipschitz=1.0, distance=1.0, records=1, smoothness=1.0, strength=0.1, radius=0.1
)
AGREEING: tuple[papers.Recipe, ...] = (
    papers.WinsorizedErm(AGREED, rounds=1),
    papers.PhasedErmSco(replace(AGREED, smoothness=0.01, strength=0.0), count=1),
    papers.UserLevelSgd(AGREED, rounds=1, smoothing="none"),
    papers.UserLevelAgd(AGREED, rounds=1),
    papers.UserLevelSgdStronglyConvex(AGREED, rounds=1, count=1),
)


# ------------------------------------------------------------------------------------------- table


# The name of the table on the page.
TABLE = "audits of other queries"
HEADINGS = (
    "query", "unit", "options", "audited by", "δ", "claim", "free", "named", "seen from", "verdict",
)  # fmt: skip


def cells(case: Case, delta: float, line: AuditLine) -> list[str]:
    """Return a row of the table."""
    seen = line.free.seen
    least = "–" if seen is None or seen == float("inf") else f"{seen:.3g}×"
    return [
        case.query, case.unit, case.options or "–", case.way.said, powers(delta),
        f"{line.claim:.4g}", f"{line.free}", f"{line.named}", least, line.verdict,
    ]  # fmt: skip


def main() -> int:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = Size()
    parser.add_argument("--canaries", type=int, default=usual.canaries)
    parser.add_argument("--draws", type=int, default=usual.draws)
    parser.add_argument("--runs", type=int, default=usual.runs)
    parser.add_argument("--only", default="", help="queries with one of these words: a,b")
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    options = parser.parse_args()
    absent = [name for name in OF_NETWORKS if find_spec(name) is None]
    if options.write and (absent or options.only):
        parser.error(
            f"--write needs all queries, and {', '.join(OF_NETWORKS)} for those of networks"
        )
    warnings.simplefilter("ignore")
    every = list(cases())
    confidence = 1 - (1 - CONFIDENCE) / len(every)
    size = Size(options.canaries, options.draws, options.runs, confidence)
    found = []
    for case in every:
        if any(word in str(case) for word in options.only.split(",")):
            found.append(cells(case, *audited(case.way, EPSILON, size)))
            print(*found[-1], sep=" | ", flush=True)
    if options.write:
        put(TABLE, [list(HEADINGS), *found])
    return 4 if any(row[-1] == "violated" for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
