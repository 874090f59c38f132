"""Published steps: banded noise, and private means of vectors, in the engine itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.torch.library import torch
from tests.torch.runs import WIDTH, Array, made
from tests.torch.test_privacy_engine import (
    ELEMENTS,
    RECORDS,
    UNITS,
    USERS,
    adversarial,
    for_unit,
    mu_between,
)

# isort: split
import scipy.stats

from dpgrain._types import IndexArray
from dpgrain.accounting import BandedGaussian
from dpgrain.means import ClippedMean
from dpgrain.means.bands import Bands
from dpgrain.means.clipped import ClippedRounds
from dpgrain.noise import SeededSource, SystemSource
from dpgrain.publishing.draws import counted
from dpgrain.torch.adaptive_clipping import AdaptiveNorm
from dpgrain.torch.clipping import ExactSum
from dpgrain.torch.steps import ClippedSteps, in_floating_point
from dpgrain.units import Element, Relation, User

# isort: split
from dpgrain._types import FloatArray
from dpgrain.accounting import Gaussian
from dpgrain.means.grid import grid_step, noised_steps
from dpgrain.noise import RandomSource
from dpgrain.torch.clipping import FloatSum
from dpgrain.torch.steps import split

STEPS = 6


def trained(vectors: Any, unit: Any, **options: Any) -> tuple[Array, Any]:
    """(steps, WIDTH): the published steps times the number of users, 10; and the loader."""
    options = {"steps": STEPS, **options}
    _, module, optimizer, loader = made(vectors, unit, **options)
    seen = []
    # A step of an empty draw is not handed out, but it is made.
    optimizer._own.register_step_post_hook(
        lambda *_: seen.append(module.weight.grad[0].double().numpy() * 10)
    )
    for (x,) in loader:
        module(x).mean().backward()
        optimizer.step()
    return np.array(seen), loader


# -- noise in bands --


def undone(published: Array, column: tuple[float, ...]) -> Array:
    """C times what was published of all steps, (steps, WIDTH)."""
    steps, none = len(published), np.zeros((len(column), published.shape[1]))
    late = np.vstack([none, published])[
        len(column) - np.arange(len(column))[:, None] + np.arange(steps)
    ]
    return np.asarray(np.einsum("k,ksw->sw", column, late))


def in_order(own: ClippedRounds, owners: IndexArray) -> IndexArray:
    """Parts of users who have the same ones without the last user."""
    users: IndexArray = np.arange(int(owners.max(initial=-1)) + 1) % own.mean.bands
    return users


@pytest.mark.slow
@pytest.mark.parametrize("bound", ["stated", "adaptive"])
@pytest.mark.parametrize("sampling", ["pairs", "users"])
@pytest.mark.parametrize("max_rows", [None, 2])
@pytest.mark.parametrize("bands", [2, 3])
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize("name", UNITS)
def test_no_neighbours_are_farther_apart_than_is_billed(
    name: str,
    relation: Relation,
    bands: int,
    max_rows: int | None,
    sampling: str,
    bound: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All users of a part are sampled: all turns of a unit are visible, each charged separately."""
    monkeypatch.setattr(ClippedRounds, "_parted", in_order)
    unit, labels, billed = UNITS[name]
    rng, rows, worst = np.random.default_rng(7), for_unit(name), 0.0
    kept = np.setdiff1d(np.arange(RECORDS), rows)
    column = Bands.best(bands, STEPS).column
    for seed in range(8):
        one = adversarial(RECORDS, rng, np.float64)
        other = one.copy()
        if relation == "replace":
            other[rows] = -np.abs(one[rows])
        options: dict[str, Any] = {"max_rows": max_rows, "sampling": sampling, "seed": seed}
        options |= {"noise": "banded", "bands": bands, "sampling_rate": 1 / bands}
        options |= {"relation": relation}
        if bound == "adaptive":
            options["max_grad_norm"] = AdaptiveNorm(rate=1e-12)
        scale = 1 / bands
        first = trained(one, unit, **labels, **options)[0] * scale
        if relation == "replace":
            second = trained(other, unit, **labels, **options)[0] * scale
        else:
            fewer = {label: values[kept] for label, values in labels.items()}
            second = trained(one[kept], unit, **fewer, **options)[0] * scale
        moved = first - second
        turns = np.flatnonzero(np.linalg.norm(moved, axis=1) > 1e-9)
        assert len(turns) <= math.ceil(STEPS / bands)
        assert not np.any(np.diff(turns) % bands)
        # C times the published steps has independent noise.
        whole = sum(
            np.vstack([np.zeros((k, WIDTH)), c * moved[: STEPS - k]]) for k, c in enumerate(column)
        )
        assert np.linalg.norm(whole) <= billed[relation] * math.sqrt(max(len(turns), 1)) * 1.001
        worst = max(worst, *(np.linalg.norm(moved, axis=1)))
    assert 0.5 * billed[relation] < worst <= billed[relation] * 1.001


