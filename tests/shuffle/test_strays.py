"""A report that strayed counts nowhere: of another round, label, protocol or device, late or again."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses

from dpgrain.accounting import Gaussian
from dpgrain.accounting.contribution import ONE_EACH
from dpgrain.shuffle import Enrolment, PoissonSum, ScalarSum, Shuffler, VectorSum
from dpgrain.shuffle.encoding import Packing

KINDS: dict[str, Any] = {
    "vectors": VectorSum,
    "Poisson": PoissonSum,
    "numbers": ScalarSum,
}
BASE: dict[str, Any] = {
    "n_users": 6,
    "epsilon": 8.0,
    "delta": 1e-3,
    "relation": "replace",
    "rounds": 2,
    "honest_fraction": 0.5,
    "label": "spring",
}
OTHER: dict[str, Any] = {
    "nothing": None,
    "round": 1,
    "label": "autumn",
    "n_users": 7,
    "epsilon": 7.0,
    "delta": 1e-4,
    "relation": "zero_out",
    "rounds": 3,
    "honest_fraction": 1.0,
    "bound": 2.0,
    "dim": 2,
}
NAMES: dict[str, tuple[Any, Any]] = {
    "nobody": (None, None),
    "the same": ("ann", "ann"),
    "the same in bytes": (7, b"7"),
    "another": ("ann", "bob"),
    "said by one": (None, "ann"),
    "said by the other": ("ann", None),
}


def protocol_of(kind: str, differs: str = "nothing") -> Any:
    asked = dict(BASE)
    if differs in BASE:
        asked[differs] = OTHER[differs]
    if kind == "numbers":
        return ScalarSum(**asked, bound=2.0 if differs == "bound" else 1.0)
    dim, bound = 2 if differs == "dim" else 1, 2.0 if differs == "bound" else 1.0
    return KINDS[kind](**asked, dim=dim, l2_bound=bound)


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("differs", OTHER)
@pytest.mark.parametrize("theirs", KINDS)
@pytest.mark.parametrize("mine", KINDS)
def test_shuffler_accepts_only_reports_of_its_devices(
    mine: str, theirs: str, differs: str, names: str
) -> None:
    own, other = protocol_of(mine), protocol_of(theirs, differs)
    if differs == "dim" and theirs == "numbers":
        other = protocol_of(theirs, "label")
    device = other.randomizer(1 if differs == "round" else 0)
    said, known = NAMES[names]
    vector = [0.5] * (1 if theirs == "numbers" else other.dim)
    sent, shuffler = device.report(vector, device=said), own.shuffler()
    as_said = said is known or (said, known) == (7, b"7")
    # In another protocol with the same numbers it is the same report.
    expected = as_said and device == own.randomizer()
    assert shuffler.receive(sent, device=known) == expected
    assert shuffler.dropped.malformed == (not expected)
    for _ in range(4):
        assert shuffler.receive(own.randomizer().report(None))
    batch = shuffler.release()
    assert batch.tag == own._packing(0).tag
    found = own.analyzer().estimate(batch)
    assert found.dropped.malformed == (not expected)
    assert found.reports == 4 + expected
    assert np.isfinite(found.value).all()


#: Promises that noise of :data:`BASE` keeps as well, with a batch of fewer reports or in other rounds.
WEAKER: dict[str, dict[str, Any]] = {
    "epsilon": {"epsilon": 9.0},
    "delta": {"delta": 2e-3},
    "relation": {"relation": "zero_out"},
    "fewer rounds": {"rounds": 1},
    "more rounds": {"rounds": 4, "epsilon": 100.0},
    "all honest": {"honest_fraction": 1.0},
    "few honest": {"honest_fraction": 0.2, "epsilon": 100.0},
    "beside": {"beside": Gaussian(50.0, ONE_EACH), "epsilon": 9.0},
}


@pytest.mark.parametrize("weaker", WEAKER)
@pytest.mark.parametrize("kind", KINDS)
def test_report_counts_only_under_its_devices_guarantee(kind: str, weaker: str) -> None:
    shown = protocol_of(kind)
    other = replace(shown, **WEAKER[weaker], chosen=shown.design)
    assert other.design == shown.design
    for mine, theirs in ((shown, other), (other, shown)):
        shuffler = mine.shuffler()
        assert not shuffler.receive(theirs.randomizer().report([0.5]))
        assert shuffler.dropped.malformed == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", [None, "ann"])
def test_impossible_report_is_malformed_and_uses_no_place(kind: str, device: Any) -> None:
    protocol = protocol_of(kind)
    sent = protocol.randomizer().report([0.5], device=device)
    shuffler = protocol.shuffler()
    faults: list[Any] = [sent[:-1], sent + b"\0", [sent], sent.decode("latin-1"), None, 7]
    faults.append(bytes([sent[0] ^ 1]) + sent[1:])
    for fault in faults:
        assert not shuffler.receive(fault, device=device)
    assert shuffler.dropped.malformed == len(faults)
    assert shuffler.receive(sent, device=device)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", [True, False], ids=["batches", "one batch"])
@pytest.mark.parametrize("first_as", ["ann", "bob"])
def test_no_user_is_in_a_batch_twice_despite_copies(kind: str, shared: bool, first_as: str) -> None:
    """All orders of two reports of one person, each also copied under another name."""
    protocol = protocol_of(kind)
    for order in itertools.permutations([("ann", 0), ("bob", 0), ("ann", 1), ("bob", 1)]):
        enrolment = Enrolment() if shared else None
        shufflers = [protocol.shuffler(r, enrolment=enrolment) for r in (0, 1)]
        if not shared:
            shufflers[1] = shufflers[0]
        sent = [protocol.randomizer(r if shared else 0).report([0.5], device="ann") for r in (0, 1)]
        # A copy may come first, and the person's own report may be late.
        tried = sorted(order, key=lambda each: each[0] != first_as)
        taken = [shufflers[r].receive(sent[r], device=name) for name, r in tried]
        assert sum(taken) == 1
        assert all(name == "ann" for (name, _), there in zip(tried, taken, strict=True) if there)


@pytest.mark.parametrize("kind", KINDS)
def test_late_report_is_rejected(kind: str) -> None:
    protocol = protocol_of(kind)
    shuffler = protocol.shuffler()
    for _ in range(3):
        shuffler.receive(protocol.randomizer().report(None))
    shuffler.release()
    with refuses("batch", "already released"):
        shuffler.receive(protocol.randomizer().report([0.5]))
    late = protocol.shuffler(1)
    assert not late.receive(protocol.randomizer().report([0.5]))
    assert late.dropped.malformed == 1


@pytest.mark.parametrize("tag", [b"", b"7 bytes", b"x" * 33])
def test_tags_are_needed(tag: bytes) -> None:
    with refuses("tag", "8"):
        Shuffler(Packing(tag, 1, 10), 5, 1)


@pytest.mark.parametrize("device", [1.0, float("nan"), (1, 2), ["ann"], {}, object()])
@pytest.mark.parametrize("kind", KINDS)
def test_a_device_is_text_bytes_or_a_whole_number(kind: str, device: Any) -> None:
    protocol = protocol_of(kind)
    for call in (protocol.randomizer().report, protocol.shuffler().receive):
        with refuses("device", "integer"):
            call([0.5], device=device)
    with refuses("device"):
        Enrolment().take(device)
