"""`dg.mean_of_users`: its guarantee, choices, inputs and audit."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from tests.apart import mu_below
from tests.charges import charge_of
from tests.means import cases
from tests.refusals import refuses
from tests.untouched import Untouched

import dpgrain as dg
from dpgrain.accounting import Gaussian
from dpgrain.errors import ParameterError, RefusedError
from dpgrain.means import Recentred, Vectors
from dpgrain.means.clipped import weights
from dpgrain.means.problem import METHODS, Candidate, Problem, get_method
from dpgrain.means.user_vectors import LocalRecords, user_means
from dpgrain.noise import RandomSource, SystemSource
from dpgrain.publishing import Promise
from dpgrain.units import RELATIONS, Relation, User

Array = NDArray[np.float64]


@pytest.mark.parametrize("radius", [None, cases.RADIUS], ids=["found", "stated"])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("method", METHODS)
def test_means_keep_their_promise_and_are_close(
    method: str, relation: Relation, radius: float | None
) -> None:
    found = cases.mean(method=method, relation=relation, radius=radius)
    assert found.method == method
    assert found.reason == "as requested"
    promise = found.guarantee
    assert (promise.level, promise.relation, promise.delta) == ("user", relation, 1e-6)
    assert 3.99 < promise.epsilon() <= 4.0
    truth = cases.rows()[0].mean(axis=0)
    error = float(np.linalg.norm(found.value - truth))
    # The noise has chi-square laws: four degrees of freedom pass 9.5 sds² … 44 with chance 1e-8.
    assert error < 6.7 * found.std_error + 0.02 * cases.RADIUS * (method != "clip")
    clip = cases.mean(method="clip", relation=relation)
    if method == "clip":
        assert found.radius == 10.0
    else:
        assert found.std_error < clip.std_error / 2
        assert 0.3 * cases.RADIUS < found.radius < 3 * cases.RADIUS
    if method != "recentred" and radius is not None:
        assert found.radius == (10.0 if method == "clip" else radius)


@pytest.mark.parametrize("method", METHODS)
def test_noise_has_the_stated_sd(method: str) -> None:
    # As many coordinates as needed for equal distances from the mean, without clipping.
    d = 400
    X = 0.1 + np.random.default_rng(8).normal(size=(1500, d)) * 4e-4
    found = cases.mean(X, method=method, radius=0.01, epsilon=8.0)
    sd = float(np.sqrt(np.mean((found.value - X.mean(axis=0)) ** 2)))
    assert sd == pytest.approx(found.std_error, rel=5.3 / math.sqrt(2 * d))


def test_a_removed_user_and_records_are_asked_about() -> None:
    promise = cases.mean(method="recentred").guarantee
    assert promise.epsilon(relation="replace") > promise.epsilon()
    assert promise.epsilon(unit=dg.Record()) == promise.epsilon(relation="replace")
    assert promise.epsilon(units=2) > 1.5 * promise.epsilon()


# -- "auto" --


@pytest.mark.slow
@pytest.mark.parametrize("radius", [None, 0.01, 1.0])
@pytest.mark.parametrize(("n", "d"), [(200, 50), (1000, 1), (4000, 20)])
def test_auto_chooses_from_public_numbers(n: int, d: int, radius: float | None) -> None:
    rng = np.random.default_rng(3)
    datasets = [rng.normal(size=(n, d)) * 1e6, np.full((n, d), np.nan), np.zeros((0, d))]
    found = [cases.mean(X, n_users=n, radius=radius, epsilon=1.0) for X in datasets]
    assert len({(each.method, each.reason, str(each.guarantee)) for each in found[:2]}) == 1
    assert {(each.method, each.reason) for each in found} == {(found[0].method, found[0].reason)}
    # The stated radius is not used, because it may be false.
    assert found[0].method == ("clip" if n == 200 else "recentred")


def test_auto_has_reasons_to_choose_each_of_two() -> None:
    few = cases.mean(np.ones((30, 8)), epsilon=1.0)
    many = cases.mean(np.ones((3000, 8)), epsilon=1.0)
    assert (few.method, many.method) == ("clip", "recentred")
    assert few.reason.startswith("30 users are too few to identify distant users in 8 dimensions")
    assert many.reason.startswith("3,000 users are enough to estimate their centre in 8 dimensions")


def test_identical_users_are_estimated_well() -> None:
    for seed in range(10):
        found = cases.mean(np.full((4000, 3), 5.0), bound=100.0, epsilon=1.0, random_state=seed)
        assert found.method == "recentred"
        assert np.linalg.norm(found.value - 5.0) < 5 * found.std_error + 1e-3
        assert found.std_error < 1e-3


def test_most_users_are_not_all() -> None:
    # Nine of ten have 1: the median is 1, the mean is not.
    many = np.arange(20_000) % 10 > 0
    for seed in range(10):
        found = cases.mean(many[:, None], bound=1.0, epsilon=1.0, random_state=seed)
        assert found.method == "recentred"
        assert abs(found.value[0] - 0.9) < 5.4 * found.std_error < 0.003
    few = cases.mean(many[:1000, None], bound=1.0, epsilon=1.0)
    assert few.method == "recentred"
    # The check shows the others, and all are clipped to the bound.
    assert few.radius == 1.0
    assert abs(few.value[0] - 0.9) < 5.4 * few.std_error


@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.5])
def test_errors_of_skewed_users_match_the_stated_error(sigma: float) -> None:
    # Clipping removes the long tail on one side; the check detects it up to its noise.
    X = np.minimum(np.random.default_rng(1).lognormal(sigma=sigma, size=20_000), 50.0)
    for seed in range(5):
        found = cases.mean(X, bound=50.0, epsilon=1.0, random_state=seed)
        assert found.method == "recentred"
        clip = cases.mean(X, bound=50.0, epsilon=1.0, random_state=seed, method="clip")
        off = abs(found.value[0] - X.mean())
        assert off < found.error < 0.15
        assert off < 5.4 * clip.std_error


def test_release_states_the_share_outside() -> None:
    tight = cases.mean(
        cases.rows()[0], cases.rows()[1], method="recentred", epsilon=1.0, bound=1000.0
    )
    assert 0 < tight.outside <= 0.5
    assert tight.to_dict()["outside"] == tight.outside
    assert cases.mean(method="clip").outside == 0.0


def test_a_mean_is_within_the_bound() -> None:
    found = cases.mean(np.ones((20, 3)), bound=1.0, epsilon=0.05, method="clip")
    assert found.std_error > 1
    assert np.linalg.norm(found.value) <= 1 + 1e-12


# -- users' vectors --


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("d", [1, 2, 9, 200])
def test_user_vector_depends_only_on_the_users_rows(d: int, order: Any) -> None:
    rng = np.random.default_rng(4)
    mine = np.asarray(
        rng.normal(size=(301, d)) * 10.0 ** rng.integers(-9, 9, size=(301, 1)), order=order
    )
    alone = vector_of(mine, np.zeros(301, dtype=int), 0)
    for others in (0, 1, 7, 5000):
        theirs = rng.normal(size=(others, d)) * 1e12
        who = rng.integers(1, max(others // 3, 1) + 1, size=others)
        # The user's rows stay in order, between any other rows.
        places = np.sort(rng.permutation(301 + others)[:301])
        records, users = np.empty((301 + others, d), order=order), np.zeros(301 + others, dtype=int)
        rest = np.setdiff1d(np.arange(301 + others), places)
        records[places], records[rest], users[rest] = mine, theirs, who
        assert np.array_equal(vector_of(records, users, 0), alone)
    # A table of one row has the same memory layout in both orders.
    for first in range(30):
        one, two = (np.asarray(mine[first : first + k], order=order) for k in (1, 2))
        with_another = vector_of(two, np.arange(2), 0)
        assert np.array_equal(vector_of(one, np.zeros(1, dtype=int), 0), with_another)


def vector_of(records: Array, users: NDArray[Any], user: int) -> Array:
    # Most records exceed the bound and are clipped.
    charge = charge_of(Gaussian(1.0), SystemSource())
    with LocalRecords.from_arrays(records, users).user_vectors(charge, 1e-8) as (vectors, _):
        found: Array = vectors.vectors()[list(dict.fromkeys(users.tolist())).index(user)]
    return found


def test_long_records_are_shortened_and_users_weigh_the_same() -> None:
    records = np.array([[3e8, 4e8], [0.0, 0.0], [1.0, 1.0], [1.0, 3.0]])
    found = user_means(records, np.array([0, 1, 2, 2]), 3, 5.0)
    assert found.tolist() == [[3.0, 4.0], [0.0, 0.0], [1.0, 2.0]]
    assert user_means(np.zeros((0, 2)), np.zeros(0, dtype=int), 0, 1.0).shape == (0, 2)


# -- rules for bad rows --


@pytest.mark.parametrize("method", METHODS)
def test_non_finite_vectors_count_as_zero(method: str) -> None:
    records, users = cases.rows()
    poisoned, zeroed = records.copy(), records.copy()
    zeroed[[0, 7, 8]] = zeroed[20, 1] = 0.0
    poisoned[[0, 7, 8]] = [[np.nan], [np.inf], [-np.inf]]
    poisoned[20, 1] = np.nan
    options: dict[str, Any] = {"method": method, "radius": cases.RADIUS}
    found, same = (cases.mean(each, users, **options).value for each in (poisoned, zeroed))
    assert np.array_equal(found, same)
    assert np.isfinite(found).all()


ODD: list[Any] = [None, "lots", {}, 1j, np.complex128(1 + 1j), pd.NA, [1.0], "1e400", 10**400]


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("cell", ODD, ids=lambda cell: repr(cell)[:12])
def test_one_odd_cell_changes_nobody_else(cell: Any) -> None:
    records, users = cases.rows()
    # Booleans, which NumPy converts to text or complex numbers next to such cells.
    truths = [[x > cases.PLACE, *row] for x, *row in records.tolist()]
    missing = np.array(truths, dtype=np.float64)
    missing[5, 2] = np.nan
    expected = cases.mean(missing, users).value
    truths[5][2] = cell
    odd = np.empty(missing.shape, dtype=object)
    for i, row in enumerate(truths):
        odd[i, :] = row
    for given in (truths, list(map(tuple, truths)), list(odd), odd, pd.DataFrame(odd)):
        stated = records.shape[1] if isinstance(given, list) else None
        assert np.array_equal(cases.mean(given, users, dimension=stated).value, expected)


def test_text_array_is_read_as_numbers() -> None:
    truths = [True, False, 0.1, 1 / 3, 7] * 100
    missing = np.array([*truths, np.nan], dtype=np.float64)
    assert np.array_equal(cases.mean(np.array([*truths, "abc"])).value, cases.mean(missing).value)


def test_a_row_of_another_length_counts_as_zeros() -> None:
    rows = [[1.0, 2.0]] * 300
    expected = cases.mean(np.array([[0.0, 0.0], *rows])).value
    for odd in ([3.0], [1.0, 2.0, 3.0], None, "ab", {1.0, 2.0}, [], np.ones((2, 2))):
        assert np.array_equal(cases.mean([odd, *rows], dimension=2).value, expected)
    assert cases.mean([[1.0, 2.0], None], dimension=3).value.shape == (3,)
    assert cases.mean([], dimension=3).value.shape == (3,)
    assert "vectors of 2 numbers" in str(cases.mean(rows, dimension=2).guarantee)
    with refuses("dimension", "required"):
        cases.mean(rows)


def test_rows_without_a_user_are_left_out() -> None:
    records, users = cases.rows()
    more = np.vstack([records, np.full((50, cases.D), 1e9)])
    ids = [*users.tolist(), *[None, float("nan")] * 25]
    assert np.array_equal(cases.mean(more, ids).value, cases.mean(records, users).value)
    nobody = cases.mean(np.ones((4, cases.D)), [None] * 4, n_users=500)
    assert np.array_equal(nobody.value, cases.mean(np.zeros((0, cases.D)), [], n_users=500).value)


def test_one_user_with_many_records_is_one_user() -> None:
    records, users = cases.rows()
    many = np.vstack([records, np.full((100_000, cases.D), cases.PLACE)])
    found = cases.mean(many, np.concatenate([users, np.full(100_000, cases.N)])).value
    once = cases.mean(
        np.vstack([records, np.full((1, cases.D), cases.PLACE)]), np.append(users, cases.N)
    ).value
    assert np.allclose(found, once, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("radius", [None, 1.0])
def test_table_without_rows_gives_a_release(method: str, radius: float | None) -> None:
    found = cases.mean(np.zeros((0, 2)), [], n_users=500, method=method, radius=radius)
    assert found.value.shape == (2,)
    assert math.isfinite(found.guarantee.epsilon())
    assert np.isnan(found.value).all() == (
        method == "softcore" or found.std_error != found.std_error
    )


def test_too_small_n_users_still_gives_an_estimate() -> None:
    # The noisy number replaces a wrong stated one; comparing users needs a true one.
    for method in ("clip", "recentred"):
        found = cases.mean(method=method, n_users=cases.N // 2)
        assert abs(found.n_users - cases.N) < 0.1 * cases.N
        assert np.linalg.norm(found.value - cases.PLACE) < found.error
    for radius in (None, cases.RADIUS):
        # Labels are read when the mean is charged.
        asked = {"method": "softcore", "n_users": cases.N // 2, "radius": radius}
        with dg.budget(9.0, 1e-5) as budget:
            with pytest.raises(
                ParameterError, match=f"n_users must be the size .* not {cases.N // 2}"
            ):
                cases.mean(**asked)
            assert budget.left < 1.0


def test_n_users_below_one_row_per_user_is_rejected() -> None:
    with dg.budget(9.0, 1e-5) as budget:
        with refuses("n_users", "300"):
            dg.mean_of_users(
                Untouched(301, 2), bound=1.0, radius=0.5, epsilon=4.0, delta=1e-6, n_users=300,
                method="softcore",
            )  # fmt: skip
        assert budget.left == 1.0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bound", [1e-90, 1e90])
@pytest.mark.parametrize("radius", [None, 2.0**-20])
def test_extreme_bounds(method: str, bound: float, radius: float | None) -> None:
    stated = None if radius is None else radius * bound
    X = np.full((cases.N, 1), bound / 2)
    with np.errstate(all="raise", under="ignore"):
        found = cases.mean(X, bound=bound, method=method, radius=stated)
    assert np.abs(found.value / bound - 0.5).max() < 0.05


def test_numbers_of_any_kind() -> None:
    whole = np.arange(600).reshape(300, 2) % 7
    expected = cases.mean(whole.astype(float)).value
    for kind in (np.int8, np.uint64, np.float32, np.longdouble):
        assert np.array_equal(cases.mean(whole.astype(kind)).value, expected)
    assert np.array_equal(cases.mean(whole.tolist(), dimension=2).value, expected)
    assert np.array_equal(cases.mean(pd.DataFrame(whole).astype("Int64")).value, expected)
    assert cases.mean(whole[:, 0]).value.shape == (1,)


# -- neighbours --


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_no_neighbour_moves_the_clipped_mean_farther(relation: Relation) -> None:
    rng, largest, n, bound = np.random.default_rng(5), 0.0, 9, 2.0
    most = (1 if relation == "zero_out" else 2) * bound / n
    for trial in range(60):
        scale = 10.0 ** rng.integers(-2, 12)
        users = np.concatenate([np.arange(n), rng.integers(0, n, size=20)])
        records = rng.normal(size=(len(users), 2)) * scale
        if trial % 2:
            records[users == 0] = [[scale, 0.0]]
        options = {"n_users": n, "bound": bound, "method": "clip", "relation": relation}
        found = cases.mean(records, users, **options).value
        if relation == "zero_out":
            other = cases.mean(records[users != 0], users[users != 0], **options).value
        else:
            changed = np.vstack([records[users != 0], -records[users == 0][:1]])
            other = cases.mean(changed, np.append(users[users != 0], 0), **options).value
        largest = max(largest, float(np.linalg.norm(found - other)))
    assert 0.9 * most < largest <= most * (1 + 1e-6)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("d", [1, 4, 100])
def test_no_neighbour_moves_the_sum_and_the_number_farther(relation: Relation, d: int) -> None:
    rng, largest = np.random.default_rng(3), 0.0
    rule = weights(2.0, d)
    for _ in range(100):
        vectors = rng.normal(size=(9, d)) * 10.0 ** rng.integers(-3, 9)
        other = np.vstack([vectors[1:], -vectors[:1] if relation == "replace" else vectors[:0]])
        sums = [rule(x).sum(axis=0) for x in (vectors, other)]
        largest = max(largest, float(np.linalg.norm(sums[0] - sums[1])))
    # A replaced user is present in both, so the number is unchanged.
    farthest = rule.norm if relation == "zero_out" else 2 * rule.bound
    assert 0.99 * farthest < largest <= farthest * (1 + 1e-9) <= 2 * rule.norm


# -- the audit: one user at the bound, or none --


AUDITED = get_method("recentred").make(
    Problem(60, 1, Promise(User(), 8.0, 1e-6, "zero_out"), 1.0, None)
)
PRESENT, ABSENT = Vectors(np.ones((1, 1))), Vectors(np.zeros((0, 1)))


def claimed_mu(plan: Candidate) -> float:
    """Claimed μ of everything published."""
    loss = plan.event.loss()
    return min(each.mu for each in (loss, *loss.others) if each.pure == each.leak == 0)


def audit(plan: Candidate, trials: int = 800) -> float:
    """A lower bound on μ of all noisy queries, from everything published."""
    source = SystemSource()
    present, absent = (
        np.array([told(plan, vectors, source) for _ in range(trials)])
        for vectors in (PRESENT, ABSENT)
    )
    return mu_below(present, absent)


def told(plan: Candidate, vectors: Vectors, source: RandomSource) -> float:
    """The user's part of the sums of all noisy queries, in sds."""
    mean = plan.mean
    assert isinstance(mean, Recentred)
    run, centre, score = mean.start(source), 0.0, 0.0
    for look in range(mean.rounds):
        found = float(run.estimate(vectors)[0])
        radius, norm = run.radii[look], weights(1.0, 1).norm
        if run.clipped is None:
            mine = np.clip(1.0 - centre, -radius, radius)
            noise = mean.multiplier(look) * radius
            score += mine * (found - centre) * mean.n_users / noise**2
            centre = found
        else:
            noise = mean.multiplier(look) * norm
            score += found * run.clipped.n_users / noise**2
    # The check shows the rest of the user's vector, unless all are clipped to the bound.
    if run.clipped is None:
        mine = 1.0 - np.clip(1.0 - run.centre[0], -radius, radius)
        score += mine * run.rest[0] / (mean.check * norm) ** 2
    return score


