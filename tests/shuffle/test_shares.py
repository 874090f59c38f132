"""Additive shares through a blind shuffler, against the exact law of what is seen."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2
from tests.accounting.events import near
from tests.refusals import refuses

from dpgrain.accounting import (
    StatisticallyClose,
)
from dpgrain.noise import SeededSource
from dpgrain.shuffle import Bag, VectorSum
from dpgrain.shuffle.shares import Shares, distance, modulus_above, shares_needed, shuffled
from dpgrain.shuffle.shares import _beyond as beyond
from dpgrain.shuffle.shares import _log_excesses as log_excesses

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


# ------------------------------------------------------------------------------ what is seen, exactly


def vectors(devices: int, modulus: int) -> Ints:
    return np.array(list(itertools.product(range(modulus), repeat=devices)))


def seen(inputs: Array, devices: int, modulus: int, count: int, told: int = 0) -> Array:
    """The law of what is published, by the law of the devices' values; the first slots in order."""
    every = vectors(devices, modulus)
    place = modulus ** np.arange(devices)[::-1]
    bags = np.unique(np.sort(every, axis=1), axis=0, return_inverse=True)[1].ravel()
    law = inputs.reshape(1, -1)
    for slot in range(count - 1):
        names = np.arange(len(every)) if slot < told else bags
        following = np.zeros((names.max() + 1, *law.shape))
        for name, shares in zip(names, every, strict=True):
            # The rest that other slots share is smaller by these shares.
            following[name] += law[:, (every + shares) % modulus @ place] / len(every)
        law = following.reshape(-1, len(every))
    found = np.zeros((bags.max() + 1, len(law)))
    np.add.at(found, bags, law.T)
    return found


def apart(values: Sequence[int], modulus: int, count: int, told: int = 0) -> float:
    """The total variation between what is seen, and the same of random values of that sum."""
    n, every = len(values), vectors(len(values), modulus)
    sure = (every == np.array(values)).all(axis=1).astype(np.float64)
    alike = (every.sum(axis=1) % modulus == sum(values) % modulus).astype(np.float64)
    one = seen(sure, n, modulus, count, told)
    ideal = seen(alike / alike.sum(), n, modulus, count, told)
    return 0.5 * float(np.abs(one - ideal).sum())


TINY = [(3, 2, 3), (3, 2, 5), (3, 4, 4), (4, 2, 3), (4, 2, 4), (4, 2, 6), (5, 2, 4), (4, 4, 3)]


@pytest.mark.proof("search", "StatisticallyClose")
@pytest.mark.search
@pytest.mark.parametrize(("devices", "modulus", "count"), TINY)
def test_the_distance_holds_and_is_not_far_from_the_truth(
    devices: int, modulus: int, count: int
) -> None:
    # The order of devices does not matter, nor does a number added to all.
    inputs = itertools.combinations_with_replacement(range(modulus), devices - 1)
    largest = max(apart((0, *rest), modulus, count) for rest in itertools.islice(inputs, 8))
    bound = distance(devices, modulus, count)
    assert bound / 8 <= largest <= bound


@pytest.mark.parametrize(("devices", "modulus", "count"), [(4, 2, 6), (5, 2, 5), (3, 4, 4)])
def test_a_share_less_is_seen(devices: int, modulus: int, count: int) -> None:
    few = max(count - 2, 2)
    assert apart((0,) * devices, modulus, few) > distance(devices, modulus, count)


def test_two_tables_with_one_sum_are_hard_to_tell_apart() -> None:
    modulus, count, every = 4, 4, vectors(3, 4)
    laws = [
        seen((every == np.array(x)).all(axis=1).astype(np.float64), 3, modulus, count)
        for x in ([0, 0, 0], [2, 2, 0], [1, 3, 0])
    ]
    for one, two in itertools.combinations(laws, 2):
        assert 0.5 * np.abs(one - two).sum() <= 2 * distance(3, modulus, count)


