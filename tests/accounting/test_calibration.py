"""Calibrated noise keeps its promise and wastes nothing."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refuses

from dpgrain.accounting import (
    Compose,
    Contribution,
    Gaussian,
    calibrate_gaussian,
    calibrate_laplace,
)
from dpgrain.accounting.calibration import gaussian_multipliers
from dpgrain.units import RELATIONS, Element, Relation, User

CONTRIBUTIONS = [
    Contribution(),
    Contribution(coordinates="signed"),
    Contribution(layout="shared", max_elements=3),
    Contribution(block="user", coordinates="one"),
    Contribution(max_elements=5, coordinates="one"),
]


@given(
    st.floats(1e-3, 40),
    st.floats(1e-15, 0.1),
    st.sampled_from(CONTRIBUTIONS),
    st.sampled_from(RELATIONS),
    st.sampled_from([1, 2, 10, 1000, 2**31]),
)
def test_calibrated_noise_keeps_its_promise_and_wastes_nothing(
    epsilon: float, delta: float, contribution: Contribution, relation: Relation, count: int
) -> None:
    event = calibrate_gaussian(
        epsilon, delta, contribution=contribution, relation=relation, count=count
    )
    reported = event.epsilon(delta, relation=relation)
    assert reported <= epsilon
    assert epsilon - reported < 1e-9 * max(epsilon, 1)
    assert event.count == count
    assert event.contribution == contribution
    less = dataclasses.replace(event, noise_multiplier=event.noise_multiplier * (1 - 1e-9))
    assert less.epsilon(delta, relation=relation) > epsilon * (1 - 1e-12)


@given(
    st.floats(1e-2, 20),
    st.floats(1e-12, 1e-2),
    st.lists(
        st.tuples(st.sampled_from(CONTRIBUTIONS), st.floats(0.01, 10)), min_size=1, max_size=5
    ),
    st.sampled_from(RELATIONS),
)
def test_several_releases_together_keep_one_promise(
    epsilon: float, delta: float, parts: list[tuple[Contribution, float]], relation: Relation
) -> None:
    contributions, shares = [c for c, _ in parts], [s for _, s in parts]
    unit = Element()
    noise = gaussian_multipliers(epsilon, delta, contributions, shares, relation, unit)
    events = tuple(Gaussian(m, c) for m, c in zip(noise, contributions, strict=True))
    together = Compose(events)
    reported = together.epsilon(delta, relation=relation, unit=unit)
    assert reported <= epsilon
    assert epsilon - reported < 1e-9 * max(epsilon, 1)
    squares = [event.loss(1, relation, unit).mu ** 2 for event in events]
    assert squares[0] / sum(squares) == pytest.approx(shares[0] / sum(shares))


@given(st.floats(1e-4, 100), st.sampled_from(RELATIONS), st.integers(1, 50))
def test_calibrated_laplace_noise_keeps_its_promise(
    epsilon: float, relation: Relation, count: int
) -> None:
    event = calibrate_laplace(epsilon, relation=relation, count=count)
    assert event.epsilon(relation=relation) <= epsilon
    assert event.epsilon(relation=relation) == pytest.approx(epsilon, rel=1e-14)


def test_calibration_for_a_coarser_unit() -> None:
    event = calibrate_gaussian(1.0, 1e-5, unit=User(max_elements=9))
    assert event.epsilon(1e-5, unit=User(max_elements=9)) <= 1.0
    assert event.noise_multiplier == pytest.approx(3 * 3.7306, abs=1e-3)


def test_each_release_has_one_share() -> None:
    with refuses("shares"):
        gaussian_multipliers(1.0, 1e-6, [Contribution()], [1.0, 2.0])