@pytest.mark.slow
def test_noise_undone_by_the_matrix_is_white(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, bands = 300, 4
    published, _ = trained(
        np.zeros((RECORDS, WIDTH)),
        User(),
        users=USERS,
        noise="banded",
        bands=bands,
        sampling_rate=0.25,
        steps=steps,
        noise_multiplier=2.0,
        max_grad_norm=0.5,
    )
    published = published * 0.25
    white = undone(published, Bands.best(bands, steps).column)
    assert white.std() == pytest.approx(1.0, rel=0.1)
    for lag in range(1, bands + 1):
        inner_products = (white[lag:] * white[:-lag]).mean()
        assert abs(inner_products) < 5 / math.sqrt(steps * WIDTH)
    # Each published step has more noise.
    assert published.std() > 1.1


@pytest.mark.slow
def test_the_engine_charges_bands_and_finds_the_best() -> None:
    options: dict[str, Any] = {"users": USERS, "steps": 400, "sampling_rate": 0.002}
    vectors = np.ones((RECORDS, WIDTH))
    stated, *_ = made(vectors, User(), noise="banded", bands=8, noise_multiplier=1.0, **options)
    event = BandedGaussian(1.0, 0.002, 400, 8, level="user")
    assert stated.get_epsilon(1e-6) == event.epsilon(1e-6, unit=User())
    assert "8 random parts of the users in turn" in str(stated.guarantee)
    found, *_ = made(vectors, User(), noise="banded", target_epsilon=8.0, **options)
    assert 7.9 < found.get_epsilon() <= 8.0
    assert "random parts of the users in turn" in str(found.guarantee)


def test_run_resumes_or_resets_its_noise() -> None:
    mean = ClippedMean(1.0, 1.0, 10, 20, 0.25, bands=3)
    weights = [torch.zeros(4, 2), torch.zeros(3)]

    def steps(seed: int) -> ClippedSteps:
        return ClippedSteps(mean, weights, counted(SeededSource(seed), mean.event), AdaptiveNorm())

    def gradients(of: ClippedSteps) -> Array:
        drawn = of.gradients(of.empty_sum())
        found: Array = torch.cat([noisy.flatten() for _, noisy in drawn]).numpy()
        return found

    one = steps(1)
    for _ in range(5):
        gradients(one)
    assert set(one.state()) == {"bound"}
    state = one.state(secret=True)
    again, anew = steps(1), steps(1)
    for other in (again, anew):
        for _ in range(5):
            gradients(other)
    fresh = steps(1)
    again._correlated = fresh._correlated
    again.load_state(state)
    anew.load_state(one.state())
    expected = gradients(one)
    assert np.array_equal(gradients(again), expected)
    begun = gradients(anew)
    assert not np.allclose(begun, expected)
    assert anew.bound == pytest.approx(one.bound)
    # Restarted noise has the size of a first step's.
    assert np.abs(begun).max() < 6 * anew.bound / mean.divisor / mean.matrix.column[0] * 1.1


# -- an audit of the engine: each turn of the last user is a trial --

TRIALS = 450
BANDS = 2


def scores(present: bool) -> Array:
    people = 6 if present else 5
    vectors = np.zeros((people, WIDTH))
    vectors[5:, 0] = 30.0
    steps = BANDS * TRIALS + BANDS
    published, _ = trained(
        vectors,
        User(),
        users=np.arange(people),
        noise="banded",
        bands=BANDS,
        sampling_rate=1 / BANDS,
        noise_multiplier=1.0,
        steps=steps,
        seed=3 + present,
    )
    column = np.array(Bands.best(BANDS, steps).column)
    turns = undone(published / BANDS, tuple(column))[5 % BANDS :, 0]
    starts = range(0, BANDS * TRIALS, BANDS)
    return np.array([turns[first : first + BANDS] @ column for first in starts])


@pytest.fixture(autouse=True)
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "audit" in request.node.name:
        monkeypatch.setattr(ClippedRounds, "_parted", in_order)


@pytest.mark.slow
def test_audit_stays_below_the_claim() -> None:
    assert 0.4 < mu_between(scores(True), scores(False)) <= 1.0


def test_elements_have_the_curve_of_all_units_in_bands() -> None:
    engine, *_ = made(
        np.ones((RECORDS, WIDTH)),
        Element(),
        users=USERS,
        elements=ELEMENTS,
        noise="banded",
        bands=4,
        sampling_rate=0.05,
        steps=40,
        noise_multiplier=2.0,
    )
    part = BandedGaussian(2.0, 0.05, 40, 4).part_event
    assert engine.get_epsilon(1e-6) == part.epsilon(1e-6)
    assert engine.get_epsilon(1e-6, units=2) == part.epsilon(1e-6, units=2)
    assert engine.get_epsilon(1e-6, unit=User(max_elements=2)) == part.epsilon(
        1e-6, unit=User(max_elements=2)
    )


def test_exact_sums_have_no_other_entries_without_counts() -> None:
    mean = ClippedMean(1.0, 1.0, 10, 2, exact=True)
    weights = [torch.zeros(4, 2), torch.zeros(3)]
    for rule, entries in ((None, 11), (AdaptiveNorm(), 12)):
        found = ClippedSteps(mean, weights, counted(SystemSource(), mean.event), rule).empty_sum()
        assert isinstance(found, ExactSum)
        assert len(found.total) == entries


SHAPES = [(300, 40), (7,), (2, 3, 4)]


WAYS = ["processor", "device", "exact"]


def noise(way: str, source: RandomSource, sd: float = 3.0) -> FloatArray:
    part = Gaussian(sd)
    weights = [torch.zeros(shape) for shape in SHAPES]
    if way == "exact":
        found = ExactSum(weights, 1.0, grid_step(1.0, sd))
        noisy = noised_steps(found.total, found.largest_norm, part, found.step, source)
        parts = dict(split(noisy, weights))
    else:
        (normals,) = counted(source, part).normals(part, 1.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dpgrain.publishing.draws.draws_itself", lambda _: way == "device")
            parts = dict(in_floating_point(FloatSum(weights, 1.0), weights, normals))
    assert [parts[w].shape for w in weights] == [w.shape for w in weights]
    drawn: FloatArray = np.concatenate([parts[w].numpy().ravel() for w in weights])
    return drawn


@pytest.mark.parametrize("way", WAYS)
def test_the_law_is_normal_with_the_stated_deviation(way: str) -> None:
    drawn = noise(way, SeededSource(1))
    assert scipy.stats.kstest(drawn / 3.0, "norm").pvalue > 1e-4
    assert scipy.stats.kstest(drawn / 3.3, "norm").pvalue < 1e-6


@pytest.mark.parametrize("way", WAYS)
def test_noise_is_drawn_anew(way: str) -> None:
    one, same = SeededSource(1), SeededSource(1)
    first = noise(way, one)
    assert np.array_equal(first, noise(way, same))
    assert abs(np.corrcoef(first, noise(way, one))[0, 1]) < 0.05
    system = SystemSource()
    assert not np.array_equal(noise(way, system), noise(way, system))


@pytest.mark.parametrize("way", WAYS)
def test_float_noise_does_not_follow_from_pytorch_s_seed(way: str) -> None:
    torch.manual_seed(1)
    first = noise(way, SystemSource())
    torch.manual_seed(1)
    assert not np.array_equal(first, noise(way, SystemSource()))


def test_noise_of_devices_differs_from_noise_of_processors() -> None:
    assert not np.array_equal(noise("device", SeededSource(1)), noise("processor", SeededSource(1)))