def test_one_colluding_shuffler_costs_nothing_and_each_other_a_share() -> None:
    for values in ([0, 0, 0, 0], [1, 1, 0, 0]):
        for told in (1, 2):
            bound = Shares(1, 2, 5).variation(4, colluding=told)
            assert apart(values, 2, 5, told) <= bound
    assert Shares(1, 2, 5).variation(4, colluding=1) == Shares(1, 2, 5).variation(4)
    assert Shares(1, 2, 5).variation(4, colluding=2) == Shares(1, 2, 4).variation(4)
    # It is not free.
    assert apart([0, 0, 0, 0], 2, 5, told=3) > distance(4, 2, 5)
    assert Shares(1, 2, 5).variation(4, colluding=5) == 1.0


# ------------------------------------------------------------------------------------- the recursion


def powers(devices: int, modulus: int, permutations: int) -> list[Fraction]:
    """E[q^C] for 0 .. devices points, from the definition: the q-th power of a power series."""
    series = [Fraction(math.factorial(n) ** (permutations - 1)) for n in range(devices + 1)]
    result = [Fraction(1)] + [Fraction(0)] * devices
    for _ in range(modulus):
        result = [
            sum((result[j] * series[n - j] for j in range(n + 1)), Fraction(0))
            for n in range(devices + 1)
        ]
    return [one / scale for one, scale in zip(result, series, strict=True)]


def components(graphs: Sequence[Sequence[int] | Ints]) -> int:
    n = len(graphs[0])
    names = list(range(n))
    for graph in graphs:
        for i, j in enumerate(graph):
            old, new = names[j], names[i]
            names = [new if name == old else name for name in names]
    return len(set(names))


@pytest.mark.parametrize(("points", "permutations"), [(3, 2), (3, 3), (4, 2)])
def test_the_series_counts_components(points: int, permutations: int) -> None:
    graphs = list(itertools.permutations(range(points)))
    chosen = list(itertools.product(graphs, repeat=permutations))
    for modulus in (2, 8):
        mean = Fraction(sum(modulus ** components(one) for one in chosen), len(chosen))
        assert powers(points, modulus, permutations)[points] == mean


@pytest.mark.parametrize("modulus", [2, 8, 64])
@pytest.mark.parametrize("count", [3, 4, 7])
def test_the_recursion_is_above_the_series_and_near(modulus: int, count: int) -> None:
    exact = powers(24, modulus, count - 1)
    bounds = np.exp(log_excesses(24, math.log(modulus), count - 2))
    for n in range(2, 25):
        excess = float(exact[n] / modulus - 1)
        assert excess <= bounds[n]
        if excess < 0.5:
            assert bounds[n] <= excess * modulus / (modulus - 1) * 1.35


def test_the_recursion_is_what_random_permutations_say() -> None:
    rng, points, modulus = np.random.default_rng(5), 12, 4
    found = np.array(
        [
            modulus ** (components([rng.permutation(points) for _ in range(2)]) - 1)
            for _ in range(8000)
        ],
        dtype=np.float64,
    )
    bound = math.exp(log_excesses(points, math.log(modulus), 1)[points])
    # The bound is exact but for a factor below q/(q − 1) and small terms.
    error = 5.5 * float(found.std()) / math.sqrt(len(found))
    assert (found.mean() - 1 - error) <= bound <= (found.mean() - 1 + error) * 4 / 3 * 1.1


@pytest.mark.parametrize("count", [8, 10, 14])
@pytest.mark.parametrize("width", [1, 3])
def test_beyond_the_recursion_it_goes_on(count: int, width: int) -> None:
    log_modulus = 12 * width * math.log(2)
    long = log_excesses(700, log_modulus, count - 2)
    short = log_excesses(256, log_modulus, count - 2)
    assert (short[128:] <= 0).all()
    for n in (257, 400, 700):
        assert 0 <= beyond(n, short, log_modulus, count - 2) - long[n] <= 0.02


@pytest.mark.search
@pytest.mark.parametrize("devices", [50, 1000, 10**5, 10**9])
def test_the_distance_is_as_expected_and_below_what_was_published(devices: int) -> None:
    for bits in (10, 25, 32):
        for exponent in (20, 40):
            count = shares_needed(devices, 2**bits, 2.0**-exponent)
            found = distance(devices, 2**bits, count)
            assert found <= 2.0**-exponent < distance(devices, 2**bits, count - 1)
            expected = 0.5 * math.sqrt(2.0**bits * float(devices) ** (2 - count))
            assert expected * (1 - 1 / devices) <= found <= expected * (1 + 3 / devices + 1e-6)
            # Balle, Bell, Gascón & Nissim 2020.
            published = 2 + (2 * exponent + bits) / (math.log2(devices) - math.log2(math.e))
            assert count <= math.ceil(published)


