from __future__ import annotations

import copy
import math
import pickle
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.charges import charge_of
from tests.refusals import refused_when_forked

import dpgrain as dg
from dpgrain.accounting import (
    ApproximateDP,
    Contribution,
    Event,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    Parallel,
    SelectBest,
    Selection,
    TruncatedGeometric,
)
from dpgrain.noise import SeededSource, SystemSource
from dpgrain.publishing import draws
from dpgrain.publishing.charge import Charge
from dpgrain.publishing.draws import flip_scale, tickets

SUMS = np.zeros(6, dtype=np.int64)
# A part of each kind, and how it is drawn.
PARTS: list[tuple[Event, Callable[[Charge, Any], Any]]] = [
    (Gaussian(3.0), lambda charge, part: charge.noisy(part, SUMS, 2.0**20)),
    (Laplace(3.0), lambda charge, part: charge.noisy(part, SUMS, 2.0**20)),
    (Selection(3.0, 9.0, 2), lambda charge, part: charge.select(part, SUMS, 2.0**20, 2.0**-20)),
    (TruncatedGeometric(0.5, 9), lambda charge, part: charge.truncated(part, SUMS)),
    (ExponentialMechanism(3.0, count=2), lambda charge, part: charge.order(part, SUMS)),
    (ApproximateDP(0.5), lambda charge, part: charge.flip(part, SUMS)),
    (ApproximateDP(0.4), lambda charge, part: charge.rounds(part)),
    (
        SelectBest(Laplace(3.0), 5.0),
        lambda charge, part: charge.best_of(part, 2, lambda index, _: (1.0, index)),
    ),
]


@pytest.mark.parametrize(("part", "draw"), PARTS)
def test_part_is_drawn_exactly_once_per_charge(
    part: Event, draw: Callable[[Charge, Any], Any]
) -> None:
    for times in (1, 3):
        event = part
        for _ in range(times - 1):
            event = event + part
        charge = charge_of(event, SeededSource(1))
        for left in range(times, 0, -1):
            assert charge.left == Counter({one: left * n for one, n in tickets(part).items()})
            draw(charge, part)
        assert not charge.left
        with pytest.raises(RuntimeError, match="no charged draws left"):
            draw(charge, part)


@pytest.mark.parametrize(("part", "draw"), PARTS)
def test_uncharged_part_is_not_drawn(part: Event, draw: Callable[[Charge, Any], Any]) -> None:
    charge = charge_of(Gaussian(99.0), SeededSource(1))
    with pytest.raises(RuntimeError, match="no charged draws left"):
        draw(charge, part)


@pytest.mark.parametrize(("part", "draw"), PARTS)
def test_nothing_is_drawn_after_the_release(
    part: Event, draw: Callable[[Charge, Any], Any]
) -> None:
    with charge_of(part, SeededSource(1)) as charge:
        pass
    with pytest.raises(RuntimeError, match="the release is complete"):
        draw(charge, part)
    with pytest.raises(RuntimeError, match="the release is complete"):
        charge.open(dg.read(pa.table({"who": [1]}), user="who"))
    with pytest.raises(RuntimeError, match="the release is complete"):
        charge.read(list)