@pytest.mark.slow
def test_audit_stays_below_the_claim() -> None:
    # The noisy number of users is not used.
    assert 0.3 * claimed_mu(AUDITED) < audit(AUDITED) <= claimed_mu(AUDITED)


# -- guarantees, budgets, files --


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_nothing_is_read_before_it_is_paid_for(method: str) -> None:
    X, users = Untouched(4000, 2), Untouched(4000, dtype=np.int64)
    asked: dict[str, Any] = {"bound": 10.0, "radius": 1.0, "n_users": 2000, "method": method}
    plan = dg.mean_of_users.query(X, users=users, epsilon=1.0, delta=1e-6, **asked).plan
    assert plan.guarantee.epsilon(1e-6) <= 1.0
    assert plan.expected is not None
    with dg.budget(0.5, 1e-6) as budget:
        with pytest.raises(RefusedError):
            dg.mean_of_users(X, users=users, epsilon=1.0, delta=1e-6, **asked)
        assert budget.left == 1.0
        query = dg.mean_of_users.query(X, users=users, share=0.5, **asked).settled()
        assert 0 < query.plan.guarantee.epsilon(1e-6) < 0.5
        with pytest.raises(AssertionError, match="it was read"):
            dg.mean_of_users(X, users=users, share=0.5, **asked)
        assert budget.left == pytest.approx(0.5, abs=0.01)