def test_the_distance_at_its_ends() -> None:
    # One device's sum is its value.
    assert distance(1, 2**20, 2) == 0.0
    assert shares_needed(1, 2**20, 1e-9) == 2
    assert distance(2, 2**20, 2) == 1.0
    assert distance(10**4, 2**59, 3) == 1.0
    assert distance(10**6, 2**59, 4, width=100) == 1.0
    assert shares_needed(2, 2, 0.4) == 3
    with refuses("modulus", "power"):
        distance(10, 100, 5)
    near.refused(
        lambda: distance(0, 2, 3),
        lambda: distance(5, 2, 1),
        lambda: distance(5, 2, 3, 0),
    )


# --------------------------------------------------------------------------------- from end to end


def sent(shares: Shares, values: Ints, source: SeededSource) -> list[bytes]:
    return [m for row in values for m in shares.messages(row, source)]


def test_the_sum_of_a_thousand_devices() -> None:
    rng, source = np.random.default_rng(1), SeededSource(2)
    values = rng.integers(0, 300, size=(1000, 20))
    shares = Shares.within(1e-8, devices=1000, dim=20, modulus=modulus_above(300 * 1000))
    messages = shuffled(sent(shares, values, source), source)
    found = shares.combine(messages, devices=1000)
    assert found.total.tolist() == values.sum(axis=0).tolist()
    assert found.complete.all()
    assert found.dropped.total == 0
    assert {len(m) for m in messages} == {shares.message_bytes} == {4 + 3}
    assert len(messages) == 1000 * shares.slots == 1000 * 20 * shares.count


@pytest.mark.parametrize(
    ("dim", "width", "modulus"), [(1, 1, 2), (7, 3, 2**59), (6, 2, 512), (5, 5, 256)]
)
def test_every_shape_adds_up_modulo_q(dim: int, width: int, modulus: int) -> None:
    rng, source = np.random.default_rng(3), SeededSource(4)
    shares = Shares(dim, modulus, 4, width, b"round 1")
    values = rng.integers(0, modulus, size=(9, dim))
    values[0] = modulus - 1
    found = shares.combine(shuffled(sent(shares, values, source), source), devices=9)
    assert found.total.tolist() == [sum(map(int, column)) % modulus for column in values.T]
    assert found.complete.all()
    # Numbers are taken modulo q; a negative one, too.
    negative = shares.combine(shares.messages(np.full(dim, -3), source), devices=1)
    assert negative.total.tolist() == [-3 % modulus] * dim


@pytest.mark.proof("audit", "StatisticallyClose")
def test_all_shares_but_one_are_uniform_and_independent() -> None:
    source, shares, runs = SeededSource(8), Shares(1, 4, 3), 8000
    drawn = np.array(
        [shares.split(np.array([3]), source)[:, 0] for _ in range(runs)], dtype=np.int64
    )
    assert (drawn.sum(axis=1) % 4 == 3).all()
    for left in range(3):
        rest = np.delete(drawn, left, axis=1)
        counts = np.bincount(rest @ np.array([4, 1]), minlength=16)
        statistic = float(((counts - runs / 16) ** 2 / (runs / 16)).sum())
        assert statistic < chi2.isf(1e-8, 15)


def test_messages_are_mixed_uniformly() -> None:
    source, orders = SeededSource(9), list(itertools.permutations([b"a", b"b", b"c", b"d"]))
    counts = dict.fromkeys(orders, 0)
    for _ in range(6000):
        a, b, c, d = shuffled([b"a", b"b", b"c", b"d"], source)
        counts[a, b, c, d] += 1
    statistic = sum((n - 250) ** 2 / 250 for n in counts.values())
    assert statistic < chi2.isf(1e-8, 23)