@pytest.mark.parametrize("law", [Gaussian, Laplace])
def test_noise_has_the_charged_scale(law: Any) -> None:
    """The multiplier belongs to the part; the caller sets only the radius, one or one per sum."""
    size, radius = 40_000, 2.0**20
    part = law(3.0)
    sd = 3.0 * (math.sqrt(2.0) if law is Laplace else 1.0)
    noisy = charge_of(part, SeededSource(2)).noisy(part, np.zeros(size, dtype=np.int64), radius)
    # The standard error of the deviation is at most 0.6%.
    assert np.std(noisy) / radius == pytest.approx(sd, rel=0.03)
    by_sum = np.repeat([radius, 4 * radius], size // 2)
    noisy = charge_of(part, SeededSource(2)).noisy(part, np.zeros(size, dtype=np.int64), by_sum)
    assert np.std(noisy[: size // 2]) / radius == pytest.approx(sd, rel=0.03)
    assert np.std(noisy[size // 2 :]) / radius == pytest.approx(4 * sd, rel=0.03)


def test_selection_needs_the_threshold_and_a_user() -> None:
    """Half of many counts at the threshold pass; none passes without users."""
    part, step = Selection(0.5, 4.0, 1), 2.0**-20
    for count, least, most in (
        (4.0, 0.48, 0.52),
        (0.0, 0.0, 0.0),
        (2.0, 0.0, 1e-3),
        (6.0, 0.999, 1),
    ):
        counts = np.full(20_000, round(count / step), dtype=np.int64)
        noisy, named = charge_of(part, SeededSource(3)).select(part, counts, 1 / step, step)
        assert least <= named.mean() <= most
        assert (noisy[named] * step > part.threshold).all()
    cut = TruncatedGeometric(0.5, 9)
    noisy, named = charge_of(cut, SeededSource(3)).truncated(cut, np.array([0, 30]))
    assert named.tolist() == [False, True]
    assert abs(noisy[1] - 30) <= 9


@pytest.mark.slow
def test_choice_has_the_charged_scale() -> None:
    """With two scores one apart, the larger wins with the event's odds, at any radius."""
    part, flip = ExponentialMechanism(2.0, one_way=True), ApproximateDP(0.5)
    many = ExponentialMechanism(2.0, count=2 * 6000, one_way=True)
    for radius in (1.0, 2.0**24):
        scores = np.array([0, radius], dtype=np.int64)
        source = SystemSource()
        chosen = [int(charge_of(part, source).order(part, scores, radius)[0]) for _ in range(1000)]
        # Gumbel noise: 1 / (1 + exp(-1/2)), within 5 standard errors.
        assert np.mean(chosen) == pytest.approx(1 / (1 + math.exp(-0.5)), abs=0.078)
        # In an order of all, each larger score precedes its smaller one with these odds.
        places = np.argsort(charge_of(many, source).order(many, scores.repeat(6000), radius))
        before = places[6000:] < places[:6000]
        assert np.mean(before) == pytest.approx(1 / (1 + math.exp(-0.5)), abs=0.033)
        flipped = [charge_of(flip, source).flip(flip, scores, radius) for _ in range(3000)]
        # Permute-and-flip: the smaller one wins if it comes first and its coin agrees.
        assert np.mean(flipped) == pytest.approx(1 - math.exp(-0.5) / 2, abs=0.042)


def test_each_run_of_the_best_has_a_separate_charge() -> None:
    one = Laplace(3.0, Contribution(norm="l1"))
    event = SelectBest(one, 5.0)
    runs: list[int] = []

    def run(index: int, charge: Charge) -> tuple[float, int]:
        assert charge.left == tickets(one)
        runs.append(index)
        noisy = charge.noisy(one, np.array([index]), 2.0**20)
        with pytest.raises(RuntimeError, match="no charged draws left"):
            charge.noisy(one, np.array([index]), 2.0**20)
        return float(noisy[0]), index

    found = charge_of(event, SeededSource(4)).best_of(event, 3, run)
    assert found in runs
    assert set(runs) <= {0, 1, 2}


def test_a_mechanism_takes_the_tickets_of_all_its_parts() -> None:
    looks, number = Gaussian(3.0) + Laplace(2.0), Gaussian(9.0)
    charge = charge_of(looks + number, SeededSource(1))
    charge.rounds(looks)
    assert charge.left == tickets(number)
    for part in (looks, Gaussian(3.0), Laplace(2.0)):
        with pytest.raises(RuntimeError, match="no charged draws left"):
            charge.rounds(part)
    with pytest.raises(RuntimeError, match="no charged draws left"):
        charge.rounds(number + Gaussian(3.0))
    assert charge.left == tickets(number)
    charge.noisy(number, SUMS, 2.0**20)


def test_parallel_part_is_drawn_for_the_worst() -> None:
    one, two, part = Gaussian(3.0), Gaussian(4.0), Parallel((Gaussian(3.0), Gaussian(4.0)))
    charge = charge_of(part, SeededSource(1))
    with pytest.raises(RuntimeError, match="Gaussian is not part of the charge"):
        charge.one_of(part, Gaussian(2.0))
    inner = charge.one_of(part, two)
    assert inner.left == tickets(two)
    inner.noisy(two, SUMS, 2.0**20)
    with pytest.raises(RuntimeError, match="no charged draws left"):
        charge.one_of(part, one)
    with charge_of(part, SeededSource(1)) as charge:
        inner = charge.one_of(part, two)
    with pytest.raises(RuntimeError, match="the release is complete"):
        inner.noisy(two, SUMS, 2.0**20)
    whole = one + two
    assert charge_of(whole, SeededSource(1)).one_of(one, one).left == tickets(one)
    # Both parts of a sum are drawn, so one of them cannot replace it.
    with pytest.raises(RuntimeError, match="not part of the charge"):
        charge_of(SelectBest(whole, 5.0), SeededSource(1)).one_of(SelectBest(whole, 5.0), whole)


def test_threads_do_not_draw_one_ticket_twice() -> None:
    part, refused = Gaussian(1.0), list[RuntimeError]()
    charge = charge_of(part, SystemSource())
    gate = threading.Barrier(4)

    def draw() -> None:
        gate.wait()
        try:
            charge.noisy(part, SUMS, 2.0**20)
        except RuntimeError as error:
            refused.append(error)

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 3


def test_a_charge_is_not_copied() -> None:
    charge = charge_of(Gaussian(1.0), SystemSource())
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(dg.ParameterError, match="cannot be copied"):
            copied(charge)


def test_count_at_the_grid_threshold_is_not_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding the noise may have carried it half a step over."""
    monkeypatch.setattr(draws, "with_gaussian", lambda sums, *_, **__: sums)
    for threshold, step in ((5.0, 1.0), (5.2, 1.0), (0.3, 0.125)):
        part = Selection(0.5, threshold, 1)
        least = math.ceil(threshold / step) + 1
        counts = np.array([least - 2, least - 1, least])
        _, named = charge_of(part, SeededSource(3)).select(part, counts, 1 / step, step)
        assert named.tolist() == [False, False, True]


@pytest.mark.parametrize(("part", "draw"), PARTS)
def test_process_forked_in_a_release_makes_none(
    part: Event, draw: Callable[[Charge, Any], Any]
) -> None:
    """One was charged: the child's noise would be another's, independent of the parent's."""
    lent = ApproximateDP(0.3)
    with charge_of(part + lent, SystemSource()) as charge:
        source = charge.rounds(lent)
        acts: list[Callable[[], object]] = [
            lambda: draw(charge, part),
            lambda: source.words(1),
            lambda: charge.read(lambda: 1),
            lambda: charge.__exit__(None, None, None),
        ]
        for act in acts:
            refused_when_forked(act, "charge of a release", "another process")
        assert source.words(1).size == 1
        draw(charge, part)


def test_permute_and_flip_has_the_scale_of_its_promise() -> None:
    scale = flip_scale(dg.accounting.ApproximateDP(2.0), 3.0)
    assert 1.5 <= scale <= 1.5 * (1 + 1e-9)
