"""The engine: its guarantee, its errors, a search for neighbours, and an audit."""

from __future__ import annotations

import copy
import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import apart
from tests.refusals import refuses
from tests.torch.cases import Case, Factor, distance
from tests.torch.library import torch
from tests.torch.runs import WIDTH, Array, gradients, made

# isort: split

import dpgrain as dg
from dpgrain._types import IndexArray
from dpgrain.accounting import SampledGaussian
from dpgrain.errors import DeltaWarning, ParameterError
from dpgrain.torch.adaptive_clipping import AdaptiveNorm
from dpgrain.torch.privacy_engine import PrivacyEngine
from dpgrain.units import Element, Record, Relation, Unit, User

RECORDS = 12
USERS = np.repeat(np.arange(4), 3)
ELEMENTS = np.tile([0, 0, 1], 4)

#: Units with labels, and how far one of them moves a sum, by relation.
UNITS: dict[str, tuple[Unit, dict[str, Any], dict[Relation, float]]] = {
    "record": (Record(), {"users": USERS}, {"zero_out": 1.0, "replace": 2.0}),
    "element": (
        Element(),
        {"users": USERS, "elements": ELEMENTS},
        {"zero_out": 1.0, "replace": 2.0},
    ),
    "user": (User(), {"users": USERS}, {"zero_out": 1.0, "replace": 2.0}),
    "kept": (
        User(max_elements=1),
        {"users": USERS, "elements": ELEMENTS},
        {"zero_out": 1.0, "replace": 2.0},
    ),
    "two kept": (
        User(max_elements=2),
        {"users": USERS, "elements": ELEMENTS},
        {"zero_out": 2.0, "replace": 4.0},
    ),
}


def for_unit(name: str) -> IndexArray:
    if name == "record":
        return np.array([RECORDS - 1])
    if name == "element":
        return np.flatnonzero((USERS == 3) & (ELEMENTS == 0))
    return np.flatnonzero(USERS == 3)


def adversarial(rows: int, rng: np.random.Generator, precision: Any) -> Array:
    """Gradients that are huge, tiny, opposite to each other, or no numbers."""
    largest = 1e12 if precision == np.float32 else 1e100
    values = rng.normal(size=(rows, WIDTH)) * rng.choice([1e-3, 1.0, 1e3, largest], size=(rows, 1))
    if rng.random() < 0.3:
        values[rng.integers(rows)] = rng.choice([math.nan, math.inf, -math.inf])
    if rng.random() < 0.5 and rows > 1:
        values[1] = -values[0] * (1 + rng.choice([0, 1e-6]))
    if rng.random() < 0.6:
        # All point to one side, which moves the sum most.
        values = np.abs(values)
    typed: Array = values.astype(precision)
    return typed


@pytest.mark.slow
@pytest.mark.parametrize("exact", [False, True], ids=["float", "exact"])
@pytest.mark.parametrize("max_rows", [None, 1, 2, 5])
@pytest.mark.parametrize("precision", [np.float32, np.float64], ids=["single", "double"])
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize("name", UNITS)
def test_no_neighbours_exceed_the_charge(
    name: str, relation: Relation, precision: Any, max_rows: int | None, exact: bool
) -> None:
    unit, labels, billed = UNITS[name]
    rng = np.random.default_rng(7)
    rows, worst = for_unit(name), 0.0
    kept = np.setdiff1d(np.arange(RECORDS), rows)
    for seed in range(25):
        one = adversarial(RECORDS, rng, precision)
        other = one.copy()
        if relation == "replace":
            sign = -np.sign(np.nan_to_num(one[rows].sum(0, keepdims=True), nan=1.0))
            other[rows] = adversarial(len(rows), rng, precision)
            if rng.random() < 0.5:
                other[rows] = sign * np.abs(other[rows])
        options = {"max_rows": max_rows, "exact": exact, "seed": seed, "relation": relation}
        first = gradients(one, unit, **labels, **options)
        if relation == "replace":
            second = gradients(other, unit, **labels, **options)
        else:
            fewer = {label: values[kept] for label, values in labels.items()}
            second = gradients(one[kept], unit, **fewer, **options)
        worst = max(worst, float(np.linalg.norm(first - second)))
    # The noise is the same on both sides, since no draw goes before it.
    assert 0.7 * billed[relation] < worst <= billed[relation] * 1.001


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["pairs", "users"])
@pytest.mark.parametrize("name", ["record", "element", "user", "two kept"])
def test_neighbours_in_samples(name: str, sampling: str) -> None:
    unit, labels, billed = UNITS[name]
    rows = for_unit(name)
    kept = np.setdiff1d(np.arange(RECORDS), rows)
    rng = np.random.default_rng(9)
    seen = set()
    for seed in range(12):
        one = np.abs(adversarial(RECORDS, rng, np.float64))
        fewer = {label: values[kept] for label, values in labels.items()}
        options = {"seed": seed, "sampling": sampling, "sampling_rate": 0.5}
        first = gradients(one, unit, **labels, **options)
        second = gradients(one[kept], unit, **fewer, **options)
        # A draw of nothing is a step without a batch.
        if len(first) and len(second):
            moved = float(np.linalg.norm(first - second))
            assert moved <= billed["zero_out"] + 0.05
            seen.add(moved > 0.5)
    assert seen == {False, True}


