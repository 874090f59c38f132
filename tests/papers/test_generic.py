"""The generic mechanisms at the element sensitivity, eq. (5) and (6) of the element-level paper."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pytest
from tests.refusals import refuses
from tests.untouched import Untouched

import dpgrain as dg
from dpgrain.accounting import Contribution, Gaussian, Laplace
from dpgrain.errors import ParameterError, RefusedError
from dpgrain.noise import noisy_sums
from dpgrain.papers.generic import element_sensitivity, release_mean


def test_element_sensitivity_of_block_sums_equals_the_contribution() -> None:
    # Two cells of two items each; a block is clipped to norm 1.
    unit = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (math.sqrt(0.5), math.sqrt(0.5))]
    disjoint = element_sensitivity(lambda x: [*x[0], *x[1]], [unit, unit])
    assert disjoint == pytest.approx(Contribution().sensitivity(relation="replace"))
    l1 = element_sensitivity(lambda x: [*x[0], *x[1]], [unit[:3], unit[:3]], norm="l1")
    assert l1 == pytest.approx(Contribution(norm="l1").sensitivity(relation="replace"))


def test_element_sensitivity_is_below_the_global_one() -> None:
    blocks = [[0, 1], [0, 1], [0, 1]]
    assert element_sensitivity(sum, blocks) == 1.0
    assert element_sensitivity(lambda x: max(x) * 3, blocks) == 3.0


def test_non_finite_values_count_zero_in_the_sensitivity() -> None:
    def odd(user: tuple[object, ...]) -> float:
        return math.nan if user[0] is None else float(str(user[0]))

    assert element_sensitivity(odd, [[None, 100, 101]]) == 101.0


@pytest.mark.parametrize("blocks", [[], [[1], []]])
def test_element_sensitivity_needs_values(blocks: list[list[int]]) -> None:
    with refuses("blocks", "least"):
        element_sensitivity(sum, blocks)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_release_mean_is_unbiased_with_the_stated_error(
    noise: Literal["gaussian", "laplace"],
) -> None:
    values = np.random.default_rng(0).uniform(0, 1, (50, 4000))
    release = release_mean(
        values,
        sensitivity=3.0,
        epsilon=1.0,
        delta=1e-6,
        noise=noise,
        random_state=1,
    )
    error = release.value - values.mean(axis=0)
    assert abs(error.mean()) < 6 * release.std_error / math.sqrt(error.size)
    assert error.std() == pytest.approx(release.std_error, rel=0.06)
    assert release.guarantee.epsilon() <= 1.0
    assert not release.guarantee.private


@pytest.mark.parametrize(("wrong", "caught"), [(1.0, False), (0.5, True)])
def test_audit_of_the_release(wrong: float, caught: bool) -> None:
    """Many coordinates, each the same difference: a lower bound on μ that half the noise exceeds."""
    size = 20_000
    values = np.zeros((2, size))
    # One coordinate may move by `sensitivity`, so each one separately audits the guarantee.
    release = release_mean(values, sensitivity=1.0, epsilon=1.0, delta=1e-6, random_state=3)
    claimed = 1 / release.guarantee.event.noise_multiplier  # type: ignore[attr-defined]
    # In units of the sensitivity of one coordinate, without the √d steps of truncation.
    noise = release.value * 2 * wrong
    measured = 1 / (noise.std() * (1 + 4 / math.sqrt(2 * size)))
    assert bool(measured > claimed) is caught


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("d", [1, 300])
def test_truncation_moves_no_sum_farther_than_noise_is_for(
    noise: Literal["gaussian", "laplace"], d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scales: list[float] = []

    def drawn(scale: Any, size: int, **_: Any) -> Any:
        scales.extend(scale)
        return np.zeros(size, dtype=np.int64)

    for law in ("rounded_gaussian", "discrete_laplace"):
        monkeypatch.setattr(noisy_sums, law, drawn)
    order, step = (1 if noise == "laplace" else 2), 2.0**-28
    # One value is just below a step in each coordinate, and the other at the stated distance.
    least = np.full((1, d), step * (1 - 2.0**-20))
    far = np.full((1, d), 1.0 / (d if noise == "laplace" else math.sqrt(d)))
    away = np.ceil((least + far * (1 - 2.0**-24)) / step - 1) * step
    assert np.linalg.norm((away - least)[0], order) <= 1.0
    asked: dict[str, Any] = {"sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-6, "noise": noise}
    one, two = (release_mean(values, **asked) for values in (least, away))
    moved = float(np.linalg.norm((one.value - two.value) / step, order))
    event = one.guarantee.event
    assert isinstance(event, Gaussian | Laplace)
    assert moved <= scales[0] / event.noise_multiplier


def test_bad_values_count_zero() -> None:
    release = release_mean(
        np.array([1.0, math.nan, math.inf, 1e308]), sensitivity=1e-3, epsilon=100.0, noise="laplace"
    )
    assert np.isfinite(release.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"sensitivity": 0.0}, "sensitivity must be positive and finite"),
        ({"epsilon": math.inf}, "epsilon must be positive and finite"),
        ({"delta": 0.0}, "noise='laplace'"),
        ({"noise": "cauchy"}, "noise must be one of"),
        ({"values": []}, "values must be"),
        ({"dimension": None}, "dimension is required for a list of values"),
        ({"values": [[1.0], [2.0]], "dimension": None}, "dimension is required for a list"),
        ({"dimension": 0}, "dimension must be"),
        ({"values": np.ones((3, 2))}, "dimension must be the length of a value, 2, not 1"),
    ],
)
def test_parameters(change: dict[str, object], sentence: str) -> None:
    asked: dict[str, object] = {
        "values": [1.0], "dimension": 1, "sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-6
    } | change  # fmt: skip
    with pytest.raises(ParameterError, match=sentence):
        release_mean(**asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_nothing_is_read_before_it_is_paid_for(noise: Literal["gaussian", "laplace"]) -> None:
    values = Untouched(500, 3)
    asked: dict[str, Any] = {"sensitivity": 1.0, "noise": noise, "delta": 1e-6}
    plan = release_mean.query(values, epsilon=1.0, **asked).plan
    assert plan.guarantee.epsilon() <= 1.0
    with dg.budget(0.5, 1e-6) as budget:
        with pytest.raises(RefusedError):
            release_mean(values, epsilon=1.0, **asked)
        assert budget.left == 1.0
        with pytest.raises(AssertionError, match="it was read"):
            release_mean(values, epsilon=0.01, **asked)
        assert budget.left < 1.0