def test_what_no_device_sends_is_dropped_and_counted() -> None:
    source, shares = SeededSource(5), Shares(2, 512, 3, tag=b"now")
    good = shares.messages(np.array([5, 6]), source)
    beyond_slots = b"now" + (6).to_bytes(4, "little") + b"\x00\x00"
    beyond_shares = b"now" + (0).to_bytes(4, "little") + (512).to_bytes(2, "little")
    other = Shares(2, 512, 3, tag=b"old").messages(np.array([5, 6]), source)
    wrong = [b"", good[0][:-1], good[0] + b"\x00", beyond_slots, beyond_shares, *other]
    found = shares.combine([*wrong, *good], devices=1)
    assert found.total.tolist() == [5, 6]
    assert found.complete.all()
    assert found.dropped.malformed == len(wrong)
    nothing = shares.combine([], devices=1)
    assert nothing.total.tolist() == [0, 0]
    assert not nothing.complete.any()


def test_a_lost_or_added_share_spoils_its_coordinate_and_shows() -> None:
    source, shares = SeededSource(6), Shares(3, 256, 4)
    values = np.array([[1, 2, 3]] * 5)
    spoiled = []
    for _ in range(4000):
        messages = sent(shares, values, source)
        # A message of the second coordinate.
        del messages[5]
        found = shares.combine(messages, devices=5)
        assert found.complete.tolist() == [True, False, True]
        assert found.total[[0, 2]].tolist() == [5, 15]
        spoiled.append(int(found.total[1]))
    counts = np.bincount(spoiled, minlength=256)
    assert float(((counts - 4000 / 256) ** 2 / (4000 / 256)).sum()) < chi2.isf(1e-8, 255)
    twice = [*sent(shares, values, source), shares.messages(np.array([0, 0, 0]), source)[5]]
    assert shares.combine(twice, devices=5).complete.tolist() == [True, False, True]


def test_a_corrupt_device_may_add_anything_and_it_does_not_show() -> None:
    # What is not claimed: no number is checked, as the shuffler cannot read.
    source, shares = SeededSource(7), Shares(1, modulus_above(5 * 9, spare_bits=8), 4)
    values = np.array([[3]] * 4 + [[40]])
    found = shares.combine(sent(shares, values, source), devices=5)
    assert found.total.tolist() == [52]
    assert found.complete.all()


def test_spare_bits_show_most_spoiled_sums() -> None:
    for largest in (0, 1, 2, 63, 64, 10**6):
        for spare in (0, 1, 10):
            modulus = modulus_above(largest, spare)
            assert (largest + 1) * 2**spare <= modulus
            assert modulus <= 2 * (largest + 1) * 2**spare
    near.refused(
        lambda: modulus_above(2**59),
        lambda: modulus_above(5, 62),
        lambda: modulus_above(-1),
    )


def test_numbers_out_of_range_are_refused() -> None:
    near.refused(
        lambda: Shares(0, 2, 3),
        lambda: Shares(2, 3, 3),
        lambda: Shares(2, 2**60, 3),
        lambda: Shares(2, 1, 3),
        lambda: Shares(2, 2, 1),
        lambda: Shares(2, 2, 3, 3),
        lambda: Shares(2**31, 2, 3),
        lambda: Shares(2, 2, 3, tag="now"),  # type: ignore[arg-type]
        lambda: Shares(2, 2, 3).split(np.array([1.0, 2.0]), SeededSource(1)),
        lambda: Shares(2, 2, 3).split(np.array([1]), SeededSource(1)),
        lambda: Shares(2, 2, 3).combine([], 0),
        lambda: Shares.within(0.0, devices=5, dim=1, modulus=2),
        lambda: Shares(2, 2, 3).variation(0),
    )


def test_numbers_of_numpy_are_numbers() -> None:
    given = Shares(np.int16(3), np.int64(256), np.uint8(200))  # type: ignore[arg-type]
    assert given == Shares(3, 256, 200)
    assert given.slots == 600
    assert given.message_bytes == Shares(3, 256, 200).message_bytes


def test_the_variation_is_that_of_all_pieces_and_rounds() -> None:
    for width, pieces in ((1, 7), (2, 4), (7, 1)):
        shares = Shares(7, 256, 40, width)
        one = distance(100, 256, 40, width)
        assert shares.pieces == pieces
        assert shares.variation(100, rounds=3) == pytest.approx(3 * pieces * one, rel=1e-12)
        assert shares.variation(100, rounds=3) >= 3 * pieces * one
        within = Shares.within(1e-6, devices=100, dim=7, modulus=256, rounds=3, width=width)
        assert within.variation(100, rounds=3) <= 1e-6
        less = Shares(7, 256, within.count - 1, width)
        assert less.variation(100, rounds=3) > 1e-6