def test_records_of_a_block_count_as_one_mean() -> None:
    vectors = np.zeros((RECORDS, WIDTH))
    vectors[:3] = [[0.3, 0, 0, 0], [0, 0.3, 0, 0], [0, 0, 0.3, 0]]
    found = gradients(vectors, User(), users=USERS)[0]
    assert found == pytest.approx([0.1, 0.1, 0.1, 0], abs=0.01)


@pytest.mark.parametrize("max_rows", [None, 1, 2, 4])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_chunks_change_nothing(max_rows: int | None, exact: bool, reduction: str) -> None:
    vectors = np.random.default_rng(1).normal(size=(RECORDS, WIDTH))
    _engine, module, optimizer, loader = made(
        vectors, User(), users=USERS, max_rows=max_rows, exact=exact, loss_reduction=reduction
    )
    for (x,) in loader:
        losses = module(x)
        (losses.mean() if reduction == "mean" else losses.sum()).backward()
        optimizer.step()
    means = vectors.reshape(4, 3, WIDTH).mean(1)
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1)
    assert module.weight.grad[0].numpy() * 10 == pytest.approx(means.sum(0), abs=0.01)


WAYS: dict[str, dict[str, Any]] = {
    "float": {},
    "exact": {"exact": True},
    "parts": {"max_rows": 2},
    "adaptive": {"max_grad_norm": AdaptiveNorm(start=1.0)},
    "stated": {"records_apart": [Factor]},
}


@pytest.mark.parametrize("sizes", [(1, 1, 2, 5), (3, 3, 3)], ids=["ragged", "equal"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["contrast", "tempered"])
def test_parameters_without_dimensions_are_trained(
    name: str, way: str, sizes: tuple[int, ...], tmp_path: Path
) -> None:
    case = Case.of(name, sizes, torch.float64)
    looped, _norms = case.looped(1.0)
    again = copy.deepcopy(case.module)
    records: dict[str, Any] = {
        "dataset": torch.utils.data.TensorDataset(case.x, case.y),
        "users": np.repeat(np.arange(len(sizes)), sizes),
    }
    options = {
        "n_users": 1,
        "steps": 2,
        "sampling_rate": 1.0,
        "noise_multiplier": 2.0**-10,
        "max_grad_norm": 1.0,
        **WAYS[way],
    }
    engine = PrivacyEngine(random_state=1)
    module, optimizer, loader = engine.make_private(
        module=case.module,
        optimizer=torch.optim.Adam(case.module.parameters()),
        **records,
        **options,
    )
    for x, y in loader:
        case.losses(module, x, y).mean().backward()
        if optimizer.step():
            break
    found = {n: p.grad.clone() for n, p in module.named_parameters()}
    assert distance(looped, found) < 0.05
    assert float(looped["factor.weight" if name == "tempered" else "logit_scale"].abs()) > 0.05
    engine.save(tmp_path / "run.pt")
    records |= {
        name: WAYS[way][name] for name in ("records_apart", "max_rows") if name in WAYS[way]
    }
    _, module, optimizer, loader = PrivacyEngine.resume(
        tmp_path / "run.pt", module=again, optimizer=torch.optim.Adam(again.parameters()), **records
    )
    for x, y in loader:
        case.losses(module, x, y).mean().backward()
        optimizer.step()
    assert len(loader) == 0


@pytest.mark.slow
def test_network_learns_common_structure() -> None:
    rng = np.random.default_rng(1)
    people, each = 300, 4
    x = rng.normal(size=(people * each, 5)).astype(np.float32)
    y = (x @ [2.0, -1.0, 0.5, 0, 0] + 0.3 * rng.normal(size=len(x)) > 0).astype(np.int64)
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    engine = PrivacyEngine(unit=User())
    module, optimizer, loader = engine.make_private(
        module=network,
        optimizer=torch.optim.Adam(network.parameters(), lr=0.05),
        dataset=torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y)),
        users=np.repeat(np.arange(people), each),
        n_users=people,
        target_epsilon=8.0,
        target_delta=1e-5,
        steps=60,
        sampling_rate=0.2,
        max_grad_norm=0.5,
        max_rows=100,
    )
    for records, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(records), labels).backward()
        optimizer.step()
    with torch.no_grad():
        right = (module(torch.from_numpy(x)).argmax(1).numpy() == y).mean()
    assert right > 0.85
    assert engine.guarantee.private
    assert engine.get_epsilon() <= 8.0


