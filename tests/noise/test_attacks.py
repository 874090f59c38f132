"""Attacks on floating point, on orders of sums and on time win against plain code, and not here."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.noise import attacks
from tests.noise.attacks import Attack, Mechanism
from tests.replay import recorded

import dpgrain as dg
from dpgrain.noise import SeededSource, discrete_laplace
from dpgrain.noise.noisy_sums import add_gaussian_noise, with_laplace

EPSILON = 1.0
DRAWS = 20_000
# Steps of the grid to 1.
STEPS = 2**30


def plain_laplace(seed: int) -> Mechanism:
    rng = np.random.default_rng(seed)
    return lambda secret, draws: (
        secret
        + attacks.textbook(
            rng.integers(1, 2**52, draws) / 2.0**53, 1 / EPSILON, rng.choice([-1.0, 1.0], draws)
        )
    )


def numpys_laplace(seed: int) -> Mechanism:
    rng = np.random.default_rng(seed)
    return lambda secret, draws: secret + rng.laplace(0.0, 1 / EPSILON, draws)


def plain_gaussian(seed: int) -> Mechanism:
    rng = np.random.default_rng(seed)
    return lambda secret, draws: secret + rng.normal(0.0, 1 / EPSILON, draws)


def grid_on_floats(seed: int) -> Mechanism:
    source = SeededSource(seed)

    def outputs(secret: float, draws: int) -> Any:
        return secret + discrete_laplace(STEPS / EPSILON, draws, source=source) / STEPS

    return outputs


def our_laplace(seed: int) -> Mechanism:
    source = SeededSource(seed)

    def outputs(secret: float, draws: int) -> Any:
        sums = np.full(draws, round(secret * STEPS), dtype=np.int64)
        return with_laplace(sums, STEPS / EPSILON, source=source) / STEPS

    return outputs


def our_gaussian(seed: int) -> Mechanism:
    source = SeededSource(seed)
    return lambda secret, draws: add_gaussian_noise(
        np.full(draws, secret), 1.0, 1 / EPSILON, source
    )


LOW_BITS, PRECISION = attacks.low_bits(1 / EPSILON), attacks.precision()
OFF_GRID = attacks.off_grid(1 / STEPS)
WINS: dict[str, tuple[Attack, Callable[[int], Mechanism]]] = {
    "low bits of the textbook's Laplace": (LOW_BITS, plain_laplace),
    "low bits of NumPy's Laplace": (LOW_BITS, numpys_laplace),
    "precision of the textbook's Laplace": (PRECISION, plain_laplace),
    "precision of NumPy's Laplace": (PRECISION, numpys_laplace),
    "precision of NumPy's Gaussian": (PRECISION, plain_gaussian),
    "exact noise on a sum of floats": (OFF_GRID, grid_on_floats),
}
# The true statement, with the detectable share of plain outputs: one in n.
HOLDS: dict[str, tuple[Attack, Callable[[int], Mechanism], int]] = {
    "low bits of Laplace": (LOW_BITS, our_laplace, 3),
    "precision of Laplace": (PRECISION, our_laplace, 100),
    "precision of Gaussian": (PRECISION, our_gaussian, 100),
    "exact noise on sums": (OFF_GRID, our_gaussian, 100),
}


@pytest.mark.parametrize("name", WINS)
def test_bits_of_plain_noise_reveal_the_value(name: str) -> None:
    """With probability 0.999 the plain mechanism is not even (3, 0)-private, but claims 1."""
    attack, mechanism = WINS[name]
    assert attack.epsilon(mechanism(1), DRAWS) > 3 * EPSILON


@pytest.mark.parametrize("name", HOLDS)
def test_bits_of_our_noise_show_nothing(name: str) -> None:
    """The same attack succeeds at the same draws if one output in n is plain."""
    attack, mechanism, one_in = HOLDS[name]
    assert attack.epsilon(mechanism(2), DRAWS) <= EPSILON / 2
    plain = grid_on_floats if attack is OFF_GRID else plain_laplace
    mixed = _one_in(one_in, mechanism(3), plain(4))
    assert attack.epsilon(mixed, DRAWS) > EPSILON


def _one_in(number: int, most: Mechanism, few: Mechanism) -> Mechanism:
    """The mechanism with one output in n from another one."""

    def outputs(secret: float, draws: int) -> Any:
        return np.where(np.arange(draws) % number == 0, few(secret, draws), most(secret, draws))

    return outputs


# ----------------------------------------------------------------------------------- orders of sums


def plain_sum(seed: int) -> Mechanism:
    rng = np.random.default_rng(seed)

    def outputs(first: float, draws: int) -> Any:
        total = float(attacks.in_order(attacks.rows_of(first)))
        return total + rng.laplace(0.0, 1 / EPSILON, draws)

    return outputs


def _table(rows: Any) -> dg.UserTable:
    return dg.read(pa.table({"x": pa.array(rows, pa.float32())}), threads=1)


def _sum(rows: Any, seed: int | None = None) -> Any:
    asked: dict[str, Any] = {"unit": dg.Record(), "epsilon": EPSILON, "clip": 1.0}
    return dg.sum(_table(rows), "x", bounds=(0.0, 1.0), noise="laplace", random_state=seed, **asked)


def _beneath(rows: Any) -> tuple[float, float]:
    """The exact sum of a release, and the scale of its noise, in the steps of its grid."""
    with recorded() as draws:
        _sum(rows, seed=1)
    (draw,) = draws
    return float(np.asarray(draw.sums).sum()), float(np.max(draw.scale))


def test_sum_in_row_order_moves_farther_than_a_row() -> None:
    """Neighbours that differ in one row of [0, 1] have plain sums 15 apart: ε > 7, not 1."""
    none, one = (attacks.in_order(attacks.rows_of(first)) for first in (0.0, 1.0))
    assert none - one > 14
    attack = attacks.order()
    assert attack.epsilon(plain_sum(5), DRAWS) > 7 * EPSILON


def test_our_sum_moves_by_no_more_than_a_row() -> None:
    """The sum under the noise changes by at most one clipping bound, in whole steps of a grid."""
    (low, scale), (high, same) = (_beneath(attacks.rows_of(first)) for first in (0.0, 1.0))
    assert scale == same
    assert low == round(low)
    assert 0 < high - low <= scale * EPSILON


def test_our_sum_has_no_order() -> None:
    """Reordered rows have different plain sums, but bit-identical releases."""
    rows = attacks.rows_of(1.0, 1 << 10)
    found, plain = set(), set()
    for turn in range(4):
        random.Random(turn).shuffle(order := list(range(len(rows))))
        found.add(float(_sum(rows[order], seed=7).value))
        plain.add(float(attacks.in_order(rows[order])))
    assert len(found) == 1
    assert len(plain) > 1


# -------------------------------------------------------------------------------------------- time


def coins(seed: int) -> Callable[[float], float]:
    """Two-sided geometric noise from repeated coins, a common implementation."""
    rng = random.Random(seed)

    def draw(secret: float) -> float:
        sign, size = 1 if rng.random() < 0.5 else -1, 0
        while rng.random() > 1 - np.e**-EPSILON:
            size += 1
        return secret + sign * size

    return draw


def our_counts(seed: int) -> Callable[[float], float]:
    source = SeededSource(seed)

    def draw(secret: float) -> float:
        sums = np.array([round(secret)], dtype=np.int64)
        return float(with_laplace(sums, 1 / EPSILON, source=source)[0])

    return draw


FEW = 2000


def test_time_of_coins_reveals_the_noise() -> None:
    """The work of a loop is the size of the noise: its output, with the time, is not (3, 0)-private."""
    attack = attacks.timing()
    assert attack.epsilon(attacks.timed(coins(6)), FEW) > 3 * EPSILON


def test_work_of_our_sampler_is_independent_of_its_value() -> None:
    """Each draw makes the same calls; the attack finds no more than the guarantee allows."""
    attack = attacks.timing()
    mechanism = attacks.timed(our_counts(7))
    work = {work for secret in (0.0, 1.0, 1e6, 2.0**60) for _, work in mechanism(secret, 200)}
    assert len(work) == 1
    assert attack.epsilon(mechanism, FEW) <= EPSILON


def test_sums_do_not_affect_the_sampler() -> None:
    """The same words give the same noise with the same work, also in rare draws."""
    seen = []
    for secret in (0, 1, -(2**62), 2**62):
        sums = np.full(400, secret, dtype=np.int64)
        source = SeededSource(8)
        noisy, work = attacks.worked(partial(with_laplace, sums, 2.0**40, source=source))
        seen.append((work, (noisy - secret).tolist()))
    assert all(each == seen[0] for each in seen)
    # Some of these draws are decided in exact arithmetic.
    assert (
        seen[0][0] > attacks.worked(lambda: discrete_laplace(1.0, 400, source=SeededSource(8)))[1]
    )
