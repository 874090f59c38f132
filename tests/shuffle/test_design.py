"""Designs of sums keep their promise and not by much; another accountant agrees."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.pld.privacy_loss_distribution import from_two_probability_mass_functions as pld
from tests.effort import Effort
from tests.refusals import refuses
from tests.shuffle import cases

from dpgrain.accounting import Gaussian
from dpgrain.accounting.contribution import ONE_EACH
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.errors import ParameterError
from dpgrain.noise import SystemSource
from dpgrain.noise.counts import BinomialDistribution
from dpgrain.shuffle import (
    PoissonSum,
    VectorSum,
)
from dpgrain.shuffle.protocol import ShuffledSum
from dpgrain.units import RELATIONS, Relation


def central(epsilon: float = 1.0, delta: float = 1e-6, relation: Relation = "replace") -> float:
    """The noise of the Gaussian mechanism for vectors of norm 1."""
    return (2 if relation == "replace" else 1) / gaussian_mu(epsilon, delta)


@pytest.mark.parametrize("kind", [VectorSum, PoissonSum])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("n", "d", "epsilon", "rounds", "honest"),
    [(1000, 100, 1.0, 1, 1.0), (20, 3, 8.0, 1, 0.5), (300, 1, 0.1, 10, 1.0), (50, 40, 2.0, 3, 0.8)],
)
def test_guarantee_is_satisfied_nearly_tightly(
    kind: type[VectorSum],
    relation: Relation,
    n: int,
    d: int,
    epsilon: float,
    rounds: int,
    honest: float,
) -> None:
    protocol = kind(
        n_users=n,
        dim=d,
        l2_bound=2.0,
        epsilon=epsilon,
        delta=1e-6,
        relation=relation,
        rounds=rounds,
        honest_fraction=honest,
    )
    assert 0.97 * epsilon < protocol.guarantee.epsilon() <= epsilon
    assert protocol.guarantee.relation == relation
    # With all devices honest, at least the noise that the honest ones would have added.
    least = 2.0 * central(epsilon, 1e-6, relation) * math.sqrt(rounds)
    assert least < protocol.noise_sd < 1.06 * least / math.sqrt(honest)


@pytest.mark.parametrize("kind", [VectorSum, PoissonSum])
@pytest.mark.parametrize("relation", RELATIONS)
def test_additional_results_have_reserved_budget(kind: type[VectorSum], relation: Relation) -> None:
    beside = Gaussian(8.0 if relation == "zero_out" else 16.0, ONE_EACH)
    asked: dict[str, Any] = {"n_users": 500, "dim": 3, "epsilon": 1.0, "delta": 1e-6}
    protocol = kind(**asked, relation=relation, beside=beside)
    together = (protocol.event + beside).epsilon(1e-6, relation=relation)
    assert 0.97 < together <= 1.0
    assert protocol.noise_sd > 1.05 * kind(**asked, relation=relation).noise_sd


def test_the_headline() -> None:
    ours, printed = VectorSum(**cases.HEADLINE), VectorSum(**cases.HEADLINE, analysis="printed")
    assert ours.noise_sd <= 1.05 * central()
    assert printed.noise_sd / ours.noise_sd == pytest.approx(526, abs=1)
    assert printed.noise_sd == pytest.approx(4534, rel=1e-3)
    device = ours.randomizer()
    assert device.report_bytes == 212 <= 400
    assert len(device.report(np.ones(100))) == device.report_bytes
    assert printed.randomizer().messages >= 1000 * device.messages
    few = PoissonSum(**cases.HEADLINE).randomizer().messages
    assert 3 < device.messages / few < 4.5


def test_printed_protocol_claims_too_much() -> None:
    few = {**cases.HEADLINE, "n_users": 50, "dim": 2}
    printed = VectorSum(**few, analysis="printed")
    assert printed.guarantee.epsilon() < 0.01
    several = VectorSum(**few, rounds=5, analysis="printed")
    assert several.noise_sd > 4 * printed.noise_sd


def test_fewer_honest_devices_are_promised_less() -> None:
    protocol = VectorSum(**cases.HEADLINE, honest_fraction=0.5)
    curve = [protocol.guarantee_with(share).epsilon() for share in (0.25, 0.5, 1.0)]
    assert curve[0] > 1.0 >= curve[1] > 0.99
    assert curve[2] < 0.75
    assert "500 devices" in str(protocol.guarantee)
    assert "at least 250 devices" in str(protocol.guarantee_with(0.25))
    # Half of the devices: the noise of the other half is additional.
    assert protocol.noise_sd == pytest.approx(
        math.sqrt(2) * VectorSum(**cases.HEADLINE).noise_sd, rel=0.02
    )


def allocations(protocol: ShuffledSum) -> Iterator[tuple[str, list[int]]]:
    """How a replaced user may spread its change over coordinates: by how many bits each moves."""
    grid, d = protocol.design.grid, protocol.encoding.dim
    yield "one coordinate", [grid]
    yield "all alike", [math.floor(grid / math.sqrt(d)) + 1] * d
    yield "a quarter", [math.floor(grid / math.sqrt(d // 4)) + 1] * (d // 4)
    yield "one large", [math.floor(0.9 * grid)] + [math.floor(0.43 * grid / math.sqrt(d)) + 1] * d


def shifted(law: BinomialDistribution, shift: int) -> PrivacyLossDistribution:
    """The privacy loss of a count that moves by n, from its two mass functions."""
    sd = math.sqrt(law.variance)
    first, last = int(law.mean - 12 * sd), int(law.mean + 12 * sd) + shift
    x = np.arange(first, last + 1, dtype=np.float64)
    lower = dict(enumerate(law.log_mass(x)))
    upper = dict(enumerate(law.log_mass(x - shift)))
    return pld(lower, upper, value_discretization_interval=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4), ids=["one", "alike", "quarter", "large"])
def test_another_accountant_agrees(number: int) -> None:
    protocol = VectorSum(**cases.HEADLINE)
    _, shifts = list(allocations(protocol))[number]
    law = protocol.design.noise.law(protocol.n_users)
    assert isinstance(law, BinomialDistribution)
    parts = [shifted(law, shift).self_compose(shifts.count(shift)) for shift in sorted(set(shifts))]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    epsilon = whole.get_epsilon_for_delta(protocol.delta)
    # The reference's discretisation also rounds up.
    assert 0.85 < epsilon <= 1.0 + 2e-3
    assert epsilon <= protocol.guarantee.epsilon() * (1 + 2e-3)


def test_poisson_noise_has_no_printed_numbers() -> None:
    with pytest.raises(ParameterError, match="PoissonSum"):
        PoissonSum(**cases.HEADLINE, analysis="printed")


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 30.0, 1e3, 1e9])
@pytest.mark.parametrize("kind", [VectorSum, PoissonSum])
def test_extreme_guarantees_are_satisfied(
    kind: type[VectorSum], epsilon: float, effort: Effort
) -> None:
    for n, d in ((7, 3), (1, 1), (1000, 30))[: effort.number(1, 3)]:
        protocol = kind(n_users=n, dim=d, epsilon=epsilon, delta=1e-9)
        assert protocol.guarantee.epsilon() <= epsilon
        found = protocol.estimate([np.zeros((1, d))], n, SystemSource())
        assert np.abs(found).max() < 7 * protocol.noise_sd


def test_too_small_epsilon_is_rejected() -> None:
    with refuses("epsilon", "1"):
        VectorSum(**{**cases.HEADLINE, "epsilon": 1e-6})