# -- the promise --


def test_weight_averages_use_only_published_values() -> None:
    vectors = np.random.default_rng(1).normal(size=(RECORDS, WIDTH))
    _engine, module, optimizer, loader = made(vectors, User(), users=USERS, steps=8, lr=0.5)
    swa = torch.optim.swa_utils
    average = swa.AveragedModel(module)
    moving = swa.AveragedModel(module, multi_avg_fn=swa.get_ema_multi_avg_fn(0.5))
    points = []
    for (x,) in loader:
        module(x).mean().backward()
        optimizer.step()
        points.append(module.weight.detach().clone())
        average.update_parameters(module)
        moving.update_parameters(module)
        # A copy takes part in nothing: it may be called at any time.
        average(x)
    assert torch.allclose(average.module.weight, torch.stack(points).mean(0))
    expected = points[0]
    for point in points[1:]:
        expected = 0.5 * expected + 0.5 * point
    assert torch.allclose(moving.module.weight, expected)


def test_one_run_has_the_curve_of_every_unit() -> None:
    vectors = np.ones((RECORDS, WIDTH))
    engine, *_ = made(
        vectors,
        Element(),
        users=USERS,
        elements=ELEMENTS,
        noise_multiplier=3.0,
        steps=20,
        sampling_rate=0.1,
    )
    event = SampledGaussian(3.0, 0.1, 20)
    assert engine.get_epsilon(1e-6) == event.epsilon(1e-6)
    assert engine.get_epsilon(1e-6, units=2) == event.epsilon(1e-6, units=2)
    for unit in (Record(), User(max_elements=2)):
        assert engine.get_epsilon(1e-6, unit=unit) == event.epsilon(1e-6, unit=unit)
    assert engine.get_epsilon(1e-6, unit=User()) == math.inf
    text = str(engine.guarantee)
    assert text.startswith("NOT PRIVATE")
    for words in (
        "10 enrolled users",
        "20 rounds",
        "batches reach the network and the loss unchanged",
        "floating point",
    ):
        assert words in text


def test_target_is_met_nearly_tightly() -> None:
    engine, *_ = made(
        np.ones((RECORDS, WIDTH)),
        User(),
        users=USERS,
        target_epsilon=2.0,
        target_delta=1e-5,
        steps=30,
        sampling_rate=0.2,
    )
    assert 1.99 < engine.get_epsilon() <= 2.0
    assert engine.guarantee.delta == 1e-5


def test_an_exact_run_leaves_no_rounding_out() -> None:
    engine, *_ = made(np.ones((RECORDS, WIDTH)), Record(), exact=True)
    assert "floating point" not in str(engine.guarantee)


def test_rejected_run_leaves_the_module_unchanged() -> None:
    network = torch.nn.Linear(WIDTH, 1)
    with dg.budget(0.1, 1e-9), pytest.raises(ParameterError, match="has no room"):
        PrivacyEngine().make_private(
            module=network,
            optimizer=torch.optim.SGD(network.parameters()),
            dataset=torch.utils.data.TensorDataset(torch.ones(5, WIDTH)),
            n_users=5,
            steps=3,
            sampling_rate=1.0,
            max_grad_norm=1.0,
            noise_multiplier=1.0,
        )
    network(torch.ones(2, WIDTH)).sum().backward()
    assert network.weight.grad is not None


def test_a_large_delta_is_warned_of() -> None:
    with pytest.warns(DeltaWarning):
        made(np.ones((RECORDS, WIDTH)), User(), users=USERS, target_delta=0.1)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self) -> Any:
        return iter([])


