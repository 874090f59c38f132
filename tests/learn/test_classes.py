"""Classes match their own text, in estimators and after loading."""

from __future__ import annotations

import datetime
import itertools
import math
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from tests.inputs import cases

from dpgrain.accounting import Contribution, Selection
from dpgrain.accounting.events.partition_selection import selection_leak
from dpgrain.inputs.array_blocks import arrange
from dpgrain.inputs.labels import key
from dpgrain.learn import LinearSVC, LogisticRegression
from dpgrain.learn import load as load_model
from dpgrain.learn.classes import Targets, select_labels
from dpgrain.noise import SeededSource
from dpgrain.units import User

Array: TypeAlias = NDArray[Any]


@pytest.mark.slow
@pytest.mark.parametrize("model", [LogisticRegression, LinearSVC])
@pytest.mark.parametrize(
    ("stated", "kept", "other"), [("7", "7", "007"), ("007", "007", "7"), (7, "7", "007")]
)
def test_classes_match_their_own_text(model: Any, stated: Any, kept: str, other: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.where(X[:, 0] > 0, kept, "no").astype(object)

    def fitted(y: Any) -> Array:
        made = model(classes=[stated, "no"], rounds=3, random_state=0).fit(X, y)
        found: Array = made.coef_
        return found

    odd = y.copy()
    odd[5] = "neither"
    for spelling in [other, *(text for text in (*cases.SEVEN, *cases.ONE) if text != kept)]:
        strange = y.copy()
        strange[5] = spelling
        for column in (
            strange,
            strange.tolist(),
            pd.Series(strange),
            pd.Series(strange, dtype="category"),
        ):
            assert np.array_equal(fitted(column), fitted(odd)), spelling


@pytest.mark.slow
def test_numbers_as_classes_of_a_column_of_text() -> None:
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = (X[:, 0] > 0).astype(int)

    def fitted(y: Any, classes: list[Any]) -> LogisticRegression:
        return LogisticRegression(classes=classes, rounds=3, random_state=0).fit(X, y)

    usual = fitted(y, [0, 1])
    for column in (
        y.astype(str),
        y.astype(object),
        y.astype(float),
        y > 0,
        [*map(str, y)],
        [*map(Decimal, y.tolist())],
    ):
        assert np.array_equal(fitted(column, [0, 1]).coef_, usual.coef_)
    assert np.array_equal(fitted((y > 0).astype(str), [False, True]).coef_, usual.coef_)
    assert np.array_equal(fitted(np.where(y, "2.5", "0"), [0, 2.5]).coef_, usual.coef_)
    # One malformed cell changes no other, in a list or if it turns numbers into text.
    for cells in (y.tolist(), y.astype(str).tolist()):
        odd, missing = [*cells], [*cells]
        odd[7], missing[7] = "?", None
        assert np.array_equal(fitted(odd, [0, 1]).coef_, fitted(missing, [0, 1]).coef_)
        assert np.array_equal(fitted(np.array(odd), [0, 1]).coef_, fitted(missing, [0, 1]).coef_)
    for odd_cell in (*cases.HEX, *cases.ONE[1:], Decimal("1e99999999"), "1" * 5000):
        odd = [*y.tolist()]
        odd[7] = odd_cell
        missing[:] = y.tolist()
        missing[7] = None
        assert np.array_equal(fitted(odd, [0, 1]).coef_, fitted(missing, [0, 1]).coef_), odd_cell


@pytest.mark.parametrize(
    "classes",
    [["7", "007"], [7, "7"], [0, 1], [0.5, 1], [False, True], [1, 1.5, "1"], [2**63, 2**64 - 1],
     [2**53, 2**53 + 1, 0.5], ["1e999999", "12e34567890abcde"]],
    ids=str,
)  # fmt: skip
def test_loaded_model_has_the_same_labels(classes: list[Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), [classes[i % len(classes)] for i in range(300)]
    model = LogisticRegression(classes=classes, rounds=3, random_state=0).fit(X, y)
    again = load_model(model.save(tmp_path / "model.json"))
    for fitted in (model, again):
        assert {key(label) for label in fitted.classes_} == {key(label) for label in classes}
    assert list(map(key, again.classes_)) == list(map(key, model.classes_))
    assert list(map(key, again.predict(X))) == list(map(key, model.predict(X)))
    refitted = again.set_params(random_state=0).fit(X, y)
    assert np.array_equal(refitted.coef_, model.coef_)


#: Labels that are equal, of several types; and another one of their kind.
EQUAL: list[tuple[list[Any], Any]] = [
    ([1, 1.0, True, 1 + 0j, Decimal(1), np.complex128(1), np.int8(1)], 2),
    ([datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), np.datetime64("2020-01-01", "ns"),
      pd.Timestamp("2020-01-01")], datetime.date(2021, 1, 1)),
    ([math.inf, np.float32("inf"), Decimal("Infinity")], 2),
    ([(1, "a"), (True, "a"), (1.0, b"a")], (2, "b")),
    (["a", b"a", np.str_("a")], "b"),
    ([2**53 + 1, Decimal(2**53 + 1)], float(2**53)),
    ([0.1, np.float64(0.1)], Decimal("0.1")),
]  # fmt: skip


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("case", EQUAL, ids=lambda case: repr(case[0][0]))
def test_published_labels_do_not_follow_the_first_row(case: tuple[list[Any], Any]) -> None:
    several, other = case
    X = np.random.default_rng(0).normal(size=(2000, 2))
    X[0, 0] = 1.0
    said = set()
    for first, rest in itertools.permutations(several, 2):
        y = np.empty(len(X), dtype=object)
        for place, x in enumerate(X[:, 0]):
            y[place] = rest if x > 0 else other
        y[0] = first
        model = LogisticRegression(epsilon=5.0, rounds=1, random_state=0).fit(X, y)
        found = model.classes_
        assert {key(label) for label in found} == {key(first), key(other)}
        said.add((str(found.dtype), repr(found.tolist()), repr(model.coef_.tolist())))
    assert len(said) == 1


@pytest.mark.parametrize("threshold", [2.7, 3.0, 3.2])
def test_single_unit_label_is_selected_as_rarely_as_charged(threshold: float) -> None:
    event, units = Selection(0.5, threshold, 1, Contribution("user", "shared")), 50_000
    # Two labels that many have are named in any case.
    values = np.concatenate([np.arange(float(units)), np.repeat(units + np.arange(2.0), 1000)])
    rows = arrange(len(values), np.arange(len(values)), None, User())
    keys = tuple(("text", str(code)) for code in range(units + 2))
    named, _ = select_labels(Targets(values, labels=keys), rows, event, SeededSource(3))
    most = units * selection_leak(threshold, 0.5, 1)
    assert len(named) - 2 <= most + 5 * math.sqrt(most) + 1
