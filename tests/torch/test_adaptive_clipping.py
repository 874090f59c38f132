"""A clipping bound that follows a quantile: its counts, neighbours, and an audit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.torch.library import torch
from tests.torch.runs import WIDTH, Array, made
from tests.torch.test_privacy_engine import RECORDS, UNITS, USERS, adversarial, for_unit, mu_between

# isort: split
from dpgrain.errors import ParameterError
from dpgrain.publishing.draws import CountedSource, Normals
from dpgrain.torch.adaptive_clipping import AdaptiveNorm
from dpgrain.torch.clipping import ExactSum, overshoot
from dpgrain.torch.steps import ClippedSteps
from dpgrain.units import Relation, User

# A bound that barely moves, so that two runs are compared at the same one.
STILL = AdaptiveNorm(rate=1e-12)


def test_counts_are_bounded_and_gradual() -> None:
    lengths = np.concatenate(
        [[0.0, math.inf], 10.0 ** np.random.default_rng(0).uniform(-9, 9, 500)]
    )
    for quantile in (0.01, 0.5, 0.9):
        rule = AdaptiveNorm(quantile)
        counts = rule.counts(lengths)
        assert np.abs(counts).max() == pytest.approx(1, abs=1e-12)
        assert np.abs(counts).max() <= 1
        # A norm that is off by a share moves a count by about as much.
        near = np.exp2(np.linspace(-1, 1, 2001))
        slope = np.abs(np.diff(rule.counts(near)) / np.diff(np.log(near)))
        assert slope.max() < 2 / math.log(2) * 1.01
    assert rule.stretch**2 >= 1 + rule.count_share**2


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_the_bound_tends_to_the_quantile(quantile: float) -> None:
    rng = np.random.default_rng(1)
    norms = np.exp(rng.normal(size=4000))
    rule, bound = AdaptiveNorm(quantile, start=100.0), 100.0
    for _ in range(300):
        # The size of the roster is stated wrongly: it changes how fast the bound moves, and no more.
        bound = rule.next(bound, float(rule.counts(norms / bound).sum()) / 6000)
    assert (norms < bound).mean() == pytest.approx(quantile, abs=0.03)


def test_the_bound_stays_a_number() -> None:
    rule = AdaptiveNorm(rate=10.0)
    low = high = 1.0
    for _ in range(50):
        low, high = rule.next(low, 1e300), rule.next(high, -1e300)
    assert (low, high) == (1e-9, 1e9)


@pytest.mark.slow
@pytest.mark.parametrize("exact", [False, True])
def test_a_run_follows_norms(exact: bool) -> None:
    people = 40
    vectors = np.zeros((people, WIDTH))
    vectors[:, 1] = np.linspace(0.5, 1.5, people) * 0.02
    _, module, optimizer, loader = made(
        vectors,
        User(),
        n_users=people,
        users=np.arange(people),
        max_grad_norm=AdaptiveNorm(start=1.0, rate=1.0),
        noise_multiplier=0.5,
        steps=40,
        exact=exact,
    )
    for (x,) in loader:
        module(x).mean().backward()
        optimizer.step()
    steps = loader._run.steps
    assert 0.015 < steps.bound < 0.03
    assert steps.published() == {"bound": steps.bound}
    # The noise is as large as the bound now is.
    noise = module.weight.grad[0].double().numpy() * people - vectors.clip(max=0.02).sum(0)
    assert np.abs(noise).max() < 6 * 0.5 * 0.03


# -- neighbours: sums and counts together --


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Array]:
    seen: list[Array] = []
    real = ClippedSteps.gradients

    def gradients(own: ClippedSteps, sums: Any) -> Any:
        if isinstance(sums, ExactSum):
            seen.append(np.asarray(sums.total * sums.step / sums.bound, dtype=np.float64))
        else:
            parts = [part.double().flatten() / sums.bound for part in sums.sums.values()]
            seen.append(torch.cat([*parts, sums.counted[None] * STILL.count_share]).numpy())
        return real(own, sums)

    monkeypatch.setattr(ClippedSteps, "gradients", gradients)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("exact", [False, True], ids=["float", "exact"])
@pytest.mark.parametrize("max_rows", [None, 2])
@pytest.mark.parametrize("precision", [np.float32, np.float64], ids=["single", "double"])
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize("name", UNITS)
def test_no_neighbours_exceed_the_charge(
    name: str,
    relation: Relation,
    precision: Any,
    max_rows: int | None,
    exact: bool,
    found: list[Array],
) -> None:
    unit, labels, billed = UNITS[name]
    rng, worst = np.random.default_rng(8), 0.0
    rows = for_unit(name)
    kept = np.setdiff1d(np.arange(RECORDS), rows)
    for seed in range(20):
        one = adversarial(RECORDS, rng, precision)
        other = one.copy()
        if relation == "replace":
            # Opposite, and short: both the gradient and the count move.
            other[rows] = -one[rows] * rng.choice([1.0, 1e-3])
        options: dict[str, Any] = {"max_rows": max_rows, "exact": exact, "seed": seed}
        options["relation"] = relation
        options["max_grad_norm"] = STILL
        pairs = [(one, labels), (other, labels)]
        if relation == "zero_out":
            pairs[1] = one[kept], {label: values[kept] for label, values in labels.items()}
        for data, its in pairs:
            step(data, unit, **its, **options)
        worst = max(worst, float(np.linalg.norm(found[-1] - found[-2])))
    assert 0.6 * billed[relation] < worst <= billed[relation] * STILL.stretch * 1.001


def step(data: Any, unit: Any, **options: Any) -> Any:
    _, module, optimizer, loader = made(data, unit, **options)
    for (x,) in loader:
        module(x).mean().backward()
        optimizer.step()
    return loader._run.steps


def test_noise_covers_the_vector_and_its_count(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    real = CountedSource.normals

    def normals(own: CountedSource, part: Any, *radii: float) -> list[Normals]:
        found = real(own, part, *radii)
        seen.extend(noise.sd for noise in found)
        return found

    monkeypatch.setattr(CountedSource, "normals", normals)
    rule = AdaptiveNorm(start=0.5, rate=1e-12)
    step(np.ones((RECORDS, WIDTH)), User(), users=USERS, max_grad_norm=rule, noise_multiplier=3.0)
    longer = 1 + overshoot(torch.float64)
    # A vector and count of norm √(1 + share²) at most have noise for this norm, each in its own units.
    assert seen[1] == pytest.approx(3.0 * 0.5 * math.sqrt(1 + 1 / 64) * longer, rel=1e-12)
    assert seen[0] == pytest.approx(3.0 * math.sqrt(1 + 1 / 64) * 8 * longer, rel=1e-12)
    assert min(seen[1] / 1.5, seen[0] / 24) >= math.sqrt(1 + 1 / 64) * longer * (1 - 1e-15)


def test_guarantee_equals_a_fixed_bound_and_lists_publications() -> None:
    vectors = np.ones((RECORDS, WIDTH))
    options: dict[str, Any] = {"users": USERS, "steps": 30, "sampling_rate": 0.2}
    options["noise_multiplier"] = 2.0
    fixed, *_ = made(vectors, User(), **options)
    adaptive, *_ = made(vectors, User(), max_grad_norm=AdaptiveNorm(), **options)
    assert fixed.get_epsilon(1e-6) == adaptive.get_epsilon(1e-6)
    assert "later clipping bounds follow from noisy counts" in str(adaptive.guarantee)
    assert "noisy counts" not in str(fixed.guarantee)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "quantile": ({"quantile": 1.0}, r"quantile must be in \(0, 1\)"),
    "start": ({"start": 1e-20}, "start must be between"),
    "rate": ({"rate": 0.0}, "rate must be positive and finite"),
    "fast": ({"rate": 11.0}, "rate must be at most 10"),
}


@pytest.mark.parametrize(("wrong", "words"), WRONG.values(), ids=WRONG)
def test_invalid_numbers_are_rejected(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        AdaptiveNorm(**wrong)


# -- an audit: evidence of bounds and gradients on the last user --

TRIALS = 1600


def scores(present: bool, weight: float) -> Array:
    """For each step, the gradient plus a weight times the count revealed by its bound."""
    people = 7 if present else 6
    vectors = np.zeros((people, WIDTH))
    # The last user is long, all others are short: the bound is not near to any.
    vectors[6:, 0] = 50.0
    rule = AdaptiveNorm(rate=1e-9)
    _, module, optimizer, loader = made(
        vectors,
        User(),
        users=np.arange(people),
        max_grad_norm=rule,
        noise_multiplier=1.0,
        n_users=100,
        steps=TRIALS,
        seed=5 + present,
    )
    found, bounds = [], [1.0]
    for (x,) in loader:
        module(x).mean().backward()
        optimizer.step()
        bounds.append(loader._run.steps.bound)
        found.append(float(module.weight.grad[0, 0]) * 100)
    counts = -np.diff(np.log(bounds)) / 1e-9 * 100 / 0.5
    return np.array(found) - weight * counts


def mu_below(weight: float) -> float:
    """A lower bound on the distance of the two data sets in noise deviations, in one step."""
    return mu_between(scores(True, weight), scores(False, weight))


@pytest.mark.slow
def test_audit_stays_below_the_claim() -> None:
    # The best weight is the change ÷ its variance.
    assert 0.4 < mu_below(STILL.count_share**2) <= 1.0
    assert mu_below(1e3) <= 1.0