DATA = torch.utils.data.TensorDataset(torch.ones(RECORDS, WIDTH))
SAMPLER = torch.utils.data.WeightedRandomSampler([1.0] * RECORDS, 5)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "loader": ({"dataset": torch.utils.data.DataLoader(DATA, sampler=SAMPLER)}, "WeightedRandom"),
    "shuffled": ({"dataset": torch.utils.data.DataLoader(DATA, shuffle=True)}, "RandomSampler"),
    "sampler": ({"dataset": SAMPLER}, "not a WeightedRandomSampler"),
    "stream": ({"dataset": Stream()}, "by index"),
    "nothing": ({"noise_multiplier": None}, "one of noise_multiplier, target_epsilon and share"),
    "both": (
        {"target_epsilon": 1.0, "noise_multiplier": 1.0},
        "not noise_multiplier and ",
    ),
    "roster": ({"n_users": None}, "n_users must be an integer"),
    "steps": ({"steps": 0}, "steps must be"),
    "rate": ({"sampling_rate": 0}, "sampling_rate must be above 0"),
    "fixed": ({"sampling": "fixed"}, "sampling must be one of 'pairs', 'users'"),
    "bound": ({"max_grad_norm": 1e-20}, "max_grad_norm must be between"),
    "no bound": ({"max_grad_norm": math.inf}, "max_grad_norm must be positive and finite"),
    "rows": ({"max_rows": 0}, "max_rows must be"),
    "reduction": ({"loss_reduction": "none"}, "loss_reduction must be one of"),
    "delta": ({"target_delta": 0.0}, "target_delta"),
    "users": ({"users": [1, 2]}, "users must have exactly one label for each row"),
    "elements": ({"elements": ELEMENTS}, "elements are not used"),
    "exact": ({"exact": 1}, "exact must be True or False"),
}


@pytest.mark.parametrize(("wrong", "words"), WRONG.values(), ids=WRONG)
def test_invalid_parameters_are_rejected(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        made(np.ones((RECORDS, WIDTH)), User(), **{"users": USERS, **wrong})


def test_optimizer_must_contain_the_trained_parameters() -> None:
    network, other = torch.nn.Linear(WIDTH, 1), torch.nn.Linear(2, 2)
    for held, words in (
        ([network.weight], "must contain 'bias', which is trained"),
        ([*network.parameters(), *other.parameters()], "only parameters of the module"),
    ):
        with pytest.raises(ParameterError, match=words):
            made(
                np.ones((3, WIDTH)), User(), module=network, optimizer=torch.optim.SGD(held, lr=0.1)
            )
    _, module, optimizer, _ = made(np.ones((3, WIDTH)), User())
    with pytest.raises(ParameterError, match="plain"):
        made(np.ones((3, WIDTH)), User(), module=module, optimizer=optimizer)


def test_an_engine_without_a_run_has_no_epsilon() -> None:
    engine = PrivacyEngine()
    with pytest.raises(ParameterError, match="call make_private first"):
        engine.get_epsilon(1e-6)
    with refuses("relation"):
        PrivacyEngine(relation="odd")  # type: ignore[arg-type]


TRIALS, SIZE = 700, 4
# A lower bound on the distance of two laws, in deviations, that is wrong once in 10^6.
mu_between = functools.partial(apart.mu_below, chance=1e-6)


def scores(present: bool, unit: Unit, **options: Any) -> Array:
    """The first coordinate of each step's gradient, with the last user or without."""
    people = 12 if present else 11
    vectors = np.zeros((people * SIZE, WIDTH))
    vectors[:, 0] = -30.0
    vectors[-SIZE:, 0] = 30.0 if present else -30.0
    users = np.repeat(np.arange(people), SIZE)
    found = gradients(
        vectors,
        unit,
        users=users,
        noise_multiplier=1.0,
        steps=TRIALS,
        seed=2 + present,
        **options,
    )
    return found[:, 0]


def mu_below(**options: Any) -> float:
    """A lower bound on the distance of the two data sets in noise deviations, in one step."""
    return mu_between(scores(True, User(), **options), scores(False, User(), **options))


# The noise is as large as the bound.
CLAIMED = 1.0


@pytest.mark.slow
def test_audit_stays_below_the_claim() -> None:
    assert SampledGaussian(1.0, 1.0, 1, level="user").loss().mu == CLAIMED
    assert 0.4 * CLAIMED < mu_below() <= CLAIMED
