"""Checkpoints are written whole, and read without running code that is in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses
from tests.torch.library import torch
from tests.torch.runs import WIDTH, made

# isort: split
from dpgrain.errors import DataError
from dpgrain.torch import checkpoint
from dpgrain.torch.checkpoint import Checkpoint
from dpgrain.units import Element, Record, Relation, Unit, User

USERS, ELEMENTS = np.repeat(np.arange(4), 3), np.tile([0, 0, 1], 4)


def saved(path: Path, unit: Unit = User(), relation: Relation = "zero_out", **options: Any) -> Any:
    """The engine of a run saved after one of three steps."""
    given = {"users": USERS, "steps": 3, "seed": None, "noise_multiplier": 1.0, **options}
    extra = given.pop("extra", None)
    engine, module, optimizer, loader = made(np.ones((12, WIDTH)), unit, relation, **given)
    for (x,) in loader:
        module(x).mean().backward()
        optimizer.step()
        engine.save(path, extra=extra)
        return engine
    return None


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
@pytest.mark.parametrize("unit", [Record(), Element(), User(), User(max_elements=1)])
def test_file_round_trips(tmp_path: Path, unit: Unit, relation: Relation) -> None:
    path = tmp_path / "last.pt"
    labelled = unit in (Element(), User(max_elements=1))
    engine = saved(path, unit, relation, elements=ELEMENTS if labelled else None)
    found = Checkpoint.read(path)
    assert (found.done, found.begun, dict(found.extra)) == (1, 1, {})
    plan = found.plan
    assert plan.guarantee == engine.guarantee
    assert (plan.level, plan.max_elements) == (unit.level, getattr(unit, "max_elements", None))
    assert (plan.users, plan.elements) == ("", "" if labelled else None)
    assert plan.mean.event == engine.guarantee.event


def test_private_checkpoint_contains_no_random_state(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    saved(path)
    assert Checkpoint.read(path).seeded is None
    # Nor does it contain the number of records or blocks, or labels.
    names = set(torch.load(path, weights_only=True))
    assert names == {
        *("plan", "done", "begun", "steps", "module", "optimizer", "seeded", "extra", "format")
    }


def test_a_file_is_written_whole_or_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "last.pt"
    saved(path)
    before, found = path.read_bytes(), Checkpoint.read(path)
    with refuses("extra", "could"):
        replace(found, extra={"what": Path("x")}).write(path)
    monkeypatch.setattr(torch, "save", lambda _, part: part.write_bytes(b"half"))
    monkeypatch.setattr(checkpoint, "_check_plain", lambda _: (_ for _ in ()).throw(OSError))
    with pytest.raises(DataError, match="cannot be written"):
        found.write(path)
    assert path.read_bytes() == before
    assert {place.suffix for place in tmp_path.iterdir()} == {".pt", ".steps"}


@pytest.mark.parametrize(
    ("held", "changed"), [(b"momentum", b"\xffomentum"), (b"dampening", b"\xe9ampening")]
)
def test_file_with_changed_bytes_is_rejected(held: bytes, changed: bytes, tmp_path: Path) -> None:
    """Names outside UTF-8 appear when the file is unpacked."""
    path = tmp_path / "last.pt"
    saved(path)
    path.write_bytes(path.read_bytes().replace(held, changed))
    with pytest.raises(DataError, match="is not a readable checkpoint"):
        Checkpoint.read(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x04]."])
def test_other_files_are_rejected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "last.pt"
    with pytest.raises(DataError, match="is not a readable checkpoint"):
        Checkpoint.read(path)
    path.write_bytes(content)
    with pytest.raises(DataError, match="is not a readable checkpoint"):
        Checkpoint.read(path)


def test_truncated_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    saved(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match="is not a readable checkpoint"):
        Checkpoint.read(path)


@pytest.mark.parametrize("values", [{"a": 1}, [1], {"format": 1, "plan": "x"}])
def test_files_of_others_are_rejected(tmp_path: Path, values: Any) -> None:
    path = tmp_path / "last.pt"
    torch.save(values, path)
    with pytest.raises(DataError, match="is not a readable checkpoint"):
        Checkpoint.read(path)


def test_another_format_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    saved(path)
    torch.save({**torch.load(path, weights_only=True), "format": 3}, path)
    with pytest.raises(DataError, match="by another version"):
        Checkpoint.read(path)


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    path = tmp_path / "last.pt"
    torch.save({"format": 1, "plan": Bomb()}, path)
    with pytest.raises(DataError, match="is not a readable checkpoint"):
        Checkpoint.read(path)
    assert not (tmp_path / "ran").exists()
