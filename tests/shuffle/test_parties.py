"""Devices, shufflers and the analyzer: participants, dropped reports, and robustness."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses
from tests.shuffle import cases

from dpgrain.errors import ParameterError
from dpgrain.shuffle import Analyzer, Bag, Dropped, Enrolment, PoissonSum, VectorSum
from dpgrain.shuffle.encoding import Packing


def test_three_parties() -> None:
    protocol = VectorSum(n_users=30, dim=3, l2_bound=1.0, epsilon=8.0, delta=1e-4)
    shuffler, analyzer = protocol.shuffler(), protocol.analyzer()
    device = protocol.randomizer()
    vectors = np.random.default_rng(0).normal(size=(30, 3)) * 0.3
    for vector in vectors:
        assert shuffler.receive(device.report(vector))
    assert not shuffler.receive(device.report(None))
    assert shuffler.reports == 30
    bag = shuffler.release()
    found = analyzer.estimate(bag)
    assert found.reports == 30
    assert found.dropped == Dropped(surplus=1)
    assert np.abs(found.value - vectors.sum(axis=0)).max() < 6 * found.standard_error
    assert "30 devices; 1 dropped" in str(found)
    assert "30 of 30 reports" in repr(shuffler)
    with refuses("batch", "already released"):
        shuffler.release()
    with refuses("batch", "already released"):
        shuffler.receive(b"")


def test_too_few_reports_are_withheld() -> None:
    protocol = VectorSum(
        n_users=10, dim=1, l2_bound=1.0, epsilon=8.0, delta=1e-4, honest_fraction=0.5
    )
    shuffler, device = protocol.shuffler(), protocol.randomizer()
    for _ in range(4):
        shuffler.receive(device.report([0.1]))
    with refuses("batch", "4"):
        shuffler.release()
    shuffler.receive(device.report([0.1]))
    assert shuffler.release().reports == 5


def test_reports_of_other_rounds_and_protocols_do_not_count() -> None:
    protocol = VectorSum(n_users=10, dim=2, l2_bound=1.0, epsilon=8.0, delta=1e-4, rounds=4)
    other = VectorSum(n_users=10, dim=2, l2_bound=1.0, epsilon=7.0, delta=1e-4, rounds=4)
    shuffler = protocol.shuffler(3)
    assert shuffler.receive(protocol.randomizer(3).report([0.1, 0.2]))
    assert not shuffler.receive(protocol.randomizer(2).report([0.1, 0.2]))
    assert not shuffler.receive(other.randomizer(3).report([0.1, 0.2]))
    assert shuffler.dropped == Dropped(malformed=2)


def test_no_user_participates_twice() -> None:
    protocol = VectorSum(n_users=2, dim=1, l2_bound=1.0, epsilon=8.0, delta=1e-4)
    enrolment = Enrolment()
    first, second = (protocol.shuffler(r, enrolment=enrolment) for r in (0, 1))
    reports = [protocol.randomizer(r).report([0.0], device="ann") for r in (0, 1)]
    assert first.receive(reports[0], device="ann")
    assert not first.receive(reports[0], device="ann")
    assert not second.receive(reports[1], device="ann")
    assert not second.receive(reports[1], device="bob")
    assert second.dropped == Dropped(malformed=1, repeated=1)
    assert second.receive(protocol.randomizer(1).report([0.0], device="bob"), device="bob")
    with refuses("device", "required"):
        second.receive(reports[1])


def test_uncounted_rounds_are_rejected() -> None:
    protocol = VectorSum(n_users=10, dim=2, epsilon=8.0, delta=1e-4, rounds=2)
    assert "each of which participates in at most 2 rounds" in str(protocol.guarantee)
    protocol.shuffler(1)
    with refuses("round", "2"):
        protocol.shuffler(2)
    protocol.shuffler(2, enrolment=Enrolment())


def test_bytes_come_in_any_dress() -> None:
    protocol = VectorSum(n_users=10, dim=2, epsilon=8.0, delta=1e-4)
    shuffler, device = protocol.shuffler(), protocol.randomizer()
    assert shuffler.receive(bytearray(device.report(None)))
    assert shuffler.receive(memoryview(device.report(None)))


def test_repeated_report_does_not_count() -> None:
    # Otherwise copies of one person's report, made without reading it, would drown all other noise.
    protocol = VectorSum(n_users=5, dim=1, l2_bound=1.0, epsilon=8.0, delta=1e-4)
    shuffler, report = protocol.shuffler(), protocol.randomizer().report([0.5])
    assert shuffler.receive(report)
    assert not shuffler.receive(report)
    assert shuffler.receive(protocol.randomizer().report([0.5]))
    assert shuffler.dropped == Dropped(repeated=1)


def test_reports_of_another_deployment_do_not_count() -> None:
    numbers: dict[str, Any] = {"n_users": 5, "dim": 1, "epsilon": 8.0, "delta": 1e-4}
    monday, tuesday = (VectorSum(**numbers, label=day) for day in ("monday", "tuesday"))
    shuffler = tuesday.shuffler()
    assert not shuffler.receive(monday.randomizer().report([0.5]))
    assert shuffler.receive(tuesday.randomizer().report([0.5]))
    with refuses("label", "text"):
        VectorSum(**numbers, label=3)  # type: ignore[arg-type]


def test_corrupt_devices_are_not_counted_on() -> None:
    protocol = VectorSum(n_users=100, dim=1, epsilon=2.0, delta=1e-5, honest_fraction=0.5)
    sent = np.zeros((50, 1), dtype=np.int64)
    assert protocol.simulate(np.ones((50, 1)), corrupt=sent).shape == (1,)
    with refuses("batch", "49"):
        protocol.simulate(np.ones((50, 1)), corrupt=sent, dropped=1)


def test_a_copy_does_not_count_in_another_batch_either() -> None:
    protocol = VectorSum(n_users=5, dim=1, epsilon=8.0, delta=1e-4)
    enrolment, report = Enrolment(), protocol.randomizer().report([0.5], device="ann")
    first, second = (protocol.shuffler(enrolment=enrolment) for _ in range(2))
    assert first.receive(report, device="ann")
    assert not second.receive(report, device="bob")


def test_a_broken_report_does_not_use_up_a_place() -> None:
    protocol = VectorSum(n_users=2, dim=1, l2_bound=1.0, epsilon=8.0, delta=1e-4)
    shuffler = protocol.shuffler(enrolment=Enrolment())
    assert not shuffler.receive(b"broken", device="ann")
    assert shuffler.receive(protocol.randomizer().report([0.0], device="ann"), device="ann")


def test_impossible_messages_are_dropped_and_counted() -> None:
    protocol = cases.small()
    analyzer = protocol.analyzer()
    good = [(0, 1)] * 30 + [(1, 0)] * 25
    bad = [(2, 1), (-1, 0), (0, 2), (0, -1), (1, 7)]
    found = analyzer.estimate_messages(np.array(good + bad + [(0, 1)] * 4), 3)
    assert found.dropped == Dropped(malformed=5, surplus=4)
    assert np.array_equal(found.value, analyzer.decoded(np.array([30, 0]), 3))
    odd = np.array([(0.5, 1.0), (np.nan, 0.0), (0.0, 1.0)])
    assert analyzer.estimate_messages(odd, 3).dropped.malformed == 2
    with refuses("messages", "shape"):
        analyzer.estimate_messages(np.ones(3), 3)


def test_one_corrupt_device_has_bounded_influence() -> None:
    protocol = VectorSum(
        n_users=50, dim=3, l2_bound=1.0, epsilon=4.0, delta=1e-4, honest_fraction=0.98
    )
    largest = protocol.randomizer().packing.largest
    X = np.zeros((49, 3))
    source = np.random.default_rng(0)
    results = {
        name: protocol.simulate(X, corrupt=[message], random_state=7)
        for name, message in {
            "all": [largest] * 3,
            "none": [0] * 3,
            "some": source.integers(0, largest + 1, 3).tolist(),
        }.items()
    }
    far = float(np.linalg.norm(results["all"] - results["none"]))
    assert far == pytest.approx(protocol.influence)
    assert np.linalg.norm(results["all"] - results["some"]) <= protocol.influence
    with refuses("corrupt", "counts"):
        protocol.simulate(X, corrupt=[[largest + 1, 0, 0]])
    with refuses("X", "49"):
        protocol.simulate(np.zeros((50, 3)), corrupt=[[0, 0, 0]])


def consistent(shuffler: Any, packing: Packing) -> bool:
    ones = shuffler._ones
    return bool(
        ones.min() >= 0
        and ones.max() <= shuffler.reports * packing.largest
        and shuffler.reports <= shuffler._size
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", [VectorSum, PoissonSum])
def test_parties_stay_consistent_for_any_bytes(kind: type[VectorSum]) -> None:
    protocol = kind(n_users=50_000, dim=3, l2_bound=1.0, epsilon=1.0, delta=1e-7)
    shuffler, analyzer, device = protocol.shuffler(), protocol.analyzer(), protocol.randomizer()
    packing, rng = device.packing, random.Random(1)
    valid = [device.report(v) for v in (None, [1.0, 0.0, 0.0], [np.nan] * 3, [-1e300, 1.0, 1.0])]
    counted = 0
    for number in range(60_000):
        way = number % 6
        report: Any = bytearray(rng.choice(valid))
        if way == 0:
            report = rng.randbytes(rng.randrange(0, 40))
        elif way == 1:
            report[rng.randrange(len(report))] = rng.randrange(256)
        elif way == 2:
            report = report[: rng.randrange(len(report))]
        elif way == 3:
            report += rng.randbytes(rng.randrange(1, 4))
        elif way == 4:
            report = packing.tag + rng.randbytes(packing.size - len(packing.tag))
        report = bytes(report)
        if len(report) == packing.size and report.startswith(packing.tag):
            # Each has a separate number, like another device.
            start = len(packing.tag)
            report = report[:start] + rng.randbytes(16) + report[start + 16 :]
        known = packing.unpack(report)
        accepted = shuffler.receive(report)
        assert accepted == (known is not None)
        if known is not None:
            # Every accepted report is one that a device can send.
            assert packing.pack(known, packing.nonce(report)) == report
            counted += 1
    assert consistent(shuffler, packing)
    assert shuffler.reports == counted > 10_000
    assert shuffler.reports + shuffler.dropped.total == 60_000
    strangers: list[Any] = [None, "text", 7, [1], bytearray(b"rubbish")]
    for strange in strangers:
        assert not shuffler.receive(strange)
    shuffler._least = 0
    found = analyzer.estimate(shuffler.release().to_bytes())
    assert np.isfinite(found.value).all()


@pytest.mark.slow
def test_analyzer_rejects_or_answers_any_multiset() -> None:
    protocol = VectorSum(n_users=20, dim=2, l2_bound=1.0, epsilon=4.0, delta=1e-4)
    analyzer, shuffler = protocol.analyzer(), protocol.shuffler()
    for _ in range(20):
        shuffler.receive(protocol.randomizer().report(None))
    good, rng = shuffler.release().to_bytes(), random.Random(2)
    refused = 0
    for number in range(50_000):
        data = bytearray(good)
        if number % 3 == 0:
            data = bytearray(rng.randbytes(rng.randrange(0, 80)))
        else:
            for _ in range(number % 3):
                data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            found = analyzer.estimate(bytes(data))
        except ParameterError:
            refused += 1
        else:
            assert np.isfinite(found.value).all()
            assert 0 <= found.reports <= 20
            most = protocol.influence * 20
            assert np.abs(found.value).max() <= most
    assert 10_000 < refused < 50_000
    bag = Bag(np.array([1, 2, 3]), 20, Dropped(), analyzer.packing.tag)
    with pytest.raises(ParameterError, match="out of range"):
        analyzer.estimate(bag)


def test_many_coordinates_and_few_users() -> None:
    wide = VectorSum(n_users=2, dim=5_000, l2_bound=1.0, epsilon=2.0, delta=1e-6)
    assert wide.guarantee.epsilon() <= 2.0
    alone = VectorSum(n_users=1, dim=1, l2_bound=1e-50, epsilon=0.01, delta=1e-9)
    assert alone.guarantee.epsilon() <= 0.01
    assert isinstance(alone.analyzer(), Analyzer)
