"""No contents of a row appear in any text, log or file of a training run, however it ends."""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import shown
from tests.fuzz.watch import CANARY, NUMBER, OwnError, left_behind, quotes, watched
from tests.torch.library import torch
from tests.torch.trainers import RECORDS, texts, trainer

# isort: split
import dpgrain as dg
from dpgrain.torch import PrivacyEngine, train

PEOPLE, EACH, STEPS = 12, 3, 6
USERS = [f"{CANARY} {row // EACH}" for row in range(PEOPLE * EACH)]
PAGES = [f"page {row % 2} of {CANARY}" for row in range(PEOPLE * EACH)]
_LASTING = dg.LastingPromise.of(dg.User(), 50.0, 1e-3)


@dataclass
class Diaries:
    """Records of text and a number, which follow the person's name, and may fail when they are read.

    Args:
        fails_at: the number of the read that fails; None for none.
    """

    fails_at: int | None = None
    fails: Callable[[], BaseException] = KeyboardInterrupt
    reads: int = field(default=0)

    def __len__(self) -> int:
        return len(USERS)

    def __getitem__(self, place: int) -> dict[str, Any]:
        self.reads += 1
        if self.reads == self.fails_at:
            raise self.fails()
        return {"text": f"{CANARY} {place}", "paid": float(NUMBER), "likes": place % 2}

    @staticmethod
    def collated(rows: list[dict[str, Any]]) -> tuple[Any, Any]:
        """A batch of how long texts are, and of the numbers."""
        inputs = [[float(len(row["text"])), row["paid"]] for row in rows]
        return torch.tensor(inputs, dtype=torch.double), torch.tensor(
            [[float(row["likes"])] for row in rows]
        )


@dataclass(frozen=True)
class Training:
    """A training of people's diaries, with a checkpoint."""

    folder: Path
    more: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, data: Diaries | None = None, **other: Any) -> Any:
        """Train, from where the checkpoint is if there is one."""
        asked = {
            "users": USERS,
            "elements": PAGES,
            "unit": dg.User(max_elements=1),
            "noise_multiplier": 1.0,
            "steps": STEPS,
            "sampling_rate": 1.0,
            "every": 1,
            **self.more,
            **other,
        }
        torch.manual_seed(1)
        return train(
            torch.nn.Linear(2, 1).double(),
            lambda outputs, target: (outputs - target).square().mean(),
            Diaries() if data is None else data,
            n_users=PEOPLE,
            checkpoint=self.folder / "last.pt",
            collate_fn=Diaries.collated,
            progress=False,
            **asked,
        )


def _interrupted(run: Training) -> None:
    """Stop a training from the keyboard in the middle of a step."""
    with pytest.raises(KeyboardInterrupt) as ended:
        watched(lambda: run(Diaries(fails_at=4 * PEOPLE)))
    assert not quotes(shown(ended.value))
    assert (run.folder / "last.pt").exists()


def _failing(run: Training) -> None:
    """Let a record fail in the middle of a step, with an error of the data set's own."""
    assert watched(lambda: run(Diaries(4 * PEOPLE, lambda: OwnError(CANARY)))) is None


ENDS: Mapping[str, Callable[[Training], Any]] = {
    "over": lambda run: run(),
    "interrupted": _interrupted,
    "failing": _failing,
}


def _of_others(run: Training) -> Any:
    """Resume with labels of other people, which is rejected."""
    with pytest.raises(dg.ParameterError, match="users") as refused:
        run(users=USERS[::-1])
    raise refused.value


def _with_less(run: Training) -> Any:
    with dg.budget(0.1, 1e-7):
        return run(delta=1e-8)


NEXT: Mapping[str, Callable[[Training], Any]] = {
    "resumed": lambda run: run(),
    "resumed by others": _of_others,
    "refused": _with_less,
}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files, which must contain nothing from a row, nor any other place."""
    (folder := tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not left_behind(tmp_path)


def _handed_on(training: Any) -> Iterator[str | bytes]:
    yield from (repr(training), str(training), repr(vars(training)), pickle.dumps(training))
    yield training.guarantee.to_json()


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("next_", NEXT)
@pytest.mark.parametrize("ends", ENDS)
def test_row_contents_appear_in_no_text_or_file(
    ends: str, next_: str, tmp_path: Path, temporary: Path
) -> None:
    run = Training(tmp_path)
    with dg.Ledger.create(tmp_path / "people.ledger", name="people", promises=[_LASTING]):
        watched(lambda: ENDS[ends](run))
        assert [path.name for path in tmp_path.glob("*.pt")]
        result = watched(lambda: NEXT[next_](run))
    assert (result is None) == (next_ != "resumed")
    if result is not None:
        assert not any(quotes(told) for told in _handed_on(result))
        if ends == "over":
            # Like other files, it is looked at in the end.
            result.report(tmp_path / "page.html")


def test_row_contents_are_absent_from_a_loops_checkpoint(tmp_path: Path, temporary: Path) -> None:
    network = torch.nn.Linear(2, 1).double()
    engine = PrivacyEngine()
    network, optimizer, loader = engine.make_private(
        module=network, optimizer=torch.optim.Adam(network.parameters()), dataset=Diaries(),
        users=np.array(USERS), n_users=PEOPLE, steps=3, sampling_rate=0.9, max_grad_norm=1.0,
        noise_multiplier=1.0, collate_fn=Diaries.collated,
    )  # fmt: skip
    for inputs, target in loader:
        optimizer.zero_grad()
        (network(inputs) - target).square().mean().backward()
        # A step that is not over is not saved.
        assert watched(lambda: engine.save(tmp_path / "inside.pt")) is None
        optimizer.step()
        engine.save(tmp_path / "last.pt")


def test_row_contents_are_absent_from_a_trainers_files(tmp_path: Path, temporary: Path) -> None:
    authors = [f"{CANARY} {row // 3}" for row in range(RECORDS)]
    data = texts().remove_columns("author").add_column("author", authors)
    data = data.add_column("text", [f"{CANARY} {NUMBER}"] * RECORDS)
    asked: dict[str, Any] = {"args": {"max_steps": 2, "save_steps": 1}}
    asked["privacy"] = {"random_state": None}
    first = trainer(tmp_path / "run", data, **asked)
    watched(first.train, always=True)
    shutil.rmtree(tmp_path / "run" / "checkpoint-2")
    again = trainer(tmp_path / "run", data, **asked)
    watched(lambda: again.train(resume_from_checkpoint=True), always=True)
    watched(lambda: again.save_model(str(tmp_path / "model")), always=True)
    assert (tmp_path / "model" / "README.md").exists()


# -- what sees it --
