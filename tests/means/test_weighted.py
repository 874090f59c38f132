"""Means of users weighted by records: neighbours, an audit, and what is published."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.apart import mu_below
from tests.charges import charge_of
from tests.refusals import refuses
from tests.replay import recorded, replayed

import dpgrain as dg
from dpgrain.errors import CareWarning
from dpgrain.inputs.record_limit import RecordLimit, chosen
from dpgrain.means import Recentred, Vectors
from dpgrain.means.clipped import weights
from dpgrain.means.grid import added_in_steps, grid_step
from dpgrain.means.problem import Problem
from dpgrain.means.recentred import radius_scores
from dpgrain.means.rules import RecordShares, WeightedDifference, WeightedExcess, share_by_radius
from dpgrain.means.user_mean import AUTO, MeanOfUsers
from dpgrain.means.weighted import WeightedRounds, clip_candidate, recentred_candidate
from dpgrain.noise import SystemSource
from dpgrain.publishing import Promise
from dpgrain.units import RELATIONS, Relation, User

Array = NDArray[np.float64]
PROMISE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def rows(n: int, few: int, many: int, d: int, *, seed: int = 0, away: float = 0.0) -> Any:
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(n), np.where(np.arange(n) < n // 2, few, many))
    X = rng.normal(size=(len(users), d)) + 1.0
    X[users >= n // 2] += away
    return X, users


def mean(X: Array, users: Any, **options: Any) -> MeanOfUsers:
    values = {**PROMISE, "bound": 50.0, "weights": "records", "random_state": 1}
    return dg.mean_of_users(X, users=users, **{**values, **options})


def weighted_mean(X: Array, users: NDArray[Any], most: int, bound: float = math.inf) -> Array:
    total, weight = np.zeros(X.shape[1]), 0.0
    for user in np.unique(users):
        own = X[users == user]
        own = own * np.minimum(1, bound / np.linalg.norm(own, axis=1))[:, None]
        share = min(len(own), most) / most
        total, weight = total + share * own.mean(axis=0), weight + share
    return total / weight


# -- neighbours --


def neighbour(rng: np.random.Generator, d: int, most: int) -> Array:
    vector = rng.normal(size=d) * 10.0 ** rng.integers(-3, 10)
    size = rng.choice([1, 2, most - 1, most, most + 1, 1000 * most])
    return np.append(vector, max(size, 1))


def moved(rule: Any, left: Array, right: Array, clip: float) -> float:
    step = grid_step(clip, 2.0)
    one, two = (added_in_steps(Vectors(rule(table)), clip, step) for table in (left, right))
    return float(np.linalg.norm(one - two)) * step / clip


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("d", [1, 3, 40])
@pytest.mark.parametrize("most", [1, 2, 50, 2**30])
def test_no_neighbour_changes_sums_and_weights_by_more(
    relation: Relation, d: int, most: int
) -> None:
    """Removing a user changes every noisy sum by its bound, replacing anything of a user by twice."""
    rng, largest = np.random.default_rng(7), {"around": 0.0, "excess": 0.0}
    shares = RecordShares(most)
    for trial in range(150):
        others = np.stack([neighbour(rng, d, most) for _ in range(3)])
        gone, came = neighbour(rng, d, most), neighbour(rng, d, most)
        radius = 10.0 ** rng.integers(-2, 5)
        centre = rng.normal(size=d) * 10.0 ** rng.integers(-2, 5)
        if trial % 2:
            # Two users at opposite sides of the centre, with full weight.
            gone, came = (np.append(centre + s * 1e6 * centre, 1000 * most) for s in (1, -1))
        left, right = np.vstack([gone, others]), others
        if relation == "replace":
            right = np.vstack([came, others])
        clip, bound = weights(radius, d), weights(2e9, d)
        around = WeightedDifference(centre, clip)
        rules = {
            "around": (around, clip.norm),
            "excess": (WeightedExcess(around, bound), bound.norm),
        }
        for name, (rule, norm) in rules.items():
            far = moved(rule, shares(left), shares(right), norm)
            largest[name] = max(largest[name], far)
    most_moved = 1 if relation == "zero_out" else 2
    for name, far in largest.items():
        assert far <= most_moved, name
    assert largest["around"] > 0.95 * most_moved


@pytest.mark.parametrize("beyond", [0.5, 0.02])
def test_radius_scores_change_by_one_without_a_user(beyond: float) -> None:
    rng, parts, widest = np.random.default_rng(1), 1024, 0.0
    radii = 2.0 ** np.arange(-8, 8, 0.25)
    for _ in range(40):
        table = RecordShares(6)(np.stack([neighbour(rng, 2, 6) for _ in range(9)]))
        table[:, :2] = rng.normal(size=(9, 2)) * 10.0 ** rng.integers(-2, 2)
        centre = rng.normal(size=2)
        scores = [
            radius_scores(share_by_radius(Vectors(x), centre, radii, parts), parts * 5, beyond)
            for x in (table, table[1:])
        ]
        change = (scores[1] - scores[0]) / parts**2
        assert change.min() >= 0
        assert change.max() <= 1
        widest = max(widest, float(change.max()))
    assert widest > 0.9


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_neighbour_changes_counts_of_records_by_more(relation: Relation) -> None:
    promise = Promise(User(), 1.0, 1e-6, relation)
    limit, largest = RecordLimit.create("records", None, promise), 0.0
    assert limit is not None
    assert limit.event is not None
    for size, other in itertools.product([1, 2, 7, 1000, 10**12], repeat=2):
        tables = [np.array([size, 3, 3]), np.array([3, 3])]
        if relation == "replace":
            tables[1] = np.array([other, 3, 3])
        counts = []
        for table in tables:
            with charge_of(limit.event, SystemSource()) as charge, recorded() as draws:
                limit.choose(table, 4.0, 2, charge)
            counts.append(draws)
        # Squared distances in the units of the noise, and the noise of one event.
        lost, _ = counts[0][0].lost(counts[1][0])
        largest = max(largest, lost * limit.event.noise_multiplier**2)
    assert largest == pytest.approx(1.0 if relation == "zero_out" else 2.0, rel=1e-6)
    charged = limit.event.contribution.sensitivity(1, relation)
    assert charged**2 == pytest.approx(largest, rel=1e-6)


@pytest.mark.proof("search", "Compose")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("method", ["auto", "clip", "recentred"])
@pytest.mark.parametrize("max_records", [None, 1, 8])
@pytest.mark.parametrize("change", ["user", "records", "half of the records"])
def test_all_draws_together_are_charged(
    relation: Relation, method: str, max_records: int | None, change: str
) -> None:
    """With the published answers of one table, another one differs by no more than is charged."""
    # Changed records of a user cost as much as another user.
    if (change == "user") != (relation == "zero_out"):
        relation = "replace"
    X, users = rows(60, 1, 9, 1)
    X = X / 10
    last, options = users == users.max(), {"method": method, "max_records": max_records}
    shown = 0.0
    for far in (50.0, -50.0):
        left = np.where(last[:, None], far, X)
        if change == "user":
            right, others = X[~last], users[~last]
            if relation == "replace":
                right, others = np.vstack([right, [[-far]]]), np.append(others, users.max())
        elif change == "records":
            right, others = np.where(last[:, None], -far, X), users
        else:
            keep = ~last | (np.arange(len(X)) % 2 == 0)
            right, others = left[keep], users[keep]
        asked = {**options, "relation": relation, "epsilon": 8.0}
        with recorded() as first:
            found = mean(left, users, **asked)
        with replayed(first) as second:
            mean(right, others, **asked)
        lost = [a.lost(b) for a, b in zip(first, second, strict=True)]
        normal, pure = (math.fsum(part) for part in zip(*lost, strict=True))
        loss = found.guarantee.event.loss(1, relation)
        assert pure <= loss.pure or loss.pure == 0
        bound = min(each.mu for each in (loss, *loss.others) if each.pure == each.leak == 0)
        assert normal <= bound**2 * (1 + 1e-6)
        shown = max(shown, normal / bound**2)
    assert shown > 0.01


# -- the audit: one user with full weight at the bound, or none --

PLAN = recentred_candidate(Problem(60, 1, Promise(User(), 8.0, 1e-6, "zero_out"), 1.0, None))
FULL, NOBODY = Vectors(np.ones((1, 2))), Vectors(np.zeros((0, 2)))


def claimed_mu() -> float:
    loss = PLAN.event.loss()
    return min(each.mu for each in (loss, *loss.others) if each.pure == each.leak == 0)


def read(vectors: Vectors, source: SystemSource, seen: list[tuple[Array, float, Array]]) -> float:
    """How much of the user's rows there is in the noisy sums of all rounds, in sds."""
    assert isinstance(PLAN.mean, Recentred)
    seen.clear()
    run = WeightedRounds(PLAN.mean, source)
    for _ in range(PLAN.mean.rounds):
        run.estimate(vectors)
    return math.fsum(float(mine @ found) / sd**2 for found, sd, mine in seen)


