"""The largest number of a user's records: stated, or chosen from noisy counts."""

from __future__ import annotations

import numpy as np
import pytest
from tests.charges import charge_of

from dpgrain import Element, Record, User
from dpgrain.errors import ParameterError
from dpgrain.inputs.record_limit import (
    LIMIT_SHARE,
    MOST_RECORDS,
    RecordCounts,
    RecordLimit,
    check_weights,
    chosen,
    require_users,
)
from dpgrain.noise import SeededSource
from dpgrain.publishing import Charge
from dpgrain.publishing.promise import Promise
from dpgrain.units import Relation

# Half of the users have one record, half have 200.
SIZES = np.repeat([1, 200], 5000)


def limit(relation: Relation = "zero_out") -> RecordLimit:
    found = RecordLimit.create("records", None, Promise(User(), 1.0, 1e-6, relation))
    assert found is not None
    return found


def charge() -> Charge:
    event = limit().event
    assert event is not None
    return charge_of(event, SeededSource(1))


def test_stated_number_draws_no_noise() -> None:
    stated = RecordLimit.create("records", 7, Promise(User(), 1.0, 1e-6, "zero_out"))
    assert stated == RecordLimit(7)
    with charge() as own:
        found = stated.choose(SIZES, 1.0, 3, own)
    assert found.most == 7
    assert found.counts is None


@pytest.mark.parametrize("relation", ["zero_out", "replace"])
def test_choice_costs_its_share_of_the_budget(relation: Relation) -> None:
    event = limit(relation).event
    assert event is not None
    whole = Promise(User(), 1.0, 1e-6, relation)
    assert event.epsilon(1e-6, relation=relation) < whole.epsilon * LIMIT_SHARE**0.5
    # Replacing a user moves two bins by one each.
    factor = event.loss(1, relation, User()).mu * event.noise_multiplier
    assert factor == pytest.approx(2**0.5 if relation == "replace" else 1)


def test_few_users_exceed_the_chosen_number() -> None:
    with charge() as own:
        found = limit().choose(SIZES, 10.0, 10, own)
    assert 200 <= found.most <= 512
    share = found.mean_weight(len(SIZES))
    assert share == pytest.approx(np.minimum(SIZES, found.most).mean() / found.most, rel=0.3)


def test_noise_beyond_all_counts_leaves_one_record() -> None:
    assert chosen(np.zeros(41), 5.0, 1.0) == 1
    assert RecordCounts(1).mean_weight(10) is None


@pytest.mark.parametrize(
    ("weights", "most", "words"),
    [
        ("rows", None, "weights must be"),
        ("users", 3, "max_records must be omitted"),
        ("records", 0, "max_records must be"),
        ("records", MOST_RECORDS + 1, "max_records must be at most"),
    ],
)
def test_wrong_weights_are_rejected(weights: str, most: int | None, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        check_weights(weights, most)


@pytest.mark.parametrize("unit", [Record(), Element("day"), User(max_elements=3)])
def test_only_whole_users_are_weighted(unit: Record | Element | User) -> None:
    with pytest.raises(ParameterError, match="only whole users"):
        require_users(unit)
