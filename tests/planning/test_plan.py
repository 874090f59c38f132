"""Plans from public numbers, and the floors under the error that stand beside them."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from dpgrain.accounting import Contribution, Gaussian, Laplace, Selection, calibrate_gaussian
from dpgrain.errors import ParameterError
from dpgrain.planning.floors import (
    convex_order,
    least_error,
    least_error_of_records,
    least_error_of_worlds,
    least_excess_of_choice,
    least_holders,
    least_noise_of_clipped_sums,
)
from dpgrain.planning.plan import (
    ErrorPlan,
    Row,
    plan_counts,
    plan_gradient,
    plan_mean,
    plan_sco,
    plan_select,
)
from dpgrain.statistics.plan import plan_histogram
from dpgrain.units import Element, Relation, Unit, User

RELATIONS: tuple[Relation, ...] = ("zero_out", "replace")
VECTORS = Contribution(block="user", layout="shared", coordinates="signed")


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 4.0, 10.0])
def test_no_mechanism_is_below_the_floor(epsilon: float, relation: Relation) -> None:
    for n, dimension in itertools.product((1, 7, 1000, 10**6), (1, 2, 100, 10**5)):
        floor = least_error(epsilon, 1e-9, n, dimension=dimension, relation=relation)
        noise = calibrate_gaussian(epsilon, 1e-9, contribution=VECTORS, relation=relation)
        # The Gaussian mechanism, and the one that always answers 0.
        assert 0 < floor <= min(noise.noise_multiplier * math.sqrt(dimension), n)


@pytest.mark.parametrize("relation", RELATIONS)
def test_two_points_in_one_dimension(relation: Relation) -> None:
    apart = 1 if relation == "zero_out" else 2
    # By hand, δ = 0: j moves are hidden up to (e^{jε}−1)/(e^{jε}+1).
    best = max(j * apart / 2 * math.sqrt(2 / (math.exp(j) + 1)) for j in range(1, 9))
    assert least_error(1.0, 0.0, 100, relation=relation) == pytest.approx(best, rel=1e-12)
    # The Laplace mechanism comes within a small factor of it.
    assert math.sqrt(2) * apart < 3 * best


def test_the_floor_grows_as_the_root_of_the_dimension_where_n_is_large() -> None:
    small, large = (
        least_error(0.01, 1e-12, 10**8, dimension=d, relation="replace") for d in (10**4, 10**6)
    )
    assert large / small == pytest.approx(10, rel=0.1)
    # Within a factor of 4 of √d/ε.
    assert 0.25 < large / (math.sqrt(10**6) / 0.01) < 1


@pytest.mark.parametrize("seed", range(5))
def test_the_identity_of_fingerprints(seed: int) -> None:
    # E[M·Σ(x − p)] = E[2·p·g(p)] for any answers M, here of 3 people, one coordinate.
    answers = np.random.default_rng(seed).uniform(-1, 1, 8)
    data = np.array(list(itertools.product((-1, 1), repeat=3)), dtype=np.float64)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    left = right = distance = 0.0
    for p, weight in zip(nodes, weights / 2, strict=True):
        law = np.prod((1 + p * data) / 2, axis=1)
        left += weight * float(law @ (answers * (data - p).sum(axis=1)))
        right += weight * 2 * p * float(law @ answers)
        distance += weight * float(law @ (answers - p) ** 2)
    assert left == pytest.approx(right, abs=1e-12)
    assert left >= 1 / 3 - distance


def test_fewest_holders_of_an_unknown_item() -> None:
    # 11 holders pass with .35, 12 with .76.
    found = [least_holders(1.0, 1e-5, chance) for chance in (0.34, 0.36, 0.75, 0.77)]
    assert found == [11, 12, 12, 13]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0.0, 1e-6, 10), "epsilon must be finite and above 0"),
        ((1.0, 1.0, 10), "delta must lie in [0, 1)"),
        ((1.0, 1e-6, 0), "n must be a whole number of at least 1"),
    ],
    ids=["epsilon", "delta", "n"],
)
def test_floors_refuse_what_is_out_of_range(arguments: tuple[float, float, int], said: str) -> None:
    with pytest.raises(ParameterError, match="must") as error:
        least_error(*arguments)
    assert said in str(error.value)


def test_a_mean_by_hand() -> None:
    plan = plan_mean(1.0, 1e-6, n=1000, dimension=25, relation="replace", error=0.01)
    noise = plan["noise multiplier σ"]
    assert Gaussian(noise, VECTORS).epsilon(1e-6, relation="replace") <= 1.0
    assert plan["rms privacy error"] == pytest.approx(5 * noise / 1000)
    assert plan["lower bound, as an order"] == pytest.approx(5 / 1000)
    assert plan["times the lower bound"] == pytest.approx(noise)
    assert plan["times the least"] == pytest.approx(
        plan["rms privacy error"] / plan["least rms error by any mechanism"]
    )
    # So many vectors reach the error; one fewer do not.
    needed = int(plan["for an error of 0.01"])
    reached, missed = (
        plan_mean(1.0, 1e-6, n=n, dimension=25, relation="replace") for n in (needed, needed - 1)
    )
    assert reached["rms privacy error"] <= 0.01 < missed["rms privacy error"]
    assert plan["the same, at least by any mechanism"] <= needed


def test_records_help_the_order_only() -> None:
    one, many = (plan_mean(1.0, 1e-6, n=1000, dimension=4, records=m) for m in (1, 16))
    assert one["lower bound, as an order"] == pytest.approx(4 * many["lower bound, as an order"])
    assert one["rms privacy error"] == many["rms privacy error"]
    assert "16 independent records" in " ".join(many.notes)


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_user_of_five_elements_costs_five_times_as_much(relation: Relation) -> None:
    one, five = (
        plan_mean(1.0, 1e-6, n=10_000, dimension=4, unit=unit, relation=relation)
        for unit in (User(), User(max_elements=5))
    )
    for name in (
        "rms privacy error",
        "lower bound, as an order",
        "least rms error by any mechanism",
    ):
        assert five[name] == pytest.approx(5 * one[name]), name


def test_what_is_no_unit_is_refused() -> None:
    assert plan_mean(1.0, 1e-6, n=10, unit=Element())["noise multiplier σ"] > 0
    with pytest.raises(ParameterError, match="unit must be"):
        plan_mean(1.0, 1e-6, n=10, unit="user")  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", [Element(), User()], ids=["element", "user"])
def test_a_histogram_is_the_release_that_is_planned(unit: Unit) -> None:
    release = plan_histogram(unit=unit, epsilon=1.0, delta=1e-6, clip=1.0, max_items=9)
    assert isinstance(release.select, Selection)
    plan = plan_counts(
        release.sums,
        release.select,
        epsilon=1.0,
        delta=1e-6,
        unit=unit,
    )
    assert plan["noise sd of a count"] == release.std_error
    assert plan.event.epsilon(1e-6, unit=unit) <= 1.0
    half = plan["item is named half the time from"]
    assert half == math.ceil(release.select.threshold)
    assert plan["the same, half the time"] == pytest.approx(3 * half, abs=3)
    assert plan["by any rule, half the time"] == least_holders(1.0, 1e-6)
    assert (
        plan["by any rule, half the time"]
        <= plan["by truncated noise on one item a block"]
        < half
        < plan["item is named 95% of the time from"]
    )


def test_a_histogram_with_laplace_noise_needs_no_delta() -> None:
    event = Laplace(1.0, Contribution(norm="l1", coordinates="one"))
    plan = plan_counts(event, epsilon=1.0, delta=0.0)
    assert plan["noise sd of a count"] == math.sqrt(2)
    assert [row.name for row in plan.rows()][-1] == "times the least"


def test_a_full_gradient_run_by_hand() -> None:
    plan = plan_gradient(1.0, 1e-6, n=1000, rounds=50, dimension=9)
    noise = plan["noise multiplier σ"]
    single = calibrate_gaussian(1.0, 1e-6).noise_multiplier
    assert noise == pytest.approx(math.sqrt(50) * single)
    assert plan["noise sd of a coordinate"] == noise / 1000
    # The noise's part does not depend on the number of rounds; the other falls.
    assert plan["excess risk, the noise's part"] == pytest.approx(3 * single / 1000)
    assert plan["excess risk, the other part"] == pytest.approx(1 / math.sqrt(50))
    assert plan["the noise's part, times the order"] == pytest.approx(single)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("sampling", ["pairs", "users"])
def test_a_sampled_gradient_run_keeps_its_promise(sampling: str, relation: Relation) -> None:
    plan = plan_gradient(
        2.0, 1e-6, n=10_000, rounds=100, dimension=4, sampling=sampling,  # type: ignore[arg-type]
        sampling_rate=0.02, relation=relation,
    )  # fmt: skip
    spent = plan.event.epsilon(1e-6, relation=relation)
    assert 2.0 * (1 - 1e-3) < spent <= 2.0
    noise = plan["noise multiplier σ"]
    assert plan["noise sd of a coordinate"] == pytest.approx(noise / 200)
    # Who is drawn adds to the second moment of a step: (1−q)/(qn).
    assert plan["excess risk, the other part"] == pytest.approx(math.sqrt(1 + 0.98 / 200) / 10)


GRADIENTS = [
    ({"sampling": "pairs"}, "sampling_rate must be given where pairs are sampled"),
    ({"sampling": "users", "sampling_rate": 0.1, "passes": 3}, "passes goes with"),
    ({"sampling": "users", "sampling_rate": 1.5}, "must lie in (0, 1], not 1.5"),
    ({"sampling_rate": 0.1}, "sampling_rate must be left out with sampling='full'"),
    ({"passes": 3}, "passes goes with sampling='passes' only"),
    ({"sampling": "passes"}, "passes must be given"),
    ({"sampling": "passes", "passes": 11}, "passes must be at most the rounds (10), not 11"),
    ({"sampling": "fixed"}, "sampling must be one of 'full', 'pairs', 'users', 'passes'"),
]


@pytest.mark.parametrize(("options", "said"), GRADIENTS, ids=[str(o) for o, _ in GRADIENTS])
def test_gradient_runs_refuse_what_does_not_go_together(
    options: dict[str, object], said: str
) -> None:
    with pytest.raises(ParameterError) as error:
        plan_gradient(1.0, 1e-6, n=100, rounds=10, dimension=2, **options)  # type: ignore[arg-type]
    assert said in str(error.value)


def test_a_mean_of_users_with_records() -> None:
    plan = plan_mean(0.3, 1e-9, n=60, dimension=16, relation="replace", records=25)
    noise = plan["noise multiplier σ"]
    assert plan["least noise of clipped sums, such records"] == pytest.approx(
        least_noise_of_clipped_sums(noise, 60, 16) / math.sqrt(16 * 25)
    )
    assert plan["least by any mechanism, such records"] == least_error_of_records(
        0.3, 1e-9, 60, records=25, dimension=16, relation="replace"
    )
    assert plan["the same, any number of records"] == 2 * math.sqrt(
        least_error_of_worlds(0.3, 1e-9, 60, relation="replace")
    )
    # Clipping around a found centre gains √m at most, and a little less than that.
    gained = plan["rms privacy error"] / plan["least noise of clipped sums, such records"]
    assert 4.5 < gained < 5
    # A user of 3 vectors has all their records.
    several = plan_mean(0.3, 1e-9, n=60, unit=User(max_elements=3), records=5)
    assert several["least by any mechanism, such records"] == least_error_of_records(
        0.3, 1e-9, 20, records=15
    )


@pytest.mark.parametrize("relation", RELATIONS)
def test_convex_losses_by_hand(relation: Relation) -> None:
    asked = {"n_users": 400, "dimension": 9, "records": 16, "relation": relation}
    plan = plan_sco(1.0, 1e-6, distance=2.0, lipschitz=3.0, **asked)  # type: ignore[arg-type]
    noise = plan["noise multiplier σ"]
    assert plan.event.epsilon(1e-6, unit=User(), relation=relation) <= 1.0
    assert plan["excess risk, the noise's part"] == pytest.approx(6 * 3 * noise / 400)
    assert plan["excess risk, the sampling's part"] == pytest.approx(6 / 80)
    order = 6 * convex_order(1.0, 400, dimension=9, records=16)
    assert plan["lower bound, as an order"] == pytest.approx(order)
    assert plan["times the lower bound"] == pytest.approx(plan["excess risk"] / order)
    around = plan["the same, clipped around a found centre"]
    assert 0.25 < around / plan["excess risk, the noise's part"] < 0.28
    assert plan["least excess risk by any mechanism"] <= around
    # Strongly convex: at most twice the square of the noise over μ, and never more than above.
    curved = plan_sco(
        1.0, 1e-6, distance=2.0, lipschitz=3.0, strength=2.0, **asked  # type: ignore[arg-type]
    )  # fmt: skip
    assert curved["excess risk, the noise's part"] == pytest.approx((9 * noise / 400) ** 2)
    assert curved["lower bound, as an order"] == pytest.approx(
        9 * convex_order(1.0, 400, dimension=9, records=16, strength=2.0)
    )
    assert curved["least excess risk by any mechanism"] <= curved["excess risk, the noise's part"]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_choice_by_hand(delta: float, relation: Relation) -> None:
    plan = plan_select(0.5, delta, n_users=300, hypotheses=50, bound=2.0, relation=relation)
    assert plan.event.epsilon(delta, relation=relation) <= 0.5
    rate = 0.5 if relation == "zero_out" else 0.25
    most = 2 * math.log(50) / (rate * 300)
    assert plan["excess risk, the noise's part at most"] <= most * (1 + 1e-6)
    assert plan["evaluations of a hypothesis"] == 50
    assert plan["least excess risk by any choice"] == 2 * least_excess_of_choice(
        0.5, delta, 300, 50, relation=relation
    )
    tied = plan["where all but one tie, exponential"]
    assert tied < plan["excess risk, the noise's part at most"]
    names = [row.name for row in plan.rows()]
    assert ("where all but one tie, permute-and-flip" in names) == (delta == 0)
    if delta == 0:
        assert 0.5 * tied < plan["where all but one tie, permute-and-flip"] < tied


def test_ties_are_decided_as_planned() -> None:
    # 7 hypotheses, 6 of them worse by a gap: Gumbel noise, and flips in a random order.
    generator, n = np.random.default_rng(4), 200_000
    plan = plan_select(1.0, n_users=100, hypotheses=7)
    tied, flipped = 0.0, 0.0
    for gap in np.linspace(1.5, 4, 11):
        scores = generator.gumbel(size=(n, 7)) + np.array([gap, *[0] * 6])
        tied = max(tied, gap * float(np.mean(scores.argmax(axis=1) != 0)))
        before = generator.integers(0, 7, n)
        flipped = max(flipped, gap * float(np.mean(1 - (1 - np.exp(-gap)) ** before)))
    assert plan["where all but one tie, exponential"] == pytest.approx(tied / 100, rel=0.02)
    assert plan["where all but one tie, permute-and-flip"] == pytest.approx(flipped / 100, rel=0.02)


WRONG = [
    (lambda: plan_sco(1.0, 1e-6, n_users=9, dimension=2, strength=2.5), "strength must be at most"),
    (lambda: plan_sco(1.0, 1e-6, n_users=9, dimension=2, distance=0.0), "distance must be finite"),
    (lambda: plan_sco(1.0, 0.0, n_users=9, dimension=2), "delta = 0 needs pure"),
    (lambda: plan_select(1.0, n_users=9, hypotheses=1), "hypotheses must be a whole number"),
    (lambda: plan_select(1.0, n_users=9, hypotheses=2, bound=-1.0), "bound must be finite"),
]


@pytest.mark.parametrize(("made", "said"), WRONG, ids=[said for _, said in WRONG])
def test_plans_refuse_what_is_out_of_range(made: Callable[[], ErrorPlan], said: str) -> None:
    with pytest.raises(ParameterError) as error:
        made()
    assert said in str(error.value)


def test_a_plan_is_frozen_and_plain() -> None:
    plan = plan_mean(1.0, 1e-6, n=10)
    with pytest.raises(FrozenInstanceError):
        plan.epsilon = 2.0  # type: ignore[misc]
    read = json.loads(plan.to_json())
    assert read == plan.to_dict()
    assert {row["kind"] for row in read["rows"]} == {"number", "floor", "order"}
    assert Gaussian.from_dict(read["event"]) == plan.event
    for row in plan.rows():
        assert row.name in str(plan)
        assert row.text in str(plan)
    with pytest.raises(ParameterError, match="'nothing' is not in this plan"):
        plan["nothing"]


def test_numbers_are_rounded_to_the_safe_side() -> None:
    third = 1 / 3
    assert Row("error", third).text == "0.3334"
    assert Row("floor", third, kind="floor").text == "0.3333"
    assert Row("order", third, kind="order").text == "order of 0.3"
    assert isinstance(plan_mean(1.0, 1e-6, n=10), ErrorPlan)
