"""The accuracy of a classifier: sensitivity, interval coverage, and errors."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.effort import Effort
from tests.refusals import refuses
from tests.untouched import Untouched

import dpgrain as dg
from dpgrain.accounting import Contribution, Laplace
from dpgrain.errors import RefusedError
from dpgrain.learn.accuracy import Accuracy, AccuracyQuery, _share, accuracy
from dpgrain.noise import SeededSource
from dpgrain.publishing import Promise, publish
from dpgrain.publishing.charge import Charge
from dpgrain.units import RELATIONS, Relation

CLASSES = ["a", "b", "c"]


class Unread(Untouched):
    def __getitem__(self, which: Any) -> Any:
        assert which == slice(0, 0), "rows were read"
        return np.empty(0, dtype=self.dtype)


def rows(rng: np.random.Generator, users: int, most: int = 400) -> dict[str, Any]:
    """Rows of people; few have many, and their own accuracies differ."""
    sizes = np.minimum(rng.zipf(1.6, users), most)
    whose = np.repeat(np.arange(users), sizes)
    own = np.clip(rng.normal(0.75, 0.25, users), 0, 1)[whose]
    y = rng.choice(3, len(whose), p=[0.5, 0.3, 0.2])
    predicted = np.where(rng.random(len(whose)) < own, y, (y + 1) % 3)
    names = np.array(CLASSES)
    return {"y": names[y], "predicted": names[predicted], "users": whose}


def truth(of: dict[str, Any]) -> tuple[float, float]:
    """The mean share of right rows, and the largest mean share of a class."""
    by_user = pd.DataFrame({"right": of["y"] == of["predicted"], "y": of["y"]}).groupby(of["users"])
    shares = pd.get_dummies(of["y"]).groupby(of["users"]).mean().mean()
    return float(by_user["right"].mean().mean()), float(shares.max())


@pytest.mark.parametrize(("users", "epsilon"), [(60, 1.0), (500, 0.3), (500, 3.0)])
def test_intervals_have_95_percent_coverage(
    users: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = rows(np.random.default_rng(users), users)
    right, common = truth(asked)
    query = accuracy.query(**asked, classes=CLASSES, epsilon=epsilon)
    assert isinstance(query, AccuracyQuery)
    sums = query._sums()
    # The same rows each time; only the noise is new.
    monkeypatch.setattr(AccuracyQuery, "_sums", lambda _: sums)
    held = base = 0
    for seed in range(400):
        with Charge(query.plan.guarantee, SeededSource(seed)) as charge:
            found = query.run(charge)
        assert not charge.left
        held += found.low <= right <= found.high
        base += found.base_low <= common <= found.base_high
    # Of 400 releases 380 on average, 367 with a probability of 10⁻³ for fewer.
    assert 367 <= held <= 393
    assert base >= 380


@pytest.mark.parametrize("epsilon", [0.05, 0.3])
def test_few_people_give_no_result(epsilon: float) -> None:
    asked = rows(np.random.default_rng(1), 12)
    found = accuracy(**asked, classes=CLASSES, epsilon=epsilon, random_state=1)
    assert (found.low, found.high) == (0.0, 1.0)
    assert (found.base_low, found.base_high) == (0.0, 1.0)


def beyond(x: float, one: float, other: float) -> float:
    """The probability that one·L + other·L′ passes ±x, for Laplace noises of scale 1."""
    large, small = max(one, other), min(one, other)
    if large - small < 1e-6:
        return math.exp(-x / large) * (1 + x / (2 * large))
    least = small**2 * math.exp(-x / small) if small else 0.0
    return (large**2 * math.exp(-x / large) - least) / (large**2 - small**2)


@pytest.mark.parametrize("right", [1.0, 55.0, 80.0, 99.0])
def test_noise_passes_an_end_in_at_most_five_percent(right: float) -> None:
    noise = Laplace(2.0, Contribution("user", "shared", "nonnegative", "l1"))
    value, *ends = _share(np.array([right]), np.array([right, 100 - right]), noise)
    assert value == right / 100
    for end in ends:
        if 0 < end < 1:
            off = abs((1 - end) * right - end * (100 - right)) / noise.noise_multiplier
            assert 0.035 < beyond(off, 1 - end, end) <= 0.05 + 1e-5


@pytest.mark.parametrize("sums", [[50.0, 45.0, 5.0, 0.0], [40.0] * 10 + [0.0]])
def test_ends_of_all_classes_are_valid_at_once(sums: list[float]) -> None:
    """The largest of ten noisy shares is the most that one of ten draws adds."""
    noise = Laplace(2.0, Contribution("user", "shared", "nonnegative", "l1"))
    drawn = sums + np.random.default_rng(0).laplace(scale=2.0, size=(4000, len(sums)))
    largest = max(sums) / sum(sums)
    held = [
        low <= largest <= high for _, low, high in (_share(row[:-1], row, noise) for row in drawn)
    ]
    assert np.mean(held) > 0.95


def test_rounding_of_shares_to_steps_is_within_the_ends() -> None:
    """A third is not a whole number of steps, which many people and little noise would reveal."""
    y, predicted = np.tile([0, 1, 1], 20_000), np.tile([0, 0, 0], 20_000)
    users = np.repeat(np.arange(20_000), 3)
    found = accuracy(y, predicted, users=users, classes=[0, 1], epsilon=1e7, random_state=1)
    assert found.low <= 1 / 3 <= found.high
    assert found.base_low <= 2 / 3 <= found.base_high
    assert found.base_high - found.base_low < 1e-6


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("unit", [dg.Record(), dg.User(), dg.Element()])
def test_no_neighbour_moves_sums_beyond_the_charge(
    unit: Any, relation: Relation, effort: Effort
) -> None:
    """Each of the two sums moves by an l1 norm of at most 1, or 2 where a unit is exchanged."""
    rng = np.random.default_rng(7)
    steps, most = 2**24, 0.0
    for _ in effort.some(range(60)):
        asked = rows(rng, int(rng.integers(1, 6)), 5)
        m = len(asked["y"])
        cells = rng.choice(["p", "q"], m) if unit == dg.Element() else None
        whole = accuracy.query(
            **asked, classes=CLASSES, epsilon=1.0, unit=unit, elements=cells, relation=relation
        )
        place = int(rng.integers(m))
        gone = asked["users"] == asked["users"][place]
        if unit == dg.Record():
            gone = np.arange(m) == place
        elif cells is not None:
            gone &= cells == cells[place]
        other = {name: part.copy() for name, part in asked.items()}
        if relation == "replace":
            for name in ("y", "predicted"):
                other[name][gone] = rng.choice([*CLASSES, "odd"], gone.sum())
        else:
            other = {name: part[~gone] for name, part in other.items()}
            cells = None if cells is None else cells[~gone]
        neighbour = accuracy.query(
            **other, classes=CLASSES, epsilon=1.0, unit=unit, elements=cells, relation=relation
        )
        assert isinstance(whole, AccuracyQuery)
        assert isinstance(neighbour, AccuracyQuery)
        billed = 2.0 if relation == "replace" else 1.0
        for one, two in zip(whole._sums(), neighbour._sums(), strict=True):
            moved = float(np.abs(one - two).sum()) / steps
            assert moved <= billed
            most = max(most, moved)
        parts = whole.parts
    assert most > 0.9 * billed
    right, base = parts.values()
    assert right.loss(1, relation, unit).pure + base.loss(1, relation, unit).pure <= 1.0


def test_rejected_release_has_read_nothing() -> None:
    y, predicted, users = (Unread(30, dtype="i8") for _ in range(3))
    with dg.budget(0.5, pure=0.5), pytest.raises(RefusedError):
        accuracy(y, predicted, users=users, classes=[0, 1], epsilon=1.0)
    query = accuracy.query(y, predicted, users=users, classes=[0, 1], epsilon=1.0)
    assert 0.999 < query.plan.guarantee.epsilon() <= 1.0


def test_a_copy_is_to_the_same_unit() -> None:
    y, users = np.ones(4), np.arange(4)
    query: Any = accuracy.query(y, y, users=users, classes=[0, 1], epsilon=1.0)
    with refuses("promise", "create a new query"):
        query.with_promise(Promise(dg.Record(), 1.0, 0.0, "zero_out"))
    # A user with several cells would have the same number of shares of 1.
    with refuses("unit", "without max_elements"):
        replace(query, promise=Promise(dg.User(max_elements=2), 1.0, 0.0, "zero_out"))


def test_a_share_of_a_budget_is_taken() -> None:
    asked = rows(np.random.default_rng(2), 300)
    with dg.budget(1.0, 1e-6) as whole:
        found = publish(accuracy.query(**asked, classes=CLASSES, share=0.25))
        assert 0.74 < whole.left < 0.76
    assert 0 < found.low < found.value < found.high < 1


def test_labels_outside_the_classes_are_wrong() -> None:
    y, predicted = np.array(["a", "odd", "b", None] * 500), np.array(["a", "odd", "a", None] * 500)
    found = accuracy(y, predicted, classes=["a", "b"], epsilon=100.0, random_state=1)
    assert found.value == pytest.approx(0.25, abs=0.01)
    assert found.base == pytest.approx(0.25, abs=0.01)
    assert round(found.units, -1) == 2000


def test_it_states_its_population() -> None:
    asked = rows(np.random.default_rng(3), 400)
    found = accuracy(**asked, classes=CLASSES, epsilon=2.0, random_state=1)
    said = str(found)
    assert said.startswith(
        f"Accuracy for the average user: {found.value:.4g}, 95% from {found.low:.4g} to "
    )
    assert "; always predicting the most common class: " in said
    assert "3 labels" in str(found.guarantee)
    assert said.splitlines()[1] == found.guarantee.summary
    told = json.loads(found.to_json())
    assert told["value"] == found.value
    assert told["guarantee"]["level"] == "user"
    assert isinstance(found, Accuracy)


@pytest.mark.parametrize(
    ("change", "name", "word"),
    [
        ({"predicted": np.array(["a"])}, "predicted", "one value per value of y"),
        ({"classes": ["a"]}, "classes", "two labels"),
        ({"classes": "ab"}, "classes", "list"),
        ({"unit": dg.User(max_elements=2), "elements": ["p"] * 4}, "unit", "without max_elements"),
        ({"epsilon": 0.0}, "epsilon", "positive and finite"),
        ({"users": np.arange(3)}, "users", "each row"),
        ({"y": np.ones((4, 2))}, "y", "one target"),
    ],
)
def test_invalid_arguments_are_rejected(change: dict[str, Any], name: str, word: str) -> None:
    asked: dict[str, Any] = {
        "y": np.array(["a", "b", "a", "b"]),
        "predicted": np.array(["a", "b", "b", "b"]),
        "users": np.arange(4),
        "classes": ["a", "b"],
        "epsilon": 1.0,
        **change,
    }
    with refuses(name, word):
        accuracy.query(**asked)