def audit(monkeypatch: pytest.MonkeyPatch, trials: int = 300) -> float:
    """A lower bound on μ of all sums, by a reader of all published numbers."""
    seen: list[tuple[Array, float, Array]] = []
    real = WeightedRounds._sum

    def watched(self: Any, contributions: Any, rule: Any, norm: float, noise: float) -> Array:
        found = real(self, contributions, rule, norm, noise)
        seen.append((found, noise * norm, rule(FULL.vectors())[0]))
        return found

    monkeypatch.setattr(WeightedRounds, "_sum", watched)
    source = SystemSource()
    present, absent = (
        np.array([read(vectors, source, seen) for _ in range(trials)]) for vectors in (FULL, NOBODY)
    )
    return mu_below(present, absent)


@pytest.mark.slow(cases=1)
@pytest.mark.proof("audit", "Compose")
def test_audit_stays_below_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0.3 * claimed_mu() < audit(monkeypatch) <= claimed_mu()


@pytest.mark.slow
def test_audit_detects_vectors_without_a_common_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    # The weight is clipped separately, so a user changes a sum by up to √(1 + k²) of its bound.
    def separate(self: Any, vectors: Array) -> Array:
        share = vectors[:, -1:]
        far = share * (vectors[:, :-1] - self.centre)
        return np.hstack([np.clip(far, -1, 1) * self.clip.norm, 3 * share * self.clip.norm])

    monkeypatch.setattr(WeightedDifference, "__call__", separate)
    monkeypatch.setattr("dpgrain.means.grid.clipped", lambda vectors, _: vectors)
    monkeypatch.setattr("dpgrain.means.grid._longer", lambda *_: np.zeros(0, dtype=np.intp))
    assert audit(monkeypatch) > claimed_mu()


