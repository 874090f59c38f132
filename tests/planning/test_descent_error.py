"""Plans of gradient runs against arithmetic by hand."""

from __future__ import annotations

import math

import pytest

from dpgrain.accounting import Participation, calibrate_gaussian
from dpgrain.errors import ParameterError
from dpgrain.means import ClippedMean
from dpgrain.papers.floors import convex_order
from dpgrain.planning.descent_error import plan_gradient, plan_sco
from dpgrain.units import RELATIONS, Relation, User


def test_a_full_gradient_run_by_hand() -> None:
    plan = plan_gradient(1.0, 1e-6, n=1000, rounds=50, dimension=9)
    noise = plan["noise multiplier σ"]
    single = calibrate_gaussian(1.0, 1e-6).noise_multiplier
    assert noise == pytest.approx(math.sqrt(50) * single, rel=1e-4)
    assert plan["noise sd of a coordinate"] == noise / 1000
    # The noise's part does not depend on the number of rounds; the other falls.
    assert plan["excess risk, the noise's part"] == pytest.approx(3 * single / 1000, rel=1e-4)
    assert plan["excess risk, the other part"] == pytest.approx(1 / math.sqrt(50))
    assert plan["the noise's part, times the order"] == pytest.approx(single, rel=1e-4)


def test_sampling_adds_to_the_other_part_of_the_risk() -> None:
    plan = plan_gradient(2.0, 1e-6, n=10_000, rounds=100, dimension=4, sampling_rate=0.02)
    mean = ClippedMean.calibrate(
        epsilon=2.0, delta=1e-6, n_users=10_000, rounds=100, sampling_rate=0.02
    )
    assert plan.event == mean.event
    assert plan["noise sd of a coordinate"] == pytest.approx(mean.noise_sd)
    # Sampling adds (1−q)/(qn) to the second moment of a step.
    assert plan["excess risk, the other part"] == pytest.approx(math.sqrt(1 + 0.98 / 200) / 10)


def test_passes_use_part_of_the_noise_and_gradients() -> None:
    plan = plan_gradient(1.0, 1e-6, n=1000, rounds=50, passes=5, dimension=9)
    single = calibrate_gaussian(1.0, 1e-6).noise_multiplier
    assert plan["noise multiplier σ"] == pytest.approx(math.sqrt(5) * single, rel=1e-4)
    assert plan["public divisor"] == pytest.approx(100)
    assert plan.event == Participation(plan["noise multiplier σ"], 5)


GRADIENTS = [
    ({"passes": 3, "sampling_rate": 0.1}, "sampling_rate must be omitted with passes"),
    ({"passes": 11}, "passes must be at most the number of rounds, 10, not 11"),
    ({"sampling": "fixed"}, "sampling must be"),
    ({"sampling_rate": 0.0}, "sampling_rate"),
]


@pytest.mark.parametrize(("options", "said"), GRADIENTS, ids=[str(o) for o, _ in GRADIENTS])
def test_gradient_runs_reject_incompatible_arguments(options: dict[str, object], said: str) -> None:
    with pytest.raises(ParameterError) as error:
        plan_gradient(1.0, 1e-6, n=100, rounds=10, dimension=2, **options)  # type: ignore[arg-type]
    assert said in str(error.value)


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
    around = plan["the same, clipped around an estimated centre"]
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
