"""Runs resume from checkpoints: seeded ones exactly, and never with an additional step."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.effort import Effort
from tests.refusals import refused_when_forked, refuses
from tests.torch.library import torch

# isort: split
import dpgrain as dg
from dpgrain.errors import DataError, ParameterError
from dpgrain.means import Recentred
from dpgrain.means.clipped import ClippedRounds
from dpgrain.publishing.origins import ArrayOrigin, array_origin
from dpgrain.scope.regions import LabelSet, Region, Side
from dpgrain.torch import resumption
from dpgrain.torch.adaptive_clipping import AdaptiveNorm
from dpgrain.torch.checkpoint import Checkpoint
from dpgrain.torch.journal import Journal
from dpgrain.torch.privacy_engine import PrivacyEngine
from dpgrain.torch.steps import in_floating_point
from dpgrain.units import Element, Record, Unit, User

PEOPLE, EACH, INPUTS = 12, 4, 3
USERS = np.repeat(np.arange(PEOPLE), EACH)
ELEMENTS = np.tile([0, 0, 1, 2], PEOPLE)
LABELS: dict[str, tuple[Unit, dict[str, Any]]] = {
    "record": (Record(), {"users": USERS}),
    "element": (Element(), {"users": USERS, "elements": ELEMENTS}),
    "user": (User(), {"users": USERS}),
    "kept": (User(max_elements=2), {"users": USERS, "elements": ELEMENTS}),
}
STEPS, STEPS_OF_KILLED = 8, 24

_NORMAL = np.random.default_rng(3).normal(size=(PEOPLE * EACH, INPUTS + 1))
DATA = torch.utils.data.TensorDataset(
    torch.from_numpy(_NORMAL[:, :INPUTS]), torch.from_numpy(_NORMAL[:, INPUTS:])
)


def network(kind: Any = torch.optim.Adam, **options: Any) -> dict[str, Any]:
    torch.manual_seed(5)
    net = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, 5), torch.nn.Dropout(0.3), torch.nn.Linear(5, 1)
    ).double()
    return {"module": net, "optimizer": kind(net.parameters(), **{"lr": 0.1, **options})}


def begun(labels: str = "user", seed: int | None = 1, **options: Any) -> Any:
    unit, given = LABELS[labels]
    engine = PrivacyEngine(unit=unit, random_state=seed)
    return engine, *engine.make_private(
        **{
            **network(),
            **given,
            "dataset": DATA,
            "n_users": PEOPLE,
            "steps": STEPS,
            "sampling_rate": 0.4,
            "max_grad_norm": 1.0,
            **({} if "share" in options else {"noise_multiplier": 1.0}),
            **options,
        }
    )


def begun_with(mean: Any) -> Any:
    engine = PrivacyEngine(unit=User())
    return engine, *engine.make_private(**network(), dataset=DATA, users=USERS, mean=mean)


def resumed(path: Path, labels: str = "user", **options: Any) -> Any:
    return PrivacyEngine.resume(
        path, **{**network(), "dataset": DATA, **LABELS[labels][1], **options}
    )


def train(run: Any, steps: int | None = None, after: Callable[[int], Any] = lambda _: None) -> Any:
    """Make steps of a run, by default all remaining ones, and return the parameters."""
    _, module, optimizer, loader = run
    if steps == 0 or len(loader) == 0:
        return weights(module)
    made = 0
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(module(x), y).backward()
        if optimizer.step():
            made += 1
            after(made)
            if made == steps:
                break
    return weights(module)


def weights(module: Any) -> Any:
    return torch.cat([p.detach().flatten() for p in module.parameters()]).clone()


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often noise was drawn, counted where it is drawn."""
    found: list[int] = []

    def counted(*given: Any) -> Any:
        found.append(1)
        return in_floating_point(*given)

    monkeypatch.setattr("dpgrain.torch.steps.in_floating_point", counted)
    return found


# -- seeded runs --


