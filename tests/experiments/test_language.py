"""The experiment on a chat: its signs, its four ways, equal costs, and a tiny run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.experiments.networks import experiment, torch
from tests.real_data import needs

from dpgrain._files import data_folder

la: Any = experiment("language")


def chat(n: int = 30, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    users = rng.integers(0, n, 300)
    elements = np.sort(rng.integers(0, 60, 300))
    texts = np.array(["abc" * int(rng.integers(1, 20)) for _ in users], dtype=object)
    signs = torch.from_numpy(la.coded(texts))
    return la.Chat(signs, users, elements, n, signs[:20])


def test_signs_of_messages() -> None:
    signs = la.coded(np.array(["a~", "é\n" + "x" * 100], dtype=object))
    assert signs[0, :4].tolist() == [la._START, ord("a") - 32, 94, -1]
    assert signs[1, :4].tolist() == [la._START, la._OTHER, la._OTHER, ord("x") - 32]
    assert (signs[1] >= 0).all()
    assert signs.shape == (2, la.LENGTH + 1)


def test_a_message_counts_as_one_however_long_it_is() -> None:
    torch.manual_seed(0)
    module = la.model(0)
    signs = torch.from_numpy(la.coded(np.array(["ab", "some longer words"], dtype=object)))
    with torch.no_grad():
        each = [float(la.message_loss(module, signs[i : i + 1])) for i in range(2)]
        both = float(la.message_loss(module, signs))
    assert both == pytest.approx(np.mean(each), rel=1e-5)


def test_later_characters_do_not_affect_earlier_ones() -> None:
    module = la.model(0)
    told = torch.arange(12)[None]
    changed = told.clone()
    changed[0, 8:] = 3
    with torch.no_grad():
        before, after = module(told), module(changed)
    assert torch.allclose(before[0, :8], after[0, :8], atol=1e-5)
    assert not torch.allclose(before[0, 8:], after[0, 8:])


def test_places_and_ranks() -> None:
    assert la.place_within(np.array([4, 1, 4, 4, 1])).tolist() == [0, 0, 1, 2, 1]
    users, elements = np.array([0, 0, 0, 1, 1]), np.array([7, 5, 7, 9, 9])
    assert la.rank_within(users, elements).tolist() == [1, 0, 1, 0, 0]


def test_ways_respect_their_bounds() -> None:
    found = {way.name: way for way in la.ways(chat())}
    assert list(found) == ["examples", "users", "elements", "elements, promised each"]
    for name in ("examples", "users"):
        assert np.bincount(found[name].records.users).max() == la.MESSAGES
    records = found["elements"].records
    held = [len(np.unique(records.elements[records.users == u])) for u in np.unique(records.users)]
    assert max(held) <= la.ELEMENTS
    # A promise for each element bounds messages in an element, and not in a user.
    assert np.bincount(found["elements, promised each"].records.users).max() > la.MESSAGES
    assert found["examples"].blocks == found["examples"].messages
    assert found["users"].blocks == len(np.unique(chat().users))


def test_all_ways_cost_the_same() -> None:
    for way in la.ways(chat()):
        asked = way.asked(3.0, 5, 40.0)
        assert asked.rate * way.messages == pytest.approx(40.0)
        assert asked.blocks_per_user * asked.n_users == pytest.approx(way.blocks)


@pytest.mark.parametrize("place", range(4))
def test_a_tiny_run(place: int) -> None:
    torch.set_num_threads(1)
    data = chat()
    way = la.ways(data)[place]
    asked = way.asked(math.inf, 4, 60.0)
    curve = la.trained(data, way, asked, "cpu", 64)
    assert curve.figures[-1] < curve.figures[0]
    row = la.row(way, asked, curve, 60.0)
    assert la.line(row).count("|") == la.HEADER.splitlines()[0].count("|")


@needs(la.FILE)
def test_messages_of_the_test_are_of_others() -> None:
    found = la.Chat.read(data_folder(), most=3000, tested=50)
    assert len(found.tested) == 50
    assert found.n_users == len(np.unique(found.users))
    assert len(found.signs) == len(found.users) == len(found.elements)
    # Messages come in the order of time.
    assert (np.diff(found.elements) >= 0).all()


@needs(la.FILE)
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    la.main(["--quick", "--epsilons", "3", "--out", str(tmp_path)])
    assert capsys.readouterr().out.count("\n| ") == 1 + 4
    assert (tmp_path / "language.png").is_file()