def test_a_seed_is_marked() -> None:
    seeded, secret = cases.mean(), cases.mean(random_state=None)
    assert not seeded.guarantee.private
    assert str(seeded.guarantee).startswith("NOT PRIVATE")
    assert secret.guarantee.private
    assert np.array_equal(cases.mean().value, seeded.value)
    assert not np.array_equal(cases.mean(random_state=None).value, secret.value)


SENTENCES = [
    ("clip", None, []),
    (
        "clip",
        None,
        ["a division by the noisy number of users, published with the sum"],
    ),
    (
        "recentred",
        None,
        [
            "3% of the budget for the number of users",
            "iterations, each around the result of the previous one",
            "within a privately chosen radius",
        ],
    ),
    (
        "softcore",
        0.5,
        ["a concentration radius of 0.5, which only accuracy", "no mean unless about"],
    ),
    (
        "softcore",
        None,
        ["a concentration radius chosen privately with 20% of ε, from 0.00061 to 10;"],
    ),
    ("winsorized", 0.5, ["rotated by public random signs", "a privately chosen interval"]),
]


@pytest.mark.parametrize(("method", "radius", "parts"), SENTENCES, ids=lambda v: str(v)[:12])
def test_the_sentence(method: str, radius: float | None, parts: list[str]) -> None:
    text = str(cases.mean(method=method, radius=radius).guarantee)
    for part in (
        "adding or removing all of one user's records (the user remains enrolled)",
        "1,200 enrolled users; ",
        "vectors of 4 numbers; a bound of 10, to which longer records are clipped",
        *parts,
    ):
        assert part in text
    assert text.count("enrolled users") == 1