@pytest.mark.slow
@pytest.mark.parametrize("after", range(1, STEPS))
def test_seeded_run_ends_with_the_uninterrupted_result(tmp_path: Path, after: int) -> None:
    whole = train(begun())
    path = tmp_path / "last.pt"
    run = begun()
    train(run, after)
    run[0].save(path)
    # Later steps are lost, and repeated.
    train(run, min(3, STEPS - after))
    again = resumed(path)
    assert len(again[3]) == STEPS - after
    assert torch.equal(train(again), whole)
    assert again[0].guarantee.epsilon() == run[0].guarantee.epsilon()
    assert not again[0].guarantee.private


OPTIONS: dict[str, dict[str, Any]] = {
    "users": {"sampling": "users"},
    "all": {"sampling_rate": 1.0},
    "few rows": {"max_rows": 3},
    "exact": {"exact": True},
    "generator": {},
    "rarely": {"sampling_rate": 0.02},
    "adaptive": {"max_grad_norm": AdaptiveNorm(start=0.1)},
    "adaptive, exact": {"max_grad_norm": AdaptiveNorm(start=0.1), "exact": True},
    "banded": {"noise": "banded", "bands": 3, "sampling_rate": 0.3},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_kind_of_seeded_run(
    tmp_path: Path, options: dict[str, Any], labels: str, kind: Any
) -> None:
    def start() -> Any:
        seed: Any = np.random.Generator(np.random.Philox(4)) if not options else 2
        return begun(labels, seed, **network(kind), **options)

    def go_on() -> Any:
        return resumed(path, labels, **network(kind), max_rows=options.get("max_rows"))

    path = tmp_path / "last.pt"
    whole = train(start())
    run = start()
    for steps in (1, 2, 1):
        train(run, steps)
        run[0].save(path)
        run = go_on()
    assert torch.equal(train(run), whole)


@pytest.mark.slow
def test_schedulers_resume_from_their_saved_state(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"

    def scheduled(run: Any) -> Any:
        return torch.optim.lr_scheduler.StepLR(run[2], step_size=2, gamma=0.3)

    run = begun()
    scheduler = scheduled(run)
    whole = train(run, after=lambda _: scheduler.step())
    run = begun()
    scheduler = scheduled(run)
    train(run, 3, lambda _: scheduler.step())
    run[0].save(path, extra={"scheduler": scheduler.state_dict()})
    assert dict(run[0].extra) == {}
    run = resumed(path)
    scheduler = scheduled(run)
    scheduler.load_state_dict(run[0].extra["scheduler"])
    assert torch.equal(train(run, after=lambda _: scheduler.step()), whole)


# -- private runs --


@pytest.mark.slow
def test_steps_after_the_checkpoint_are_not_made_again(tmp_path: Path, draws: list[int]) -> None:
    path = tmp_path / "last.pt"
    run = begun(seed=None)
    train(run, 2)
    run[0].save(path)
    train(run, 3)
    again = resumed(path)
    assert len(again[3]) == STEPS - 5
    train(again)
    assert len(draws) == STEPS
    assert again[0].guarantee.private
    for other in (run, resumed(path)):
        assert len(resumed(path)[3]) == 0
        with pytest.raises(ParameterError, match="steps = 8 are over"):
            next(iter(other[3]))


@pytest.mark.slow
def test_noise_after_a_checkpoint_is_fresh(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    run = begun(seed=None, sampling_rate=1.0)
    train(run, 1)
    run[0].save(path)
    forks = [train(resumed(path), 1) for _ in range(3)]
    assert not any(torch.allclose(forks[i], forks[i - 1], atol=1e-3) for i in range(3))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_kills_and_forks_makes_more_steps(
    tmp_path: Path, seed: int, draws: list[int]
) -> None:
    """An observer of everything saves, kills, and resumes from old files and from two at once."""
    rng = np.random.default_rng(seed)
    runs, paths, folder = [begun(seed=None)], [], tmp_path / "first"
    folder.mkdir()
    for turn in range(60):
        run = runs[rng.integers(len(runs))]
        match rng.integers(4):
            case 0:
                path = folder / f"{turn}.pt"
                run[0].save(path)
                paths.append(path)
            case 1 if paths:
                runs.append(resumed(paths[rng.integers(len(paths))]))
            case 2 if len(runs) > 1:
                runs.remove(run)
            case _:
                # Between this run's batch and its step another may take the last step.
                with contextlib.suppress(ParameterError):
                    train(run, int(rng.integers(1, 3)))
        assert len(draws) <= STEPS
    assert {run[0].get_epsilon() for run in runs} == {runs[0][0].get_epsilon()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_kills_gives_a_part_another_turn(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With cycles, no user participates more frequently than accounted for."""
    bands, steps = 3, 14
    rng, path, turns = np.random.default_rng(seed), tmp_path / "last.pt", []
    real = ClippedRounds.draw

    def drawn(own: ClippedRounds, blocks: int) -> Any:
        assert own.parts is not None
        turns.append(own.parts == own.draws % bands)
        return real(own, blocks)

    monkeypatch.setattr(ClippedRounds, "draw", drawn)
    run = begun(seed=None, steps=steps, noise="banded", bands=bands, sampling_rate=0.3)
    for _ in range(8):
        train(run, int(rng.integers(0, 5)))
        if rng.random() < 0.4 or not path.exists():
            run[0].save(path)
        elif rng.random() < 0.7:
            run = resumed(path)
    train(run)
    # Each user is in one part, with one participation in every cycle.
    assert (
        np.sum(turns, axis=0).max()
        <= -(-steps // bands)
        == run[0].guarantee.event.part_event.rounds
    )


@pytest.mark.slow
def test_cancelling_noise_starts_again(tmp_path: Path) -> None:
    """The file of a private run has no past noise; the next noise is a first round's."""
    path = tmp_path / "last.pt"
    run = begun(seed=None, noise="banded", bands=4, sampling_rate=0.25)
    train(run, 2)
    run[0].save(path)
    assert dict(Checkpoint.read(path).steps) == {}
    # Two steps were made, and the cycle of four is over.
    again = resumed(path)
    assert len(again[3]) == STEPS - 4
    assert all(len(of.past) == 0 for of in again[3]._run.steps._correlated)
    train(again, 1)
    assert len(resumed(path)[3]) == 0
    seeded = begun(seed=1, noise="banded", bands=4, sampling_rate=0.25)
    train(seeded, 2)
    seeded[0].save(path)
    assert len(Checkpoint.read(path).steps["noise"][0]) == 2


@pytest.mark.slow
def test_cancelling_noise_ends_with_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun(seed=None, noise="banded", bands=4, sampling_rate=0.25)
    train(run, 1)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dpgrain.torch.steps.in_floating_point", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(run, 1)
    assert len(run[3]) == 0
    with pytest.raises(ParameterError, match="was interrupted"):
        next(iter(run[3]))


@pytest.mark.slow
def test_adaptive_bound_resumes_as_published(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    run = begun(seed=None, max_grad_norm=AdaptiveNorm(start=0.01))
    train(run, 3)
    run[0].save(path)
    bound = run[3]._run.steps.bound
    assert bound != 0.01
    assert dict(Checkpoint.read(path).steps) == {"bound": bound}
    assert resumed(path)[3]._run.steps.bound == bound


def test_custom_mean_is_not_saved(tmp_path: Path) -> None:
    mean = Recentred(1.0, 2.0, PEOPLE, 3)
    engine, *_ = begun_with(mean)
    with refuses("mean", "rounds"):
        engine.save(tmp_path / "last.pt")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_step_is_in_the_journal_before_its_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    run = begun(seed=None)
    run[0].save(tmp_path / "first.pt")
    (journal,) = tmp_path.glob("*.steps")
    empty = journal.stat().st_size

    def drawn(*given: Any) -> Any:
        seen.append(journal.stat().st_size - empty)
        return in_floating_point(*given)

    monkeypatch.setattr("dpgrain.torch.steps.in_floating_point", drawn)
    train(run)
    assert seen == list(range(1, STEPS + 1))


@pytest.mark.slow
def test_failing_step_counts_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draws: list[int]
) -> None:
    run = begun(seed=None, sampling_rate=1.0)
    run[0].save(tmp_path / "last.pt")
    own = run[2]._own.step

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(run[2]._own, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(run)
    monkeypatch.setattr(run[2]._own, "step", own)
    assert len(run[3]) == STEPS - 1
    train(run)
    assert len(draws) == STEPS
    assert len(resumed(tmp_path / "last.pt")[3]) == 0


@pytest.mark.slow
def test_an_interrupted_sum_is_not_added_to(monkeypatch: pytest.MonkeyPatch) -> None:
    added = []

    def drawn(found: Any, *given: Any) -> Any:
        (first, *_) = found.sums.values()
        added.append(float(first.abs().sum()))
        if len(added) == 1:
            raise KeyboardInterrupt
        return in_floating_point(found, *given)

    monkeypatch.setattr("dpgrain.torch.steps.in_floating_point", drawn)
    run = begun(sampling_rate=1.0, **network(lr=0.0))
    with pytest.raises(KeyboardInterrupt):
        train(run)
    train(run, 1)
    # The second sum is of the same blocks, up to dropout, and not of twice as many.
    assert added[1] < 1.7 * added[0]


# -- ledgers and budgets --


PROMISE = dg.LastingPromise.of(dg.User(), 50.0, 1e-4)


def released(ledger: dg.Ledger) -> int:
    return sum(entry.kind == "release" for entry in ledger.entries)


@pytest.mark.slow
def test_the_ledger_of_a_run_charges_it_once(tmp_path: Path) -> None:
    path, place = tmp_path / "last.pt", tmp_path / "visits.ledger"
    with dg.Ledger.create(place, name="visits", promises=[PROMISE]) as ledger:
        run = begun(seed=None)
        train(run, 2)
        run[0].save(path)
    for _ in range(2):
        with dg.Ledger(place) as ledger:
            run = resumed(path)
            train(run, 1)
            run[0].save(path)
        assert released(ledger) == 1
        (receipt,) = run[0].guarantee.receipts
        assert ledger.contains(receipt)
        assert receipt.hash in str(run[0].guarantee)
    # No ledger is open, but one has charged the run.
    assert resumed(path)[0].guarantee.receipts == (receipt,)


@pytest.mark.slow
def test_another_ledger_charges_all_steps(tmp_path: Path) -> None:
    path, places = tmp_path / "last.pt", [tmp_path / "first", tmp_path / "second"]
    small = dg.LastingPromise.of(dg.User(), 0.1, 1e-8)
    for place in places:
        dg.Ledger.create(place, name=place.name, promises=[PROMISE]).close()
    with dg.Ledger(places[0]):
        run = begun(seed=None)
        run[0].save(path)
    with dg.Ledger(places[1]) as second:
        run = resumed(path)
        run[0].save(path)
        assert released(second) == 1
        (entry,) = [entry for entry in second.entries if entry.kind == "release"]
        assert entry.guarantees[0].event == run[0].guarantee.event
        # The checkpoint knows both by now.
        resumed(path)
        assert released(second) == 1
    assert len(run[0].guarantee.receipts) == 2
    given = network()
    third = dg.Ledger.create(tmp_path / "third", name="third", promises=[small])
    with third, pytest.raises(ParameterError, match="third"):
        resumed(path, **given)
    assert (released(third), hooks(given["module"])) == (0, 0)


@pytest.mark.slow
def test_older_copy_of_the_ledger_is_rejected(tmp_path: Path) -> None:
    path, place, old = (tmp_path / name for name in ("last.pt", "visits.ledger", "old"))
    dg.Ledger.create(place, name="visits", promises=[PROMISE]).close()
    shutil.copy(place, old)
    with dg.Ledger(place):
        begun(seed=None)[0].save(path)
    with dg.Ledger(old), pytest.raises(DataError, match="was replaced by an older copy"):
        resumed(path)


@pytest.mark.slow
def test_open_budget_is_charged_for_all_steps(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    with dg.budget(2.0, 1e-6) as first:
        run = begun(seed=None, share=1.0)
        assert first.left < 0.01
        train(run, 3)
        run[0].save(path)
    with dg.budget(2.0, 1e-6) as second:
        train(resumed(path), 3)
        assert second.left < 0.01
    given = network()
    with dg.budget(1.9, 1e-6) as third, pytest.raises(ParameterError, match="has no room"):
        resumed(path, **given)
    assert (third.left, hooks(given["module"])) == (1.0, 0)


@pytest.mark.slow
def test_a_ledger_and_a_budget_in_it(tmp_path: Path) -> None:
    path, place = tmp_path / "last.pt", tmp_path / "visits.ledger"
    dg.Ledger.create(place, name="visits", promises=[PROMISE]).close()
    for turn in range(2):
        with dg.Ledger(place) as ledger, dg.budget(2.0, 1e-6) as budget:
            run = resumed(path) if turn else begun(seed=None, share=1.0)
            run[0].save(path)
            assert budget.left < 0.01
        assert released(ledger) == 1


# -- other processes --


@pytest.mark.slow
def test_forked_process_makes_no_step(tmp_path: Path) -> None:
    run = begun(seed=None)
    batches = iter(run[3])
    x, y = next(batches)

    def step() -> None:
        torch.nn.functional.mse_loss(run[1](x), y).backward()
        run[2].step()

    refused_when_forked(step, "forked")
    torch.nn.functional.mse_loss(run[1](x), y).backward()
    assert run[2].step()


def test_forked_process_saves_nothing(tmp_path: Path) -> None:
    run = begun(seed=None)
    refused_when_forked(lambda: run[0].save(tmp_path / "last.pt"), "forked")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_no_step_is_begun_while_a_thread_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow disk, steps begun while it writes the journal were in no journal."""
    run, creating, steps = begun(seed=None, sampling_rate=1.0), threading.Event(), []
    real = Journal.create

    def slow(*given: Any) -> Journal:
        creating.set()
        # No signal shows that the step waits; without waiting it would be over by then.
        other.join(timeout=0.3)
        return real(*given)

    def make_a_step() -> None:
        creating.wait()
        train(run, 1)
        steps.append(run[0]._run.steps_started)

    monkeypatch.setattr(Journal, "create", staticmethod(slow))
    train(run, 1)
    other = threading.Thread(target=make_a_step)
    other.start()
    run[0].save(tmp_path / "last.pt")
    other.join()
    assert steps == [2]
    assert Journal.path_for(tmp_path / "last.pt", run[0]._plan.run).read_text().endswith("\n..")


@pytest.mark.slow
def test_workers_may_read_records_in_the_meantime() -> None:
    """Loaders that evaluate fork or start workers, which take nothing of the run with them."""
    run = begun(seed=None)
    for start in ("fork", "spawn"):
        train(run, 1)
        loader = torch.utils.data.DataLoader(
            DATA, batch_size=16, num_workers=1, multiprocessing_context=start
        )
        assert sum(len(x) for x, _ in loader) == len(DATA)
    with dg.budget(9.0, 1e-5) as budget:
        inside = begun(seed=None, noise_multiplier=5.0)
        left = budget.left
        loader = torch.utils.data.DataLoader(DATA, num_workers=1, multiprocessing_context="fork")
        assert sum(len(x) for x, _ in loader) == len(DATA)
        train(inside)
        assert budget.left == left < 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["none", "3"])
@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.slow(full=True))])
def test_killed_at_random_points(tmp_path: Path, kills: int, seed: str) -> None:
    """Noise is counted where it is drawn, by another file than the journal."""
    program = [sys.executable, "-m", "tests.torch.killed", str(tmp_path), seed, str(kills)]
    root = Path(__file__).parents[2]
    done = subprocess.run(program, check=True, capture_output=True, text=True, cwd=root)
    found = json.loads(done.stdout)
    assert sum(one["kills"] for one in found["runs"]) >= kills
    for one in [found["whole"], *found["runs"]]:
        # A run killed before its first checkpoint started again, and was charged again.
        assert 1 <= one["charges"] <= one["begun"]
        if seed == "none":
            assert one["dots"][-1] == STEPS_OF_KILLED
            assert 1 <= one["draws"] <= STEPS_OF_KILLED
    if seed != "none":
        assert all(one["same"] for one in found["runs"])


# -- errors --


@pytest.mark.slow
def test_inside_a_step_nothing_is_saved(tmp_path: Path) -> None:
    engine, module, optimizer, loader = begun(seed=None, max_rows=4, sampling_rate=1.0)
    for x, y in loader:
        with refuses("step", "1"):
            engine.save(tmp_path / "last.pt")
        torch.nn.functional.mse_loss(module(x), y).backward()
        if optimizer.step():
            break
        with refuses("step", "1"):
            engine.save(tmp_path / "last.pt")
    assert not list(tmp_path.iterdir())
    engine.save(tmp_path / "last.pt")
    with pytest.raises(ParameterError, match="call make_private first"):
        PrivacyEngine().save(tmp_path / "other.pt")


def test_all_checkpoints_are_in_one_folder(tmp_path: Path) -> None:
    engine, *_ = begun(seed=None)
    (tmp_path / "other").mkdir()
    engine.save(tmp_path / "first.pt")
    engine.save(str(tmp_path / "other" / ".." / "second.pt"))
    with refuses("path", "folder"):
        engine.save(tmp_path / "other" / "third.pt")
    assert not list((tmp_path / "other").iterdir())
    # The folder may move as a whole.
    tmp_path.rename(tmp_path.with_name("moved"))
    assert len(resumed(tmp_path.with_name("moved") / "second.pt")[3]) == STEPS


def hooks(module: Any) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules())


def journal_lost(path: Path, journal: Path) -> str:
    journal.unlink()
    return "put the journal next to the checkpoint"


def journal_older(path: Path, journal: Path) -> str:
    journal.write_bytes(journal.read_bytes()[:-1])
    return "lacks steps of the checkpoint"


def journal_of_another(path: Path, journal: Path) -> str:
    other = begun(seed=None)[0]
    other.save(path.with_name("other.pt"))
    (found,) = set(path.parent.glob("*.steps")) - {journal}
    found.replace(journal)
    return "is not the journal"


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [journal_lost, journal_older, journal_of_another])
def test_without_its_journal_no_run_goes_on(tmp_path: Path, spoil: Any) -> None:
    path = tmp_path / "last.pt"
    run = begun(seed=None)
    train(run, 2)
    run[0].save(path)
    (journal,) = tmp_path.glob("*.steps")
    words, given = spoil(path, journal), network()
    with pytest.raises(DataError, match=words):
        resumed(path, **given)
    assert hooks(given["module"]) == 0


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "network": ({"module": torch.nn.Linear(2, 1)}, "optimizer must contain"),
    "users": ({"users": None}, "users is required for unit=User"),
    "named": ({"users": pd.Series(USERS, name="who")}, "users must be without a name, .*'who'"),
    "elements": ({"elements": ELEMENTS}, "elements are not used"),
    "rows": ({"max_rows": 0}, "max_rows must be"),
    "loader": ({"dataset": torch.utils.data.DataLoader(DATA)}, "not a DataLoader"),
    "fewer users": ({"users": USERS[:-1]}, "users must have exactly one label for each row"),
}


@pytest.mark.parametrize(("wrong", "words"), WRONG.values(), ids=WRONG)
def test_another_run_is_rejected(tmp_path: Path, wrong: dict[str, Any], words: str) -> None:
    path = tmp_path / "last.pt"
    begun(seed=None)[0].save(path)
    with pytest.raises(ParameterError, match=words):
        resumed(path, **wrong)


def test_other_records_under_the_same_name_are_rejected(tmp_path: Path, effort: Effort) -> None:
    """Labels are compared by value, in any container."""
    more = torch.utils.data.TensorDataset(*(torch.cat([t, t[:1]]) for t in DATA.tensors))
    turned = USERS[::-1].copy()
    others: dict[str, dict[str, Any]] = {
        "other ids, alike": {"users": USERS + 100},
        "another order": {"users": turned},
        "two change places": {"users": np.where(USERS == 3, 4, np.where(USERS == 4, 3, USERS))},
        "one row more": {"dataset": more, "users": [*USERS, USERS[0]]},
        "text": {"users": [str(user) for user in USERS]},
        "other cells": {"labels": "kept", "elements": ELEMENTS[::-1].copy()},
        "cells renamed": {"labels": "kept", "elements": ELEMENTS + 1},
    }
    for seed, name in effort.some([(seed, name) for seed in (None, 1) for name in others]):
        given = dict(others[name])
        labels = given.pop("labels", "user")
        path = tmp_path / f"{seed}{name}" / "last.pt"
        path.parent.mkdir()
        begun(labels, seed=seed)[0].save(path)
        with refuses("users", "the same"):
            resumed(path, labels, **given)
        same = LABELS[labels][1]["users"]
        resumed(path, labels, users=[int(user) for user in same])


class Watched:
    """Labels of users that record being read."""

    def __init__(self, labels: Any) -> None:
        self.labels, self.read = np.asarray(labels), False
        self.shape, self.dtype, self.ndim = self.labels.shape, self.labels.dtype, 1
        self.name = None

    def __len__(self) -> int:
        return len(self.labels)

    def __array__(self, *_: Any, **__: Any) -> Any:
        self.read = True
        return self.labels


def test_no_label_is_read_before_charging_a_resumed_run(tmp_path: Path) -> None:
    """Whether labels belong to the run is an answer about people."""
    path = tmp_path / "last.pt"
    begun("user", seed=None)[0].save(path)
    for labels in (USERS, USERS[::-1].copy()):
        with dg.budget(1e-3, 1e-9), pytest.raises(dg.RefusedError):
            resumed(path, "user", users=(watched := Watched(labels)))
        assert not watched.read
    with dg.budget(1e4, 0.1) as budget:
        with refuses("users", "the same"):
            resumed(path, "user", users=USERS[::-1].copy())
        assert budget.left < 1
        left = budget.left
        (journal,) = tmp_path.glob("*.steps")
        journal.rename(tmp_path / "elsewhere")
        with pytest.raises(dg.DataError, match="journal"):
            resumed(path, "user", users=watched)
        assert budget.left == left


def test_neither_single_file_reveals_the_labels(tmp_path: Path) -> None:
    found = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "last.pt"
        begun(seed=None)[0].save(path)
        (journal,) = path.parent.glob("*.steps")
        key = json.loads(torch.load(path, weights_only=True)["plan"])["key"]
        (people,) = re.findall("Its records: ([0-9a-f]{64})\n", journal.read_text())
        # The hash is only in the journal, its key only in the checkpoint.
        assert people.encode() not in path.read_bytes()
        assert bytes.fromhex(people) not in path.read_bytes()
        assert key not in journal.read_text()
        found += [key, people]
    assert len(set(found)) == 4


def test_another_network_or_optimizer_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    begun(seed=None)[0].save(path)
    wider = torch.nn.Linear(INPUTS, 7).double()
    with refuses("module", "parameters"):
        resumed(path, module=wider, optimizer=torch.optim.Adam(wider.parameters()))
    given = network()
    groups = [{"params": [p]} for p in given["module"].parameters()]
    with refuses("optimizer", "type"):
        resumed(path, **{**given, "optimizer": torch.optim.Adam(groups)})
    assert hooks(given["module"]) == 0


def test_records_of_another_region_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    begun(seed=None)[0].save(path)
    with (
        array_origin(ArrayOrigin(Region((Side("shop", LabelSet(("a",))),)))),
        refuses("dataset", "partition"),
    ):
        resumed(path)


def test_a_run_is_not_copied() -> None:
    _, module, optimizer, loader = begun(seed=None)
    for thing in (optimizer, loader):
        with pytest.raises(ParameterError, match="cannot be copied"):
            copy.deepcopy(thing)
        with pytest.raises(ParameterError, match="cannot be copied"):
            pickle.dumps(thing)
    assert hooks(module) > 0


@pytest.mark.slow
def test_seeded_run_resumes_device_draws_of_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stands, put = [torch.tensor([7], dtype=torch.uint8)], list[Any]()
    monkeypatch.setattr(resumption, "device_rng_states", lambda: stands)
    monkeypatch.setattr(resumption, "restore_device_rng", put.extend)
    run = begun()
    train(run, 2)
    run[0].save(tmp_path / "run.pt")
    resumed(tmp_path / "run.pt")
    assert [state.tolist() for state in put] == [[7]]
