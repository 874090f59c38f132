"""Several processes make the same run as one: the same sums, noise once, the same promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.torch import together
from tests.torch.library import torch

# isort: split
import dpgrain as dg
from dpgrain.torch.processes import Processes

ROOT = Path(__file__).parents[2]
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
PROMISE = dg.LastingPromise.of(dg.User(), 50.0, 1e-4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("several")
    dg.Ledger.create(place / "visits.ledger", name="visits", promises=[PROMISE]).close()
    program = [*LAUNCH, "-m", "tests.torch.several", str(place)]
    done = subprocess.run(program, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture(scope="module")
def saw(folder: Path) -> list[dict[str, Any]]:
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize("name", together.CASES)
def test_sums_equal_one_process(saw: Any, name: str) -> None:
    alone = together.trained(*together.CASES[name], several=False)
    first, second = (one[name] for one in saw)
    for what in ("gradients", "weights"):
        assert torch.equal(first[what], second[what])
    if "exact" in name:
        assert torch.equal(first["gradients"], alone["gradients"])
    close = 1e-4 if name == "single" else 1e-11
    torch.testing.assert_close(first["gradients"], alone["gradients"], rtol=close, atol=close)
    torch.testing.assert_close(first["weights"], alone["weights"], rtol=close, atol=close)
    assert first["epsilon"] == second["epsilon"] == alone["epsilon"]


@pytest.mark.parametrize("name", together.CASES)
def test_each_block_is_read_whole_by_one_process(saw: Any, name: str) -> None:
    unit, options = together.CASES[name]
    alone = together.trained(unit, options, several=False)["read"]
    value_of = together.DATA.tensors[0][:, 0]
    if name == "single":
        value_of = value_of.float()

    def records(read: Any, step: int) -> set[int]:
        values = [value for at, values in read if at == step for value in values]
        places = [int(torch.nonzero(value_of == value)) for value in values]
        assert len(set(places)) == len(places)
        return set(places)

    def blocks(read: Any, step: int) -> set[Any]:
        users, cells = together.USERS, together.ELEMENTS
        apart = {"record": np.arange(len(users)), "user": users}
        block = apart.get(unit, users * 3 + cells)
        return {int(block[row]) for row in records(read, step)}

    shared = 0
    for step in range(together.STEPS):
        parts = [records(one[name]["read"], step) for one in saw]
        assert parts[0] | parts[1] == records(alone, step)
        assert not parts[0] & parts[1]
        assert not blocks(saw[0][name]["read"], step) & blocks(saw[1][name]["read"], step)
        shared += all(parts)
    assert shared or name == "rarely"


def test_noise_is_drawn_once(saw: Any) -> None:
    floating = sum("exact" not in name for name in together.CASES)
    assert [one["draws"] for one in saw] == [floating * together.STEPS, 0]


def test_a_run_goes_on_in_all_processes(saw: Any, tmp_path: Path) -> None:
    alone = together.killed_and_resumed(tmp_path / "run", several=False)
    assert torch.equal(saw[0]["resumed"], saw[1]["resumed"])
    torch.testing.assert_close(saw[0]["resumed"], alone, rtol=1e-11, atol=1e-11)


def test_the_ledger_is_charged_once_and_each_budget_knows(saw: Any, folder: Path) -> None:
    ledger = dg.Ledger(folder / "visits.ledger")
    assert sum(entry.kind == "release" for entry in ledger.entries) == 1
    assert [one["receipts"] for one in saw] == [1, 1]
    assert 0.4 < saw[0]["left"] == saw[1]["left"] < 0.6
    assert saw[0]["guarantee"].partition("passed")[0] == saw[1]["guarantee"].partition("passed")[0]
    for one in saw:
        assert "has no room for this release" in one["refused"]


def test_differences_are_rejected_in_all_processes(saw: Any) -> None:
    for one in saw:
        assert one["labels"].startswith("users must be the same in all processes")
        assert one["noise"].startswith("noise_multiplier must be the same in all processes")
        assert one["memory"].startswith("device_memory must be the same in all processes")
        assert one["mean"].startswith("mean requires the vectors of all blocks in one process")


@pytest.mark.parametrize("name", together.held(0))
def test_processes_have_equal_records_and_labels(saw: Any, name: str) -> None:
    """Shards of equal length let one person have a block in each process."""
    for one in saw:
        if name.startswith("the same"):
            assert one["held"][name] == ""
        else:
            (unit, given), other = together.held(0)[name], together.held(1)[name]
            which = next(iter(given))
            assert one["held"][name].startswith(f"{which} must be the same in all processes")
            assert unit == other[0]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_things_are_shared_out(count: int) -> None:
    shares = [Processes(None, rank, count).share(np.arange(20)) for rank in range(count)]
    assert sorted(np.concatenate(shares)) == list(range(20))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("at", ["batch", "backward"])
def test_dying_process_ends_the_run_of_all(tmp_path: Path, at: str) -> None:
    """No noise is drawn for a step that lacks a process's blocks."""
    processes, port = [], str(30000 + os.getpid() % 20000)
    for rank in range(2):
        variables = {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        given = [sys.executable, "-m", "tests.torch.several", str(tmp_path), at]
        processes.append(
            subprocess.Popen(
                given,
                cwd=ROOT,
                env={**os.environ, **variables},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    (out, told), _ = (process.communicate(timeout=120) for process in processes)
    assert [process.returncode for process in processes] == [3, 9], told
    made, counted, sentence = out.split(" ", 2)
    assert (made, counted) == ("2", "2")
    assert "another process of this run has ended" in sentence


def test_a_group_of_nccl_adds_up_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    # Integer sums are computed on the processor, and nccl transfers nothing from there.
    tensor, own = torch.zeros(3), Processes(None, 0, 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    for backend, device in (("gloo", torch.device("cpu")), ("nccl", torch.device("cuda", 1))):
        monkeypatch.setattr(torch.distributed, "get_backend", lambda _, name=backend: name)
        assert own._carrier(tensor) == device
