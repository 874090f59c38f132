"""Several processes of a trainer make the run of one: the same weights, noise once, one promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.torch import trainers_together
from tests.torch.library import torch
from tests.torch.trainers import RECORDS, trainer, weights

ROOT = Path(__file__).parents[2]
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def saw(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    place = tmp_path_factory.mktemp("several")
    program = [*LAUNCH, "-m", "tests.torch.trainers_together", str(place)]
    done = subprocess.run(program, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return [torch.load(place / f"{rank}.pt", weights_only=False) for rank in range(2)]


def close(one: Any, other: Any) -> None:
    """Compare weights with sums in another order."""
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", trainers_together.CASES)
def test_weights_and_guarantee_equal_one_process(
    saw: list[dict[str, Any]], tmp_path: Path, name: str
) -> None:
    alone = trainers_together.trained(tmp_path, name, 1)
    first, second = (one[name] for one in saw)
    assert all(torch.equal(p, second["weights"][n]) for n, p in first["weights"].items())
    close(first["weights"], alone["weights"])
    for what in ("epsilon", "rate", "steps"):
        assert first[what] == second[what] == alone[what]
    # The noise of all processes equals one process's, and each text is read by one of them.
    assert (first["draws"], second["draws"], alone["draws"]) == (4, 0, 4)
    assert first["read"] + second["read"] == alone["read"]
    if name == "all users":
        assert alone["read"] == 4 * RECORDS
        assert first["read"] == second["read"]


def test_a_run_goes_on_in_all_processes(saw: list[dict[str, Any]], tmp_path: Path) -> None:
    whole = trainer(tmp_path)
    whole.train()
    for one in saw:
        close(one["resumed"], weights(whole.model))


def test_all_processes_measure_public_records_equally(saw: list[dict[str, Any]]) -> None:
    first, second = (one["evaluated"] for one in saw)
    assert len(first) == 2
    assert first == second
