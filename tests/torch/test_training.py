"""One training call: its guarantee, its errors before the charge, and its results."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.torch.library import torch
from tests.torch.runs import WIDTH, Array

# isort: split
import dpgrain as dg
from dpgrain.accounting import SampledGaussian
from dpgrain.errors import ParameterError
from dpgrain.optimize import Last
from dpgrain.torch import PrivacyEngine, Training, train
from dpgrain.units import Element, Record, Relation, Unit, User

functional = torch.nn.functional
PEOPLE, EACH = 60, 4
LABELS = np.repeat(np.arange(PEOPLE), EACH)
NAMED = pd.Series(LABELS, name="ids")


def records(seed: int = 1) -> tuple[Any, Any]:
    x = np.random.default_rng(seed).normal(size=(PEOPLE * EACH, 5)).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy((x @ [2.0, -1.0, 0.5, 0, 0] > 0).astype(np.int64))


def network() -> Any:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


def accuracy(found: Any) -> Any:
    x, y = records(2)
    return (found(x).argmax(1) == y).float().mean()


def trained(**options: Any) -> Training:
    asked: dict[str, Any] = {
        "module": network(),
        "loss": functional.cross_entropy,
        "dataset": torch.utils.data.TensorDataset(*records()),
        "users": LABELS,
        "n_users": PEOPLE,
        "epsilon": 8.0,
        "steps": 20,
        "random_state": 1,
        **options,
    }
    return train(**asked)


@pytest.mark.slow
def test_a_network_learns_inside_its_promise() -> None:
    found = trained(epsilon=20.0, steps=60, evaluate=accuracy, random_state=None)
    assert found.guarantee.private
    assert found.guarantee.epsilon() <= 20.0
    assert found.history.evaluated == tuple(range(0, 61, 3))
    assert found.history.last["accuracy"] > 0.8 > found.history.measures["accuracy"][0]
    assert accuracy(found.module).item() == pytest.approx(found.history.last["accuracy"])
    assert found.seconds > 0
    assert repr(found) == "Training(weights=66, steps=60)"
    assert str(found).startswith("Network with 66 trained weights, after 60 steps of about 60 ")


@pytest.mark.slow
def test_custom_loop_gives_the_same_network() -> None:
    found = trained(average=Last())
    own = network()
    engine = PrivacyEngine(random_state=1)
    own, optimizer, loader = engine.make_private(
        module=own,
        optimizer=torch.optim.Adam(own.parameters(), lr=0.01),
        dataset=torch.utils.data.TensorDataset(*records()),
        users=LABELS,
        n_users=PEOPLE,
        target_epsilon=8.0,
        steps=20,
        sampling_rate=1.0,
        max_grad_norm=0.1,
    )
    for x, y in loader:
        optimizer.zero_grad()
        functional.cross_entropy(own(x), y).backward()
        optimizer.step()
    assert engine.get_epsilon() == found.guarantee.epsilon()
    for ours, theirs in zip(found.module.parameters(), own.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize(
    ("unit", "options"),
    [
        (User(), {}),
        (Record(), {}),
        (Element(), {"elements": np.tile(np.arange(EACH), PEOPLE), "elements_per_user": 4.0}),
        (User(max_elements=2), {"elements": np.tile(np.arange(EACH), PEOPLE)}),
    ],
)
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_each_unit_keeps_its_promise(
    unit: Unit, options: dict[str, Any], relation: Relation
) -> None:
    found = trained(unit=unit, relation=relation, epsilon=2.0, steps=3, **options)
    assert 1.9 < found.guarantee.epsilon() <= 2.0
    assert found.guarantee.relation == relation
    own = SampledGaussian(
        found.mean.noise_multiplier,
        found.mean.sampling_rate,
        3,
        level=found.mean.level,
        max_elements=found.mean.max_elements,
    )
    assert own.epsilon(1e-6, unit=unit, relation=relation) <= 2.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_users", "rate"), [(20, 1.0), (128, 0.5), (2000, 0.1), (10**6, 2048e-6)]
)
def test_default_rate_follows_only_from_the_stated_users(n_users: int, rate: float) -> None:
    assert trained(n_users=n_users, steps=1, delta=1e-9).mean.sampling_rate == pytest.approx(rate)
    found = trained(n_users=n_users // 2, steps=1, delta=1e-9, elements_per_user=2.0)
    assert found.mean.sampling_rate == pytest.approx(rate)


def test_noise_may_replace_epsilon() -> None:
    found = trained(epsilon=None, noise_multiplier=3.0, steps=5, sampling_rate=0.2)
    assert found.guarantee.epsilon() == SampledGaussian(3.0, 0.2, 5, level="user").epsilon(1e-6)


def test_evaluated_records_count_as_public() -> None:
    words = "the records for evaluating the network"
    assert words in str(trained(steps=1, evaluate=accuracy).guarantee)
    assert words not in str(trained(steps=1).guarantee)


def test_draws_without_records_are_steps() -> None:
    found = trained(n_users=1000, sampling_rate=1e-3, steps=12, evaluate=accuracy)
    assert len(found.history.norms) == 12
    assert found.history.evaluated[-1] == 12


def test_an_empty_data_set_is_trained_on_noise() -> None:
    nothing = torch.utils.data.TensorDataset(torch.empty(0, 5), torch.empty(0, dtype=torch.long))
    assert len(trained(dataset=nothing, users=[], steps=3).history.norms) == 3


class Pairs(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, place: int) -> tuple[list[float], int]:
        return [float(place)] * 5, place % 2


def collated(some: list[Any]) -> tuple[Any, Any]:
    return torch.tensor([x for x, _ in some]), torch.tensor([y for _, y in some])


@pytest.mark.parametrize("reading", ["data set", "tensors"])
def test_batches_match_the_request(reading: str) -> None:
    calls: list[int] = []

    def collate(some: list[Any]) -> tuple[Any, Any]:
        calls.append(len(some))
        return collated(some) if reading == "data set" else torch.utils.data.default_collate(some)

    dataset = Pairs() if reading == "data set" else torch.utils.data.TensorDataset(*records())
    trained(dataset=dataset, users=None, n_users=8, steps=2, collate_fn=collate, max_rows=None)
    # Tensors define the form of a record, so that a synthetic one is tried.
    assert calls == [1] * (reading == "tensors") + [len(dataset), len(dataset)]


@pytest.mark.parametrize("example", [None, ([0.0] * 5, 0)], ids=["none", "one made up"])
def test_no_record_is_read_before_the_charge(example: Any) -> None:
    read: list[int] = []

    class Watched(Pairs):
        def __getitem__(self, place: int) -> tuple[list[float], int]:
            read.append(place)
            return super().__getitem__(place)

    asked: dict[str, Any] = {"users": None, "n_users": 8, "collate_fn": collated}
    with dg.budget(1e-3, 1e-9), pytest.raises(dg.RefusedError):
        trained(dataset=Watched(), example=example, **asked)
    if example is not None:
        with pytest.raises(ParameterError, match="zeros in the shape of one"):
            trained(dataset=Watched(), module=torch.nn.Linear(3, 2), example=example, **asked)
    assert not read
    trained(dataset=Watched(), example=example, steps=1, sampling_rate=1.0, **asked)
    assert read


def test_one_tensor_is_its_own_target() -> None:
    found = trained(
        module=torch.nn.Linear(5, 5),
        loss=functional.mse_loss,
        dataset=torch.utils.data.TensorDataset(records()[0]),
        steps=2,
    )
    assert len(found.history.norms) == 2


# -- neighbours: also with a loss that would mix records if it were called on a batch --


def spread(outputs: Any, target: Any) -> Any:
    """A loss with a per-record gradient sign that depends on the other records."""
    return outputs.sum() * target.sum()


def moved_by(vectors: Array, unit: Unit, **labels: Any) -> Array:
    """(WIDTH,): the sum of one step with almost no noise, from targets and inputs."""
    layer = torch.nn.Linear(WIDTH, 1, bias=False).double()
    torch.nn.init.ones_(layer.weight)
    values = torch.from_numpy(vectors)
    train(
        layer,
        spread,
        torch.utils.data.TensorDataset(values[:, 1:], values[:, :1]),
        unit=unit,
        n_users=10,
        epsilon=None,
        noise_multiplier=2.0**-10,
        steps=1,
        sampling_rate=1.0,
        max_grad_norm=1.0,
        optimizer=torch.optim.SGD(layer.parameters(), lr=1.0),
        random_state=1,
        **labels,
    )
    found: Array = (1.0 - layer.weight.detach().numpy()[0]) * 10
    return found


USERS, ELEMENTS = np.repeat(np.arange(4), 3), np.tile([0, 0, 1], 4)
UNITS: dict[str, tuple[Unit, dict[str, Any], Array, float]] = {
    "record": (Record(), {"users": USERS}, np.array([11]), 1.0),
    "element": (Element(), {"users": USERS, "elements": ELEMENTS}, np.array([9, 10]), 1.0),
    "user": (User(), {"users": USERS}, np.array([9, 10, 11]), 1.0),
    "two kept": (
        User(max_elements=2),
        {"users": USERS, "elements": ELEMENTS},
        np.array([9, 10, 11]),
        2.0,
    ),
}


def farthest(name: str, relation: Relation) -> float:
    unit, labels, rows, _ = UNITS[name]
    rng, worst = np.random.default_rng(3), 0.0
    kept = np.setdiff1d(np.arange(12), rows)
    for _turn in range(12):
        one = rng.normal(size=(12, 1 + WIDTH)) * rng.choice([0.1, 1.0, 30.0], size=(12, 1))
        one[rows] = np.abs(one[rows])
        if relation == "replace":
            other = one.copy()
            other[rows, 0] *= rng.choice([-1.0, -1.0, 100.0])
            second = moved_by(other, unit, **labels)
        else:
            fewer = {label: values[kept] for label, values in labels.items()}
            second = moved_by(one[kept], unit, **fewer)
        worst = max(worst, float(np.linalg.norm(moved_by(one, unit, **labels) - second)))
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize("name", UNITS)
def test_no_neighbours_exceed_the_charge(name: str, relation: Relation) -> None:
    billed = UNITS[name][3] * (2 if relation == "replace" else 1)
    assert 0.6 * billed < farthest(name, relation) <= billed * 1.001 + 0.02


# -- errors, and their effects --

DATA = torch.utils.data.TensorDataset(*records())
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "module": ({"module": 5}, "module must be a torch.nn.Module, not 5"),
    "frozen": ({"module": network().requires_grad_(False)}, "no trained parameter"),
    "no promise": ({"epsilon": None}, "one of epsilon, share and noise_multiplier must be passed"),
    "two": ({"noise_multiplier": 1.0}, "not epsilon and noise_multiplier"),
    "epsilon": ({"epsilon": -1.0}, "epsilon must be positive and finite"),
    "delta": ({"delta": 0.0}, "delta"),
    "roster": ({"n_users": 0}, "n_users must be an integer"),
    "elements": ({"elements_per_user": 0.0}, "elements_per_user must be positive and finite"),
    "steps": ({"steps": 0}, "steps must be an integer of at least 1"),
    "every": ({"every": 0}, "every must be an integer of at least 1"),
    "evaluate": ({"evaluate": DATA}, "evaluate must be a function of the network"),
    "measure": ({"evaluate": lambda _: "good"}, "evaluate must return a number"),
    "loader": ({"dataset": torch.utils.data.DataLoader(DATA)}, "pass loader.dataset"),
    "norm": ({"module": torch.nn.Sequential(network(), torch.nn.BatchNorm1d(2))}, "BatchNorm"),
    "shapes": ({"module": torch.nn.Linear(3, 2)}, "zeros in the shape of one"),
    "types": ({"module": network().double()}, "convert the inputs by .to.torch.float64"),
    "a pair": ({"dataset": records()}, r"such as torch.utils.data.TensorDataset\(x, y\)"),
    "option": ({"batch_size": 32}, "batch_size is not an option of train"),
    "rate": ({"learning_rate": 0.1}, "the optimizer the learning rate"),
    "several": ({"loss": lambda out, y: out[0]}, "one number for a batch of one record"),
    "branches": (
        {"loss": lambda out, y: out.sum() if out.sum() > 0 else -out.sum()},
        "vmap|data-dependent",
    ),
    "optimizer": ({"optimizer": "adam"}, "optimizer must be a plain optimizer"),
    "users": ({"users": [1]}, "users must have exactly one label for each row"),
}


@pytest.mark.parametrize(("wrong", "words"), WRONG.values(), ids=WRONG)
def test_invalid_parameters_are_rejected_before_the_charge(
    wrong: dict[str, Any], words: str
) -> None:
    with dg.budget(10.0, 1e-5) as budget:
        with pytest.raises(ParameterError, match=words):
            trained(**wrong)
        assert budget.left == 1.0


def test_large_batch_of_one_is_accepted() -> None:
    # A loss of several numbers for one record has one number for a batch of one all the same.
    found = trained(loss=torch.nn.CrossEntropyLoss(reduction="none"), steps=2, average=Last())
    same = trained(steps=2, average=Last())
    for ours, theirs in zip(found.module.parameters(), same.module.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_budgets_and_ledgers_are_charged(tmp_path: Path) -> None:
    with dg.budget(10.0, 1e-5) as budget:
        trained(share=0.5, epsilon=None, steps=2, users=LABELS)
        assert 0.4 < budget.left < 0.55
        left = budget.left
        with pytest.raises(ParameterError, match="has no room"):
            trained(epsilon=9.0, steps=2, users=LABELS)
        assert budget.left == left
    promise = dg.LastingPromise.of(User(), epsilon=4.0, delta=1e-6)
    place = tmp_path / "networks.ledger"
    dg.Ledger.create(place, name="networks", promises=[promise], user="ids")
    with dg.Ledger(place) as ledger:
        before = ledger.verify().number
        found = trained(epsilon=1.0, delta=1e-8, steps=2, random_state=None, users=NAMED)
        assert ledger.verify().number == before + 1
    assert found.guarantee.receipts


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_early_end_of_training_leaves_no_hooks(error: type[BaseException]) -> None:
    module, calls = network(), []

    def evaluate(_network: Any) -> float:
        calls.append(1)
        if len(calls) == 3:
            raise error
        return 1.0

    with pytest.raises(error) as raised:
        trained(module=module, evaluate=evaluate)
    if error is KeyboardInterrupt:
        assert "Nothing of the training is published" in raised.value.__notes__[0]
    module.train()
    module(torch.ones(2, 5)).sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    # The same network can be trained again.
    assert len(trained(module=module).history.norms) == 20


def test_a_finished_network_is_an_ordinary_one() -> None:
    module = trained(steps=2).module
    assert not module.training
    module.train()
    module(torch.ones(2, 5)).sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("max_rows", [None, 3])
def test_rows_per_pass_change_nothing(max_rows: int | None) -> None:
    found, same = trained(max_rows=max_rows, steps=3), trained(steps=3)
    for ours, theirs in zip(found.module.parameters(), same.module.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_seeded_training_is_reported() -> None:
    found = trained(steps=1)
    assert not found.guarantee.private
    assert str(found.guarantee).startswith("NOT PRIVATE")
    assert math.isfinite(found.history.ratio)


# -- checkpoints --


class EndedError(Exception):
    """A process that ends."""


def stopped_after(calls_left: int) -> Any:
    """An evaluation that ends the training after n calls."""
    calls: list[int] = []

    def evaluate(found: Any) -> Any:
        calls.append(1)
        if len(calls) > calls_left:
            raise EndedError
        return {"accuracy": accuracy(found)}

    return evaluate


def evaluated(found: Any) -> dict[str, Any]:
    return {"accuracy": accuracy(found)}


@pytest.mark.slow
@pytest.mark.parametrize("random_state", [1, None])
def test_training_resumes_from_its_checkpoint(random_state: Any, tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "every": 4,
        "checkpoint": tmp_path / "last.pt",
        "random_state": random_state,
    }
    with pytest.raises(EndedError):
        trained(evaluate=stopped_after(3), **asked)
    found = trained(evaluate=evaluated, **asked)
    if random_state is not None:
        # A seeded one is the same as if it had never stopped.
        whole = trained(evaluate=evaluated, every=4, random_state=random_state)
        assert found.history.evaluated == whole.history.evaluated == (0, 4, 8, 12, 16, 20)
        assert found.history.norms.tolist() == whole.history.norms.tolist()
        for ours, theirs in zip(found.module.parameters(), whole.module.parameters(), strict=True):
            assert torch.equal(ours, theirs)
    else:
        # Begun steps count, so that the training is shorter by the lost ones.
        assert 16 <= len(found.history.norms) < 20
        assert found.guarantee.private
    assert found.guarantee.epsilon() <= 8.0
    again = trained(evaluate=evaluated, **asked)
    assert again.history.norms.tolist() == found.history.norms.tolist()
    for ours, theirs in zip(again.module.parameters(), found.module.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.slow
def test_a_training_is_charged_once(tmp_path: Path) -> None:
    promise = dg.LastingPromise.of(User(), epsilon=1.5, delta=1e-6)
    place = tmp_path / "networks.ledger"
    dg.Ledger.create(place, name="networks", promises=[promise], user="ids")
    asked: dict[str, Any] = {
        "checkpoint": tmp_path / "last.pt",
        "users": NAMED,
        "epsilon": 1.0,
        "delta": 1e-8,
        "random_state": None,
    }
    with dg.Ledger(place) as ledger:
        with pytest.raises(EndedError):
            trained(evaluate=stopped_after(3), **asked)
        charged = ledger.verify().number
        found = trained(evaluate=evaluated, **asked)
        assert ledger.verify().number == charged
    assert found.guarantee.receipts


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"epsilon": 9.0}, "epsilon must be the same as in the training in checkpoint"),
        ({"steps": 30}, "steps must be the same"),
        ({"sampling_rate": 0.5}, "sampling_rate must be the same"),
        ({"average": Last()}, "average must be the same"),
        ({"relation": "replace"}, "relation must be the same"),
        ({"unit": Record()}, "unit must be the same"),
        ({"noise_multiplier": 3.0, "epsilon": None}, "must be the same as in the training"),
    ],
)
def test_another_training_does_not_go_on(other: dict[str, Any], words: str, tmp_path: Path) -> None:
    trained(steps=2, checkpoint=tmp_path / "last.pt")
    with pytest.raises(ParameterError, match=words):
        trained(**{"steps": 2, "checkpoint": tmp_path / "last.pt", **other})


# -- what else the engine does --


def test_a_bound_may_follow_the_norms() -> None:
    found = trained(max_grad_norm=dg.torch.AdaptiveNorm(start=1.0), steps=30, evaluate=accuracy)
    assert found.mean.clip != 1.0
    weights = sum(p.numel() for p in found.module.parameters())
    assert found.history.noise_norm == pytest.approx(found.mean.noise_sd * weights**0.5)
    assert found.guarantee.epsilon() <= 8.0


@pytest.mark.slow
def test_noise_may_be_banded(tmp_path: Path) -> None:
    found = trained(noise="banded", bands=2, steps=8, sampling_rate=0.2)
    assert found.mean.bands == 2
    text = found.report(tmp_path / "network.html").read_text(encoding="utf-8")
    assert "8 steps" in text


def test_record_overflow_does_not_depend_on_their_number() -> None:
    for rows in (9, 10, 11):
        data = torch.utils.data.TensorDataset(torch.ones(rows, 2), torch.zeros(rows))
        # In single precision a tenth of such a gradient is finite, and a ninth is not.
        network = torch.nn.Linear(2, 1, bias=False)
        found = train(
            network,
            lambda outputs, _: (outputs * 1e-30 * 1e19 * 1e19 * 33.0).sum(),
            data,
            n_users=rows,
            noise_multiplier=0.5,
            steps=1,
            sampling_rate=1.0,
            random_state=1,
            average=Last(),
        )
        assert found.history.norms[0] < 0.05


@pytest.mark.parametrize("option", ["loss_reduction", "mean", "target_epsilon", "max_users"])
def test_loss_is_a_sum_and_the_mean_is_clipped(option: str) -> None:
    with pytest.raises(ParameterError, match=f"{option} is not an option of train"):
        trained(**{option: "sum"})


def test_losses_are_functions_of_any_kind() -> None:
    losses: list[Callable[..., Any]] = [functional.cross_entropy, torch.nn.CrossEntropyLoss()]
    first, second = (trained(loss=loss, steps=2, average=Last()).module for loss in losses)
    for ours, theirs in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(ours, theirs)
