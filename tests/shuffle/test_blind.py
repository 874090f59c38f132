"""Shuffled sums through a shuffler that only mixes."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from tests.refusals import refuses

from dpgrain.accounting import StatisticallyClose
from dpgrain.noise import SeededSource
from dpgrain.shuffle import BlindSum, Dropped, Enrolment, VectorSum
from dpgrain.units import RELATIONS, Relation


@pytest.fixture(scope="module")
def protocol() -> BlindSum:
    return BlindSum(n_users=40, dim=3, l2_bound=1.0, epsilon=4.0, delta=1e-5, honest_fraction=0.9)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_promise_counts_what_messages_may_tell(relation: Relation) -> None:
    blind = BlindSum(n_users=200, dim=10, l2_bound=1.0, epsilon=1.0, delta=1e-6, relation=relation)
    assert 0.97 < blind.guarantee.epsilon() <= 1.0
    assert isinstance(blind.event, StatisticallyClose)
    assert 0 < (1 + math.e) * blind.variation <= 0.0101 * blind.delta
    # One share less would not do.
    few = blind.shares()
    less = type(few)(few.dim, few.modulus, few.count - 1, few.width, few.tag)
    assert (1 + math.e) * less.variation(blind.honest) > 0.0101 * blind.delta
    # Hiding costs hardly any noise.
    plain = VectorSum(n_users=200, dim=10, l2_bound=1.0, epsilon=1.0, delta=1e-6, relation=relation)
    assert blind.noise_sd <= 1.002 * plain.noise_sd


def test_what_messages_may_tell_is_paid_for_in_every_round() -> None:
    blind = BlindSum(n_users=200, dim=4, l2_bound=1.0, epsilon=1.0, delta=1e-6, rounds=5)
    one = blind.shares().variation(blind.honest)
    assert one > 0
    for event, rounds in ((blind.event, 5), (blind.event_with(blind.honest, 2), 2)):
        assert isinstance(event, StatisticallyClose)
        assert event.variation >= rounds * one * (1 - 1e-12)


def test_facts_say_who_is_trusted_and_how_many_are_honest() -> None:
    blind = BlindSum(n_users=1000, dim=2, epsilon=4.0, delta=1e-6)
    for share, honest in ((0.9, "900"), (1.0, "1,000")):
        public = blind.guarantee_with(share).public
        assert (
            public[1]
            == "a shuffler that mixes all messages of a batch and tells nobody who sent what"
        )
        assert public[2].startswith(f"at least {honest} devices")
        assert len(public) == len(blind.facts) == 4
    assert blind.facts == blind.facts_with(1000) != blind.facts_with(999)
    assert blind.guarantee.public == blind.guarantee_with(1.0).public


def test_fewer_honest_devices_hide_less(protocol: BlindSum) -> None:
    assert protocol.guarantee_with(0.9).epsilon() <= 4.0
    assert protocol.guarantee_with(0.5).epsilon() > 4.0
    # Two devices hide nothing in each other's shares: only δ near 1 is left.
    assert protocol.guarantee_with(0.05).epsilon() == math.inf


def test_sums_come_out_of_mixed_messages(protocol: BlindSum) -> None:
    device, shuffler = protocol.randomizer(), protocol.shuffler(random_state=1)
    analyzer = protocol.analyzer()
    vectors = np.random.default_rng(0).normal(size=(40, 3)) * 0.4
    plain = np.zeros(3, dtype=np.int64)
    for number, vector in enumerate(vectors):
        plain += device.plain.counts(vector, SeededSource(number))
        assert shuffler.receive(device.report(vector, random_state=number))
    assert not shuffler.receive(device.report(None))
    assert shuffler.dropped == Dropped(surplus=1)
    messages = shuffler.release()
    assert len(messages) == 40 * device.shares.slots
    assert sum(map(len, messages)) == 40 * device.report_bytes
    assert len({len(one) for one in messages}) == 1
    found = analyzer.estimate(messages, shuffler.reports)
    # With the same secret bits, what a trusted shuffler's analyzer gets.
    assert np.array_equal(found.value, protocol._analyzer().decoded(plain, 40))
    clipped = vectors / np.maximum(np.linalg.norm(vectors, axis=1), 1)[:, None]
    assert np.abs(found.value - clipped.sum(axis=0)).max() < 6 * found.standard_error


def test_a_message_that_is_lost_spoils_its_coordinate_and_is_seen(protocol: BlindSum) -> None:
    device, shuffler = protocol.randomizer(), protocol.shuffler()
    for _ in range(40):
        shuffler.receive(device.report(None))
    messages = shuffler.release()
    slots = device.shares.count
    label = len(device.shares.tag)
    lost = next(
        i
        for i, one in enumerate(messages)
        if int.from_bytes(one[label : label + 4], "little") // slots == 1
    )
    found = protocol.analyzer().estimate(messages[:lost] + messages[lost + 1 :], 40)
    assert np.isnan(found.value).tolist() == [False, True, False]


def test_whatever_a_device_sends_nothing_breaks(protocol: BlindSum) -> None:
    device, rng = protocol.randomizer(), random.Random(0)
    good = device.report(None)
    size, slots = len(good[0]), len(good)
    shuffler = protocol.shuffler()
    for _ in range(34):
        shuffler.receive(device.report([0.1, 0.2, 0.3]))
    refused = 0
    for number in range(3000):
        sent = list(good)
        if number % 3 == 0:
            sent = sent[: rng.randrange(slots)]
        elif number % 3 == 1:
            sent[rng.randrange(slots)] = rng.randbytes(rng.randrange(size))
        else:
            sent.append(good[0])
        refused += not shuffler.receive(sent)
    assert refused == shuffler.dropped.malformed == 3000
    # After the tag any bytes are taken, since a blind shuffler does not read; the analyzer notices.
    tag = device.shares.tag
    for _ in range(6):
        assert shuffler.receive([tag + rng.randbytes(size - len(tag)) for _ in range(slots)])
    found = protocol.analyzer().estimate(shuffler.release(), 40)
    assert found.dropped.malformed == 6 * slots
    assert np.isnan(found.value).all()


def test_messages_that_are_sent_again_do_not_count(protocol: BlindSum) -> None:
    shuffler, sent = protocol.shuffler(), protocol.randomizer().report([0.1, 0.2, 0.3])
    assert shuffler.receive(sent)
    assert not shuffler.receive(sent)
    assert not shuffler.receive(sent[::-1])
    assert shuffler.dropped == Dropped(repeated=2)


def test_one_honest_device_hides_in_its_own_noise() -> None:
    alone = BlindSum(n_users=1, dim=2, epsilon=1.0, delta=1e-6)
    assert alone.variation == 0.0
    assert alone.guarantee.epsilon() <= 1.0
    many = BlindSum(n_users=100, dim=2, epsilon=1.0, delta=1e-6)
    assert 1.0 < many.guarantee_with(0.01).epsilon() < math.inf
    with refuses("epsilon", "500"):
        BlindSum(n_users=100, dim=2, epsilon=501.0, delta=1e-6)


def test_who_may_take_part(protocol: BlindSum) -> None:
    device, enrolment = protocol.randomizer(), Enrolment()
    shuffler = protocol.shuffler(enrolment=enrolment)
    for expected in (True, False):
        assert shuffler.receive(device.report(None, device="ann"), device="ann") is expected
    with refuses("device", "said"):
        shuffler.receive(device.report(None))
    with refuses("batch", "1"):
        shuffler.release()
    for number in range(35):
        shuffler.receive(device.report(None, device=number), device=number)
    shuffler.release()
    for call in (shuffler.release, lambda: shuffler.receive([])):
        with refuses("batch", "handed"):
            call()


def test_messages_of_another_round_are_malformed(protocol: BlindSum) -> None:
    shuffler, other = protocol.shuffler(), protocol.randomizer(1).report(None)
    assert not shuffler.receive(other)
    for _ in range(40):
        shuffler.receive(protocol.randomizer().report(None))
    mixed = shuffler.release()
    assert shuffler.dropped == Dropped(malformed=1)
    # The analyzer of a shuffler that lets them in drops them as well, and sees that some lack.
    found = protocol.analyzer().estimate([*other, *mixed[len(other) :]], 40)
    assert found.dropped.malformed == len(other)
    assert np.isnan(found.value).any()


def test_simulations_are_those_of_plain_sums(protocol: BlindSum) -> None:
    found = protocol.simulate(np.full((40, 3), 0.3), random_state=3)
    assert np.abs(found - 12).max() < 6 * protocol.noise_sd


def test_what_is_left_out() -> None:
    with refuses("beside"):
        BlindSum(
            n_users=5,
            dim=1,
            epsilon=1.0,
            delta=1e-6,
            beside=VectorSum(n_users=5, dim=1, epsilon=1.0, delta=1e-6).event,
        )
