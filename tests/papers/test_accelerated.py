"""Accelerated steps keep the bounds of their papers; printed steps keep theirs in a bounded domain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.optimize import cases

from dpgrain.optimize import Absolute, Constant, Last, Power, Sgd, Weighted, run
from dpgrain.papers import AcSa, Moreau, StronglyConvexAcSa

Array = NDArray[np.float64]


def test_descent_is_linear_and_ac_sa_quadratic_without_noise() -> None:
    p = cases.quadratic(np.geomspace(1.0, 1e-6, 40).tolist(), np.full(40, 1.0).tolist())
    rounds = [50, 100, 200, 400, 800]
    ends: dict[str, list[float]] = {"sgd": [], "ac-sa": []}
    for k in rounds:
        plain = Sgd(Constant(1.0), average=Last())
        ends["sgd"].append(p.excess(run(plain, p.gradient, np.zeros(40), k)))
        ends["ac-sa"].append(p.excess(run(AcSa(1.0, k), p.gradient, np.zeros(40), k)))
    rates = {name: np.polyfit(np.log(rounds), np.log(found), 1)[0] for name, found in ends.items()}
    assert -1.2 < rates["sgd"] < -0.8
    assert -2.4 < rates["ac-sa"] < -1.6
    assert ends["ac-sa"][-1] < ends["sgd"][-1] / 50


def test_ac_sa_converges_as_root_of_k_under_noise() -> None:
    p = cases.PROBLEMS["valley"]
    found = cases.slope(lambda k: AcSa(1.0, k, 5.0, p.distance), p, 5.0, 12)
    assert -1.3 < found < -0.4


@pytest.mark.parametrize("rounds", [1, 2, 5, 30, 300])
@pytest.mark.parametrize("noise", [0.0, 0.3, 5.0])
@pytest.mark.parametrize("problem", ["bowl", "valley", "logistic", "in a ball"])
def test_ac_sa_keeps_its_bound(problem: str, noise: float, rounds: int) -> None:
    p = cases.PROBLEMS[problem]
    solver = AcSa(p.smoothness, rounds, noise, p.distance, p.domain)
    excess = [
        p.excess(run(solver, cases.noisy(p, noise, seed), np.zeros(3), rounds))
        for seed in range(8 if noise else 1)
    ]
    assert np.mean(excess) <= solver.excess() * (1 if noise == 0 else 1.1)


@pytest.mark.parametrize("rounds", [1, 2, 5, 30, 300])
@pytest.mark.parametrize("noise", [0.0, 0.3, 5.0])
@pytest.mark.parametrize("problem", ["bowl", "valley", "ridge", "in a ball"])
def test_strongly_convex_ac_sa_keeps_its_bound(problem: str, noise: float, rounds: int) -> None:
    p = cases.PROBLEMS[problem]
    solver = StronglyConvexAcSa(p.smoothness, p.strength, p.domain)
    excess = [
        p.excess(run(solver, cases.noisy(p, noise, seed), np.zeros(3), rounds))
        for seed in range(8 if noise else 1)
    ]
    start = 2 * p.smoothness * p.distance**2 / (rounds * (rounds + 1))
    bound = start + 2 * noise**2 / (p.strength * (rounds + 1))
    assert np.mean(excess) <= bound * (1 if noise == 0 else 1.1)


def scaled_excess(rounds: int, factor: float, radius: float, d: int, seed: int = 0) -> Array:
    """(400,) excess·T²/(βD²) of AC-SA as printed, L_t = factor·β/(t + 1), on quadratics of β = 1.

    Start and minimum are in the ball of diameter D = 1; iterates farther than the radius from its
    centre are projected onto it.
    """
    rng = np.random.default_rng(seed)
    bends = np.exp(rng.uniform(-6, 0, (400, d)))
    bends[:, 0] = 1

    def inside() -> Array:
        way = rng.normal(size=(400, d))
        far = rng.uniform(0, 1, (400, 1)) ** (1 / d) / 2
        return np.asarray(far * way / np.linalg.norm(way, axis=1, keepdims=True))

    best, theta = inside(), inside()
    average = theta
    for t in range(1, rounds + 1):
        share = 2 / (t + 2)
        middle = share * theta + (1 - share) * average
        theta = theta - (t + 1) / factor * bends * (middle - best)
        theta = theta * np.minimum(1, radius / np.linalg.norm(theta, axis=1, keepdims=True))
        average = share * theta + (1 - share) * average
    return np.asarray((bends * (average - best) ** 2).sum(axis=1) / 2 * rounds**2)


@pytest.mark.parametrize("d", [2, 4, 8])
def test_printed_ac_sa_steps_have_their_rate_inside_domains(d: int) -> None:
    # Theorem 4.3 of the shuffle paper, without noise: it claims O(βD²/T²).
    for rounds in (80, 320, 1280):
        printed = scaled_excess(rounds, 1.0, 0.5, d)
        sound = scaled_excess(rounds, 2.0, 0.5, d)
        assert printed.max() < 30
        assert sound.max() < min(printed.max() / 20, 2)


def test_ac_sa_needs_twice_the_smoothness_without_projection() -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        assert scaled_excess(80, 1.0, np.inf, 4).max() > 1e10
    assert scaled_excess(80, 2.0, np.inf, 4).max() < 2
    # The solver here has 2β, and keeps its bound everywhere.
    p = replace(cases.quadratic([0.9, 0.3], [1.0, 1.0]), smoothness=1.0)
    sound = AcSa(p.smoothness, 80)
    assert p.excess(run(sound, p.gradient, np.zeros(2), 80)) < sound.excess()
    assert p.excess(run(AcSa(p.smoothness / 2, 80), p.gradient, np.zeros(2), 80)) > 1e10


def test_strongly_convex_ac_sa_does_not_need_the_strength() -> None:
    # With almost no strong convexity its steps must be as short as AC-SA's.
    p = cases.quadratic([0.9, 0.3], [1.0, 1.0])
    end = run(StronglyConvexAcSa(1.0, 1e-9), p.gradient, np.zeros(2), 80)
    assert p.excess(end) <= 2 * 2 / (80 * 81)


def test_an_envelope_lets_ac_sa_beat_subgradients_on_kinks() -> None:
    rng = np.random.default_rng(0)
    X, rounds = rng.normal(size=(101, 3)), 300
    y = X @ [1.0, -2.0, 0.5] + rng.standard_cauchy(101) * 0.2

    def value(v: Array) -> float:
        return float(Absolute().value(v, X, y).mean())

    plain = run(
        Sgd(Power(1.0), average=Weighted(3.0)),
        lambda v: np.asarray(Absolute().gradient(v, X, y).mean(axis=0)),
        np.zeros(3),
        rounds,
    )
    # Each record's envelope is 20-smooth, their mean too.
    smooth = Moreau(Absolute(), 20.0)
    fast = run(
        AcSa(20.0, rounds),
        lambda v: np.asarray(smooth.gradient(v, X, y).mean(axis=0)),
        np.zeros(3),
        rounds,
    )
    best = min(value(plain), value(fast))
    assert value(fast) - best < 5e-3
    assert value(fast) < value(plain) + 1e-3
