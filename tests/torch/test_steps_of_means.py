"""Any private mean of the vectors of blocks, in the engine itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.refusals import refuses
from tests.torch.library import torch
from tests.torch.means import PEOPLE, engine_of, means
from tests.torch.runs import WIDTH, Array

# isort: split
from dpgrain.errors import ParameterError
from dpgrain.means import Contributions, CountedRounds, Recentred, Shuffled
from dpgrain.papers import SoftCoreMean, Winsorized
from dpgrain.units import Relation, User


@pytest.mark.parametrize("max_rows", [None, 2])
def test_vectors_come_in_the_order_of_users(
    max_rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mean that asks users by place is handed each user's own vector, whatever batches were."""
    seen: list[Array] = []
    real = CountedRounds.estimate

    def estimate(own: CountedRounds, contributions: Contributions) -> Array:
        seen.append(contributions.vectors())
        return real(own, contributions)

    monkeypatch.setattr(CountedRounds, "estimate", estimate)
    vectors = np.random.default_rng(6).normal(size=(len(PEOPLE), WIDTH))
    mean = Recentred(1.0, 2.0**-10, n_users=40, rounds=2)
    _, module, optimizer, loader = engine_of(mean, vectors=vectors, max_rows=max_rows)
    for (x,) in loader:
        module(x).mean().backward()
        optimizer.step()
    of_users = np.array([vectors[user == PEOPLE].mean(0) for user in range(40)])
    assert len(seen) == 2
    for found in seen:
        assert found == pytest.approx(of_users)


@pytest.mark.slow
@pytest.mark.parametrize("max_rows", [None, 2])
@pytest.mark.parametrize("name", list(means()))
def test_any_mean_takes_the_vectors_of_users(name: str, max_rows: int | None) -> None:
    mean = means()[name]
    rng = np.random.default_rng(4)
    vectors = 0.3 + 0.05 * rng.normal(size=(len(PEOPLE), WIDTH))
    _, module, optimizer, loader = engine_of(mean, vectors=vectors, max_rows=max_rows)
    of_users = np.array([vectors[user == PEOPLE].mean(0) for user in range(40)])
    steps = 0
    for (x,) in loader:
        # But for clipping, users are read one by one.
        assert name == "clipped" or len(x) <= 4
        module(x).mean().backward()
        if optimizer.step():
            steps += 1
            off = module.weight.grad[0].double().numpy() - of_users.mean(0)
            assert np.abs(off).max() < (0.4 if name == "shuffled" else 0.06)
    assert steps == 3
    assert len(loader) == 0


def test_guarantee_equals_the_guarantee_of_the_mean() -> None:
    mean = Winsorized.calibrate(
        epsilon=2.0, delta=1e-6, rounds=3, n_users=4000, radius=0.5, bound=4.0, dimension=WIDTH
    )
    engine, *_ = engine_of(mean, relation="replace")
    assert engine.get_epsilon(1e-6) == mean.event.epsilon(1e-6, unit=User(), relation="replace")
    for fact in mean.facts:
        assert str(fact) in str(engine.guarantee)


@pytest.mark.slow
def test_mean_ending_its_run_ends_the_loader() -> None:
    # Vectors that are far from each other have no core.
    mean = SoftCoreMean.calibrate(epsilon=5.0, delta=1e-6, rounds=4, n_users=300, radius=0.01)
    people = np.arange(300)
    vectors = 100 * np.random.default_rng(2).normal(size=(300, WIDTH))
    _, module, optimizer, loader = engine_of(mean, vectors=vectors, users=people)
    stepped = []
    for (x,) in loader:
        module(x).mean().backward()
        stepped.append(optimizer.step())
    assert not any(stepped)
    assert len(stepped) == 300
    assert loader._run.ended
    with pytest.raises(ParameterError, match="its mean published that it stops"):
        optimizer.step()
    # The network is an ordinary one again.
    module(torch.ones(2, WIDTH).double()).sum().backward()


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize("rows", [None, 2])
def test_one_user_changes_a_recentred_mean_by_its_charge(
    relation: Relation, rows: int | None
) -> None:
    mean = Recentred(1.0, 2.0**-10, n_users=40, rounds=1)
    rng, worst = np.random.default_rng(5), 0.0
    billed = (1.0 if relation == "zero_out" else 2.0) / 40
    last = PEOPLE == 39
    for seed in range(15):
        one = np.abs(rng.normal(size=(len(PEOPLE), WIDTH))) * 10.0 ** rng.integers(-3, 9)
        other = one.copy()
        other[last] = math.nan if relation == "zero_out" else -one[last]
        both = []
        for data in (one, other):
            _, module, optimizer, loader = engine_of(
                mean, vectors=data, relation=relation, seed=seed, max_rows=rows
            )
            for (x,) in loader:
                module(x).mean().backward()
                optimizer.step()
            both.append(module.weight.grad[0].double().numpy())
        worst = max(worst, float(np.linalg.norm(both[0] - both[1])))
    assert 0.6 * billed < worst <= billed * 1.001


def test_fresh_users_are_known_by_place() -> None:
    mean = Shuffled.calibrate(epsilon=50.0, delta=1e-6, n_users=40, rounds=2, dimension=WIDTH)
    assert mean.fresh
    _, module, optimizer, loader = engine_of(mean)
    for (x,) in loader:
        module(x).mean().backward()
        optimizer.step()
    assert len(loader) == 0
    with refuses("users", "pass the user id"):
        engine_of(mean, users=None)


def test_large_networks_are_refused() -> None:
    network = torch.nn.Linear(70_000, 1, bias=False).double()
    vectors = np.ones((3, 70_000))
    with refuses("mean", "70,000"):
        engine_of(
            means()["soft core"],
            vectors=vectors,
            users=np.arange(3),
            module=network,
            optimizer=torch.optim.SGD(network.parameters()),
        )


def test_a_mean_stays_in_its_process() -> None:
    *_, loader = engine_of(means()["soft core"])
    steps = loader._run.steps
    for call in (steps.state, lambda: steps.load_state({})):
        with refuses("mean", "rounds"):
            call()