# -------------------------------------------------------------------------- what must not be done


DEVICES, LARGEST, DIM = 8, 15, 32


def recovered(slots: Ints, modulus: int) -> set[tuple[int, ...]]:
    """The vectors that one share from every slot adds up to, if all their numbers are small.

    ``slots`` (count, devices, dim) is what an analyzer has of each slot, in its order.
    """
    found = set()
    for chosen in itertools.product(range(slots.shape[1]), repeat=len(slots)):
        total = sum(slot[i] for slot, i in zip(slots, chosen, strict=True)) % modulus
        if (total <= LARGEST).all():
            found.add(tuple(int(x) for x in total))
    return found


def test_shares_of_several_coordinates_must_not_travel_together() -> None:
    # With one order for all coordinates of a slot, three shares hide nothing; apart they do.
    rng, source, modulus = np.random.default_rng(11), SeededSource(12), 256
    values = rng.integers(0, LARGEST + 1, size=(DEVICES, DIM))
    truth = {tuple(map(int, row)) for row in values}
    split = np.array([Shares(DIM, modulus, 3).split(row, source) for row in values], dtype=np.int64)
    together = np.array([rng.permutation(split[:, k]) for k in range(3)])
    assert recovered(together, modulus) == truth
    alone = rng.permuted(together, axis=1)
    assert recovered(alone, modulus) == set()
    # So the distance of a message grows with what it holds.
    assert distance(DEVICES, modulus, 30) < 1e-6
    assert distance(DEVICES, modulus, 30, width=DIM) == 1.0


def test_messages_hold_one_piece_and_say_nothing_of_their_device() -> None:
    shares, source = Shares(4, 2**16, 5, width=2), SeededSource(13)
    one, two = (shares.messages(np.array(x), source) for x in ([1, 2, 3, 4], [0, 0, 0, 0]))
    assert [m[:4] for m in one] == [m[:4] for m in two]
    assert sorted(int.from_bytes(m[:4], "little") for m in one) == list(range(10))
    assert all(len(m) == 4 + 2 * 2 for m in one)


def test_shares_of_one_device_must_not_travel_together() -> None:
    # Whole devices shuffled: every message of a device beside the others adds up to its numbers.
    source, shares = SeededSource(14), Shares(2, 64, 6)
    values = np.array([[1, 2], [30, 40], [5, 60]])
    devices = [b"".join(shares.messages(row, source)) for row in values]
    size, read = shares.message_bytes, []
    for device in shuffled(devices, source):
        parts = [device[i : i + size] for i in range(0, len(device), size)]
        read.append(shares.combine(parts, devices=1).total.tolist())
    assert sorted(read) == sorted(values.tolist())


# ------------------------------------------------------------------------------------- the promise


def test_a_private_sum_through_a_blind_shuffler() -> None:
    protocol = VectorSum(n_users=200, dim=3, l2_bound=1.0, epsilon=1.0, delta=1e-6)
    device, source = protocol.randomizer(), SeededSource(15)
    modulus = modulus_above(protocol.n_users * device.packing.largest)
    shares = Shares.within(
        1e-8, devices=protocol.honest, dim=3, modulus=modulus, tag=device.packing.tag
    )
    X = np.random.default_rng(16).normal(size=(200, 3)) / 4
    reports = [shares.messages(device.counts(row, source), source) for row in X]
    found = shares.combine(shuffled([m for r in reports for m in r], source), devices=200)
    bag = Bag(found.total, 200, found.dropped, device.packing.tag)
    estimate = protocol.analyzer().estimate(bag)
    clipped = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    assert np.abs(estimate.value - clipped.sum(axis=0)).max() < 6 * estimate.standard_error
    event = StatisticallyClose(protocol.event, shares.variation(protocol.honest))
    assert protocol.event.epsilon(1e-6, relation="replace") <= 1.0
    assert 1.0 < event.epsilon(1e-6, relation="replace") + 1e-3 < 1.01