def test_means_of_the_same_users_compose() -> None:
    records, users = cases.rows()
    one, two = (cases.mean(X, users, method="clip").guarantee for X in (records, records[:, :1]))
    both = one + two
    assert one.epsilon() < both.epsilon(1e-6) < one.epsilon() + two.epsilon()
    with refuses("guarantees", "compose"):
        _ = one + cases.mean(records, users.copy(), method="clip").guarantee
    named = pd.Series(users, name="person")
    both = (
        cases.mean(records, named).guarantee
        + cases.mean(records, pd.Series(users, name="person")).guarantee
    )
    assert "Users are identified by 'person'" in str(both)


def test_a_budget_is_charged_and_refuses() -> None:
    records, users = cases.rows()
    with dg.budget(2.0, 1e-6) as budget:
        first = cases.mean(records, users, epsilon=None, share=0.5)
        assert budget.guarantee == replace(first.guarantee, delta=budget.delta)
        with pytest.raises(ParameterError, match="has no room for this release"):
            cases.mean(records, users, epsilon=2.0)
        cases.mean(records, users, method="clip", epsilon=None, share=0.5)
    assert budget.left < 0.02


def test_json() -> None:
    found = cases.mean(method="winsorized")
    told = json.loads(found.to_json())
    assert told["estimate"] == found.value.tolist()
    told_of = ("std_error", "covers", "error", "confidence", "error_covers", "method", "reason",
               "radius")  # fmt: skip
    assert {name: told[name] for name in told_of} == {
        "std_error": found.std_error,
        "error": found.error,
        "confidence": 0.95,
        "covers": "clipped mean",
        "error_covers": found.error_covers,
        "method": "winsorized",
        "reason": "as requested",
        "radius": found.radius,
    }
    assert dg.Guarantee.from_dict(told["guarantee"]) == found.guarantee


