"""Numbers of runs have their laws, and ties are decided by more bits."""

from __future__ import annotations

from collections import Counter

import pytest
from scipy import stats
from tests.noise import scripted

from dpgrain.accounting import PureDP
from dpgrain.accounting.events.best_of import SelectBest
from dpgrain.noise import RandomSource, SeededSource, stopping
from dpgrain.noise.precision import arithmetic
from dpgrain.noise.stopping import negative_binomial, poisson


def number_law(event: SelectBest, most: int = 400) -> dict[int, float]:
    if event.stopping == "poisson":
        return {k: float(stats.poisson.pmf(k, event.mean)) for k in range(most)}
    eta, gamma, weight = event.eta, event.gamma, 1.0
    law = {}
    for k in range(1, most):
        # η cancels in the quotients, so that 0 is not a special case.
        law[k] = weight
        weight *= (1 - gamma) * (k + eta) / (k + 1)
    whole = sum(law.values())
    return {k: chance / whole for k, chance in law.items()}


EVENTS = {
    "geometric": SelectBest(PureDP(1.0), 6.0),
    "logarithmic": SelectBest(PureDP(1.0), 3.0, eta=0.0),
    "negative": SelectBest(PureDP(1.0), 2.5, eta=-0.5),
    "steady": SelectBest(PureDP(1.0), 8.0, eta=3.0),
    "poisson": SelectBest(PureDP(1.0), 4.0, "poisson"),
    "poisson-short": SelectBest(PureDP(1.0), 0.5, "poisson"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVENTS)
def test_numbers_of_runs_have_their_law(name: str) -> None:
    event, source, draws = EVENTS[name], SeededSource(4), 4_000
    seen = Counter(module_number(event, source) for _ in range(draws))
    assert scripted.p_value(seen, number_law(event), draws) > 1e-3
    other = SelectBest(event.events, 1.3 * event.mean, event.stopping, event.eta)
    assert scripted.p_value(seen, number_law(other), draws) < 1e-3


@pytest.mark.parametrize("eta", [-0.5, 0.0, 0.3, 1.0, 3.0])
def test_inverted_probabilities_agree_with_the_distribution(eta: float) -> None:
    event = SelectBest(PureDP(1.0), 4.0, eta=eta)
    made = stopping._negative_binomial(eta, event.gamma, arithmetic(128))
    for number, chance in number_law(event, 3000).items():
        found = float(next(made))
        if number <= 200:
            assert found == pytest.approx(chance, rel=1e-6), number


def module_number(event: SelectBest, source: RandomSource) -> int:
    if event.stopping == "poisson":
        return poisson(event.mean, source=source)
    return negative_binomial(event.eta, event.gamma, source=source)


def test_ties_in_the_number_of_runs_need_more_bits() -> None:
    # Geometric with γ = ½: the first word is exactly ½, or 1 − 2^-64 and more.
    half = 2**63
    assert negative_binomial(1.0, 0.5, source=scripted.Scripted([half, 5])) == 2
    assert negative_binomial(1.0, 0.5, source=scripted.Scripted([half - 1, 2**64 - 2**40])) == 1
    assert negative_binomial(1.0, 0.5, source=scripted.Scripted([2**64 - 1, 5])) == 65
    assert poisson(1000.0, source=scripted.Scripted([half, 0])) in range(995, 1005)
