"""A protocol is written, read and believed only if it keeps its promise."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses

from dpgrain.accounting import Gaussian
from dpgrain.accounting.contribution import Contribution
from dpgrain.errors import ParameterError
from dpgrain.shuffle import PoissonSum, ScalarSum, VectorSum
from dpgrain.shuffle.protocol import ShuffledSum

PROTOCOLS: dict[str, ShuffledSum] = {
    "vector": VectorSum(n_users=200, dim=3, epsilon=2.0, delta=1e-6, rounds=2, label="a"),
    "poisson": PoissonSum(n_users=200, dim=3, epsilon=2.0, delta=1e-6, honest_fraction=0.7),
    "scalar": ScalarSum(n_users=200, bound=3.0, epsilon=2.0, delta=1e-6, relation="zero_out"),
    "printed": VectorSum(n_users=20, dim=1, epsilon=2.0, delta=1e-6, analysis="printed"),
    "beside": VectorSum(
        n_users=200,
        dim=3,
        epsilon=2.0,
        delta=1e-6,
        beside=Gaussian(20.0, Contribution(block="user", layout="shared", coordinates="signed")),
    ),
}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_protocols_are_written_and_read(name: str) -> None:
    protocol = PROTOCOLS[name]
    read = ShuffledSum.from_json(protocol.to_json())
    assert read == protocol
    assert type(read) is type(protocol)
    assert read._packing(0) == protocol._packing(0)


def test_protocol_names_its_noise_as_in_version_0_1() -> None:
    kinds = {
        name: json.loads(PROTOCOLS[name].to_json())["design"]["noise"]["kind"]
        for name in ("vector", "poisson")
    }
    assert kinds == {"vector": "Coins", "poisson": "Arrivals"}


def test_protocol_violating_its_guarantee_is_rejected() -> None:
    values = json.loads(PROTOCOLS["vector"].to_json())
    values["design"]["noise"]["count"] //= 2
    with refuses("numbers", "2"):
        VectorSum.from_json(json.dumps(values))


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        ({"grid": 1}, "grid must be an even number"),
        ({"grid": 7}, "grid must be an even number"),
        ({"grid": 10**7}, "too large"),
        ({"noise": {"kind": "Coins", "count": 10**12, "probability": 0.5}}, "too large"),
        ({"noise": {"kind": "Coins", "count": 10**15, "probability": 1 - 2.0**-49}}, "2"),
        ({"noise": {"kind": "Coins", "count": -5, "probability": 0.5}}, "too large"),
        ({"leak": 0.2}, "do not satisfy"),
        ({"leak": 0}, "leak"),
    ],
    ids=["one", "odd", "fine", "many", "counts", "negative", "leaky", "nothing"],
)
def test_passed_numbers_are_checked(numbers: dict[str, Any], named: str) -> None:
    values = json.loads(VectorSum(n_users=200, dim=1, epsilon=0.5, delta=1e-6).to_json())
    values["design"] |= numbers
    with pytest.raises(ParameterError, match=named):
        VectorSum.from_json(json.dumps(values))


def test_equal_protocols_have_one_tag() -> None:
    one, other = (VectorSum(n_users=9, dim=1, epsilon=1, delta=1e-6, l2_bound=b) for b in (1, 1.0))
    assert one == other
    assert one._packing(0) == other._packing(0)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "7", '{"format": "dpgrain.shuffle/1"}', '{"format": "other"}', "[" * 200_000],
    ids=["nothing", "empty", "list", "number", "little", "other", "deep"],
)
def test_foreign_text_is_not_a_protocol(text: str) -> None:
    with refuses("text", "protocol"):
        VectorSum.from_json(text)
    values = json.loads(PROTOCOLS["scalar"].to_json())
    for broken in ({**values, "more": 1}, {**values, "protocol": "Other"}, {**values, "design": 3}):
        with refuses("text", "protocol"):
            VectorSum.from_json(json.dumps(broken))


def test_corrupt_devices_do_not_count_as_noise_sources() -> None:
    protocol = VectorSum(n_users=60, dim=1, epsilon=4.0, delta=1e-4, honest_fraction=0.5)
    sent = np.zeros((20, 1), dtype=np.int64)
    assert protocol.honest == 30
    assert np.isfinite(protocol.simulate(np.ones((30, 1)), corrupt=sent, dropped=10)).all()
    with refuses("batch", "29"):
        protocol.simulate(np.ones((30, 1)), corrupt=sent, dropped=11)