@pytest.mark.parametrize("radius", [None, 0.01])
def test_disagreeing_users_give_nan_or_a_large_radius(radius: float | None) -> None:
    spread = np.random.default_rng(7).normal(size=(cases.N, 50)) * 100
    spread[::2] *= -1
    found = cases.mean(spread, method="softcore", radius=radius, bound=1e4)
    if radius is None:
        # A radius as large as the users' own is estimated, and they agree.
        assert found.radius > 300
        return
    assert np.isnan(found.value).all()
    assert math.isnan(found.std_error)
    assert found.guarantee.epsilon() <= 4.0
    told = json.loads(found.to_json())
    nothing = {"estimate": None, "std_error": None, "error": None, "radius": radius}
    assert {name: told[name] for name in nothing} == nothing


# -- errors --


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bound": 0.0}, "bound must be positive and finite"),
        ({"bound": 1e91}, "bound must be between 1e-90 and 1e90, not 1e+91; rescale."),
        (
            {"radius": 11.0},
            "radius must be between a millionth of the bound, 10, and the bound",
        ),
        (
            {"radius": 1e-9},
            "radius must be between a millionth of the bound, 10, and the bound",
        ),
        ({"radius": -1.0}, "radius must be positive and finite"),
        ({"epsilon": 0.0}, "epsilon must be positive and finite"),
        ({"delta": 0.0}, "delta must be above 0, such as 1e-6"),
        ({"delta": 1.0}, "delta must be in [0, 1)"),
        ({"method": "median"}, "method must be one of 'auto', 'clip', 'recentred'"),
        ({"relation": "swap"}, "relation must be one of 'zero_out', 'replace'"),
        ({"n_users": 0}, "n_users must be an integer of at least 1"),
        ({"records": np.zeros((2, 2, 2))}, "X must be numbers of shape (m, d), one row"),
        ({"records": np.zeros((3, 0))}, "X must be numbers of shape (m, d), one row"),
        ({"records": np.zeros((3, 1), dtype="M8[s]")}, "X must be numbers, not times"),
        ({"records": [None]}, "dimension is required for a list of records"),
        (
            {"records": np.ones((3, 2)), "dimension": 3},
            "dimension must be the length of a record, 2, not 3",
        ),
        (
            {"records": np.ones((3, 2)), "users": [1, 2]},
            "users must have exactly one label for each row",
        ),
        (
            {"records": np.ones((20, 100)), "method": "recentred", "epsilon": 1.0},
            "n_users = 20 is too small for the method 'recentred' in 100 dimensions; use about ",
        ),
        ({"records": np.ones((20, 9)), "method": "softcore"}, "n_users = 20 is too small"),
        (
            {"records": np.ones((20, 9)), "method": "winsorized", "radius": 1.0},
            "n_users = 20 is too",
        ),
    ],
    ids=lambda v: str(v)[:30],
)
def test_wrong_parameters_say_so(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(message)) as caught:
        cases.mean(**wrong)
    assert "\n" not in str(caught.value)