# -- what is published --


@pytest.mark.parametrize("method", ["clip", "recentred", "auto"])
@pytest.mark.parametrize("max_records", [1, 5, 100])
def test_it_is_the_mean_of_weighted_records(method: str, max_records: int) -> None:
    X, users = rows(400, 1, 20, 2, away=3.0)
    X[0] = [900.0, 0.0]
    truth = weighted_mean(X, users, max_records, bound=50.0)
    for seed in range(3):
        found = mean(
            X, users, epsilon=1e4, method=method, max_records=max_records, random_state=seed
        )
        off = float(np.linalg.norm(found.value - truth))
        # A recentred mean gives the most distant users less weight.
        assert off < (0.05 if found.method == "clip" else 0.2)
        assert off <= found.error
        assert found.max_records == max_records


def test_weights_lower_the_error_of_the_average_record() -> None:
    """Half of the users with 1 record, half with 200: the example of the documentation."""
    X, users = rows(2000, 1, 200, 10)
    truth, options = X.mean(axis=0), {"bound": 20.0}
    equal, own = (
        [
            float(np.linalg.norm(mean(X, users, **options, **how, random_state=s).value - truth))
            for s in range(2)
        ]
        for how in ({"weights": "users"}, {"max_records": 200})
    )
    assert max(own) < min(equal) / 8
    assert max(own) < 0.015


@pytest.mark.parametrize("method", ["clip", "auto"])
@pytest.mark.parametrize("away", [0.0, 30.0])
def test_errors_cover_the_stated_share(method: str, away: float) -> None:
    X, users = rows(2000, 1, 9, 2, away=away)
    X, users = X[users < 1100], users[users < 1100]
    missed, truth = 0, weighted_mean(X, users, 9, bound=50.0)
    for seed in range(30):
        found = mean(X, users, method=method, max_records=9, random_state=seed)
        missed += bool(np.linalg.norm(found.value - truth) > found.error)
    assert missed <= 5


