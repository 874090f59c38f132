"""The experiment with a small GPT: its texts, ways, bills and attack, and a tiny run of each."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.experiments.networks import experiment, torch
from tests.real_data import needs

from dpgrain._files import data_folder
from dpgrain.accounting import SampledGaussian
from dpgrain.means import ClippedMean
from dpgrain.units import Element, User

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")

ft: Any = experiment("fine_tuning")
WORDS = ["the house will be in order", "does it work, or does it not?", "try to restart it"]
SIZE = ft.Size(words=280, width=16, layers=1)


def vocabulary() -> Any:
    return ft.vocabulary(WORDS * 3, SIZE.words)


def chat(n: int = 30, rows: int = 400, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    texts = [WORDS[kind] for kind in rng.integers(0, len(WORDS), rows)]
    tokens = torch.from_numpy(ft.coded(texts, vocabulary()))
    users, days = rng.integers(0, n, rows), np.sort(rng.integers(0, 40, rows))
    return ft.Chat(tokens, users, days, tokens[:20], enrolled=n)


def test_messages_have_end_tokens_and_are_truncated() -> None:
    words = vocabulary()
    short, long, empty = ft.coded(["it’s ok\n", "x" * 500, ""], words)
    held = short[short >= 0]
    assert held[0] == held[-1] == ft.END
    assert words.decode(held[1:-1].tolist()) == "it’s ok\n"
    assert (short[len(held) :] == ft.LEFT_OUT).all()
    assert (long >= 0).all()
    assert long[-1] != ft.END
    assert empty[:3].tolist() == [ft.END, ft.END, ft.LEFT_OUT]


def test_message_loss_follows_only_from_its_tokens() -> None:
    module, tokens = SIZE.model(), chat().tokens[:7]
    each = ft.record_losses(module, tokens)
    alone = [ft.record_losses(module, tokens[i : i + 1])[0] for i in range(7)]
    assert each == pytest.approx(alone, rel=1e-5)
    # The loss of all tokens is the loss of the known ones plus the secret's.
    known = tokens.clone()
    known[:, 5:] = ft.LEFT_OUT
    secret = ft.record_losses(module, tokens, first=5)
    assert secret + ft.record_losses(module, known) == pytest.approx(each, rel=1e-5)


def test_uninformed_model_has_the_perplexity_of_its_vocabulary() -> None:
    module = SIZE.model()
    for weights in module.parameters():
        weights.data.zero_()
    assert ft.perplexity(module, chat().tested) == pytest.approx(SIZE.words, rel=1e-4)


def test_ways_respect_their_bounds() -> None:
    data = chat(n=5)
    rows, blocks = ft.TEXTS.records(data)
    assert np.bincount(data.users[rows]).max() == ft.MOST
    pairs = np.column_stack([data.users[rows], blocks])
    assert len(np.unique(pairs, axis=0)) == len(rows)
    for way in (ft.USERS, ft.BANDED):
        some, none = way.records(data)
        assert none is None
        assert some.tolist() == rows.tolist()
    rows, days = ft.BY_DAY.records(ft.replace(data, days=data.days // 10))
    of_day = np.unique(np.column_stack([data.users[rows], days]), axis=0, return_counts=True)[1]
    assert of_day.max() == ft.MOST
    # A promise for each day bounds messages of a day, and not of a user.
    assert np.bincount(data.users[rows]).max() > ft.MOST


def test_all_ways_read_as_much() -> None:
    for way in ft.WAYS:
        rate = way.rate(100.0, ft.ENROLLED)
        assert rate * ft.ENROLLED * way.blocks * way.size == pytest.approx(100.0)


@pytest.mark.parametrize("place", range(4))
def test_a_run_keeps_the_promise_of_its_way(place: int) -> None:
    torch.set_num_threads(1)
    way, numbers = ft.WAYS[place], ft.Numbers(steps=6, messages=40)
    engine = ft.tuned(SIZE.model(), chat(), way, numbers, 2.0, 0)
    assert 1.8 <= engine.get_epsilon() <= 2.0
    assert engine.guarantee.delta == ft.DELTA
    assert engine.guarantee.level == ("element" if way is ft.BY_DAY else "user")
    assert engine.mean.max_elements == (ft.MOST if way is ft.TEXTS else None)
    assert engine.mean.sampling_rate == pytest.approx(way.rate(40, 30))


@pytest.mark.parametrize("place", range(4))
def test_a_tiny_run_learns(place: int) -> None:
    torch.set_num_threads(1)
    data, numbers = chat(), ft.Numbers(steps=30, messages=60, trained="all")
    found = ft.run(ft.Setting(SIZE.model, data, numbers), ft.WAYS[place], math.inf, 0)
    assert found.perplexity < 0.8 * ft.perplexity(SIZE.model(), data.tested)
    assert found.noise_multiplier == 0


@pytest.mark.parametrize("trained", ["last", "all"])
def test_untrained_weights_are_unchanged(trained: str) -> None:
    torch.set_num_threads(1)
    size = ft.replace(SIZE, layers=2)
    module = size.model()
    ft.tuned(module, chat(), ft.USERS, ft.Numbers(2, 60, trained=trained), 2.0, 0)
    before, after = size.model().state_dict(), module.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    last = {name for name in before if "h.1." in name or "ln_f" in name}
    assert moved == (last if trained == "last" else set(before))


# Bills -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(4))
def test_curves_meet_the_guarantee_at_its_delta(place: int) -> None:
    way, bands = ft.WAYS[place], 4 if ft.WAYS[place] is ft.BANDED else 1
    public = {"epsilon": 2.0, "delta": ft.DELTA, "n_users": 9, "rounds": 40, "sampling_rate": 0.01}
    mean = ClippedMean.calibrate(unit=way.unit, bands=bands, **public)
    run = ft.Run(100.0, mean.noise_multiplier, bands, 0.01, 1.0)
    *several, person = ft.curve(way, run, 40)
    assert several == sorted(several)
    if way is ft.BY_DAY:
        assert several[0] == pytest.approx(2.0, rel=1e-3)
        assert person > several[-1]
    else:
        assert person == pytest.approx(2.0, rel=1e-3)
        assert (several[0] < 1) == (way is ft.TEXTS)


@pytest.mark.parametrize(("noise", "members"), [(1.3, 1), (1.3, 4), (2.0, 8)])
def test_group_rule_charges_more_than_the_run(noise: float, members: int) -> None:
    exact = SampledGaussian(noise, 0.01, 50).epsilon(ft.DELTA, unit=User(max_elements=members))
    found = ft.ByGroups.of(noise, 0.01, 50, promised=exact, members=members)
    assert not found.beyond
    if members == 1:
        assert found.epsilon == pytest.approx(exact, rel=1e-2)
        assert found.noise_multiplier == pytest.approx(noise, rel=1e-2)
    else:
        assert found.epsilon > 1.001 * exact
        assert found.noise_multiplier > 1.001 * noise
    asked = ft.ByGroups.of(
        found.noise_multiplier, 0.01, 50, promised=exact, members=members
    ).epsilon
    assert asked == pytest.approx(exact, rel=1e-2)


def test_the_rule_for_groups_is_followed_to_the_digit() -> None:
    found = ft.ByGroups.of(1.3, 0.01, 50, promised=2.0, members=4)
    one = found.epsilon / 4
    delta = ft.DELTA * math.expm1(one) / math.expm1(4 * one)
    # The rule needs the δ of one message at a quarter of its ε.
    least = SampledGaussian(1.3, 0.01, 50).epsilon(delta, unit=Element())
    assert least == pytest.approx(one, rel=1e-2)


def test_weak_rule_states_its_weakness() -> None:
    found = ft.ByGroups.of(0.5, 0.1, 50, promised=100.0, members=8)
    assert found.beyond
    assert found.epsilon > 100


# Canaries --------------------------------------------------------------------------------------


def test_coins_decide_participation() -> None:
    drawn, data = ft.Canaries.drawn(40, SIZE.words, 3), chat()
    among = drawn.among(data)
    assert 8 < drawn.taken.sum() < 32
    assert among.enrolled == data.enrolled + 40
    held = np.bincount(among.users[len(data.users) :] - data.enrolled, minlength=40)
    assert held.tolist() == (ft.MOST * drawn.taken).tolist()
    place = int(np.flatnonzero(among.users == data.enrolled + np.argmax(drawn.taken))[0])
    assert torch.equal(among.tokens[place], drawn.tokens[int(np.argmax(drawn.taken))])
    assert len(among.tokens) == len(among.users) == len(among.days)


@pytest.mark.parametrize("epsilon", [0.5, math.inf])
def test_canaries_are_found_without_privacy(epsilon: float) -> None:
    torch.set_num_threads(1)
    numbers = ft.Numbers(steps=60, messages=100, clip=1.0, trained="all")
    setting = ft.Setting(SIZE.model, chat(), numbers)
    way = ft.replace(ft.USERS, learning_rate=1e-2)
    found = ft.attack(setting, way, epsilon, 0, ft.Attacked(30, 64, 8, 31))
    assert found.guesses == 32
    if math.isinf(epsilon):
        assert found.proved > 1
        assert np.median(found.inside) > np.median(found.outside) + 1
    else:
        assert found.proved <= epsilon
        assert found.right < 26


@needs(ft.SPEECHES, ft.MESSAGES)
def test_messages_of_the_test_are_of_others() -> None:
    found = ft.Chat.read(data_folder(), vocabulary(), most=3000, tested=50)
    assert len(found.tested) == 50
    assert len(found.tokens) == len(found.users) == len(found.days)
    assert (np.diff(found.days) >= 0).all()
    few = found.of_some(20)
    assert few.enrolled == 20
    assert few.users.max() < 20
    assert len(few.tokens) == len(few.users) == len(few.days)


@needs(ft.SPEECHES, ft.MESSAGES)
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--quick", "--epsilons", "3", "--attacks", "8", "--out", str(tmp_path)]
    ft.main(given)
    first = capsys.readouterr().out
    assert "open step" in first
    picture = tmp_path / "fine_tuning" / "fine_tuning.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    # The second time everything is read from files.
    ft.main(given)
    again = capsys.readouterr().out
    assert "open step" not in again
    assert again.splitlines()[-1] == first.splitlines()[-1]
    rows = (tmp_path / "fine_tuning" / "fine_tuning.csv").read_text().splitlines()
    assert len(rows) == 1 + 4 + 3