def test_noise_has_the_stated_standard_error() -> None:
    X, users = rows(2000, 1, 20, 3)
    found = [mean(X, users, max_records=20, random_state=s, method="clip") for s in range(60)]
    off = np.stack([one.value - weighted_mean(X, users, 20) for one in found[:1]])[0]
    values = np.stack([one.value for one in found])
    assert np.linalg.norm(off) < 5 * found[0].std_error
    spread = float(values.std(axis=0).mean()) / np.mean([one.std_error for one in found])
    assert 0.75 < spread < 1.25


def test_a_chosen_limit_is_published_and_few_exceed_it() -> None:
    X, users = rows(4000, 1, 200, 1)
    found = mean(X, users)
    assert found.max_records is not None
    assert 200 <= found.max_records <= 512
    parts = dg.mean_of_users.query(
        X, users=users, bound=50.0, weights="records", **PROMISE
    ).plan.parts
    assert list(parts) == [
        "record limit", "total weight", "centre", "check of clipping", "sum and weight",
    ]  # fmt: skip
    assert "200 per user" in str(mean(X, users, max_records=200)).splitlines()[0]


def test_a_limit_is_one_if_noise_hides_all_users() -> None:
    assert chosen(np.random.default_rng(0).normal(size=42), 10.0, 1.0) == 1
    # Users with very many records are found beyond a gap.
    counts = np.zeros(42)
    counts[[0, 30]] = 900.0, 100.0
    assert chosen(counts, 5.0, 10.0) > 10_000


@pytest.mark.parametrize("method", ["clip", "recentred", "auto"])
def test_a_hidden_weight_publishes_the_centre_and_warns(method: str) -> None:
    X, users = np.full((3, 2), 4.0), np.arange(3)
    with pytest.warns(CareWarning, match="sum of weights does not stand out"):
        found = mean(X, users, method=method, max_records=50)
    assert np.abs(found.value).max() < 50
    assert not found.resolved
    assert "sum of weights does not stand out" in str(found)
    assert "sum of weights does not stand out" in found.explain()
    assert found.to_dict()["std_error"] is None
    assert found.error >= np.linalg.norm(found.value - 4.0)
    with pytest.warns(CareWarning, match="sum of weights does not stand out"):
        assert not mean(X[:0], users[:0], method=method, max_records=50).resolved


def test_the_estimand_is_in_every_text() -> None:
    X, users = rows(1000, 1, 9, 2)
    found = mean(X, users, max_records=9)
    what = "the average record, up to 9 per user, not of the average person"
    assert what in str(found)
    assert what in found.explain()
    assert found.covers == "clipped mean of records, up to 9 per user"
    assert found.to_dict()["weights"] == "records"
    assert "of which at most 9 count" in str(found.guarantee)
    plain = mean(X, users, weights="users")
    assert plain.to_dict()["weights"] == "users"
    assert "average record" not in str(plain)


@pytest.mark.parametrize("method", ["clip", "auto"])
def test_the_order_of_rows_does_not_matter(method: str) -> None:
    X, users = rows(500, 1, 9, 3)
    order = np.random.default_rng(0).permutation(len(X))
    one, two = mean(X, users, method=method), mean(X[order], users[order], method=method)
    assert one.value.tolist() == two.value.tolist()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"weights": "users", "max_records": 3}, ["max_records", "omitted"]),
        ({"weights": "person"}, ["weights", "'records'"]),
        ({"max_records": 0}, ["max_records", "at least 1"]),
        ({"max_records": 2**31}, ["max_records", "at most"]),
        ({"method": "softcore", "n_users": 60}, ["weights", "softcore"]),
        ({"method": "winsorized", "n_users": 60}, ["weights", "winsorized"]),
    ],
)
def test_wrong_parameters_are_rejected_by_name(wrong: dict[str, Any], words: list[str]) -> None:
    X, users = rows(60, 1, 9, 1)
    with refuses(*words):
        mean(X, users, **wrong)


def test_few_records_are_clipped_around_zero_by_auto() -> None:
    X, users = rows(120, 1, 9, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = mean(X, users, max_records=9)
    assert found.method == "clip"
    assert "too small to estimate the centre" in found.reason
    assert AUTO.weighted is not None
    problem = Problem(1, 2, Promise(User(), 1.0, 1e-6, "zero_out"), 50.0, None)
    assert clip_candidate(problem).event.epsilon(1e-6) <= 1.0
