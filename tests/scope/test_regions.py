"""Regions as sets: every operation agrees with membership, record by record."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.refusals import refuses

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.scope.regions import (
    EVERYTHING,
    LabelSet,
    Region,
    Side,
    Span,
    Values,
    atoms,
    comparable_regions,
    days,
    microseconds,
)

VALUES = (*range(6), None)
RECORDS = list(itertools.product(VALUES, VALUES))
COLUMNS = ("a", "b")

ends = st.one_of(st.none(), st.integers(-1, 7))
spans = st.builds(Span, st.just("whole"), ends, ends)
labels = st.builds(LabelSet, st.lists(st.integers(0, 5), max_size=4).map(tuple), st.booleans())


def sides(column: str) -> st.SearchStrategy[Side]:
    whole = st.just("BIGINT")
    made = st.builds(Side, st.just(column), st.one_of(spans, labels), st.booleans(), whole)
    return made.filter(bool)


regions = st.builds(
    lambda a, b: Region(tuple(side for side in (a, b) if side is not None)),
    st.one_of(st.none(), sides("a")),
    st.one_of(st.none(), sides("b")),
)


def lies_in(record: tuple[int | None, ...], region: Region) -> bool:
    """Whether a record is in a region, by definition."""
    for column, value in zip(COLUMNS, record, strict=True):
        side = region.side(column)
        if side is not None and not (side.missing if value is None else value in side.values):
            return False
    return True


def held(region: Region) -> set[Any]:
    return {record for record in RECORDS if lies_in(record, region)}


def apart(parts: tuple[Region, ...]) -> set[Any]:
    """The records of several regions, which must be disjoint."""
    found = [record for part in parts for record in held(part)]
    assert len(found) == len(set(found)), "two parts share a record"
    return set(found)


# An interval without a label has two parts; another column is removed from them as well.
TWO_PARTS = (
    Region((Side("a", Span("whole", 0, 6), kind="BIGINT"),)),
    Region((Side("a", LabelSet((2,), but=True)), Side("b", LabelSet((1,)), kind="BIGINT"))),
)


@example(*TWO_PARTS)
@given(regions, regions)
def test_operations_agree_with_sets(one: Region, two: Region) -> None:
    assert apart(one.both(two)) == held(one) & held(two)
    assert apart(one.minus(two)) == held(one) - held(two)
    assert held(one.around(two)) >= held(one) | held(two)
    # Certainty covers all integers; the records contain only a few.
    if not one.meets(two):
        assert not held(one) & held(two)
    if one.within(two):
        assert held(one) <= held(two)
    assert one.meets(two) == bool(one.both(two))
    assert one.within(two) == (not one.minus(two))


@given(st.lists(regions, min_size=1, max_size=5))
def test_atoms_are_the_classes_distinguished_by_regions(given_: list[Region]) -> None:
    found = atoms(given_)
    assert apart(tuple(found)) == set().union(*map(held, given_))
    for atom, places in found.items():
        for record in held(atom):
            assert places == {i for i, region in enumerate(given_) if lies_in(record, region)}


@given(regions)
def test_json_brings_a_region_back(region: Region) -> None:
    assert _validate.read_fields(Region, region.to_dict(), "a region") == region


@pytest.mark.parametrize("wrong", [{"sides": [{}]}, {"sides": 3}, {"side": []}, 3])
def test_foreign_json_is_rejected(wrong: Any) -> None:
    with pytest.raises(ParameterError):
        _validate.read_fields(Region, wrong, "a region")


def test_column_read_in_two_ways_distinguishes_nothing() -> None:
    texts, numbers = (
        Region((Side("a", values), Side("b", LabelSet(("x",)))))
        for values in (LabelSet(("07",)), Span("whole", 7, 8))
    )
    assert not texts.comparable(numbers)
    # The texts of one release may be the numbers of the other.
    assert texts.meets(numbers)
    assert not texts.within(numbers)
    assert comparable_regions([texts, numbers]) == [Region((Side("b", LabelSet(("x",))),))] * 2
    assert len(atoms([texts, numbers])) == 1
    # Non-numeric values are missing among numbers, and values among texts.
    missing = Region((Side("a", LabelSet(), missing=True, kind="BIGINT"),))
    assert not missing.meets(numbers)
    assert missing.meets(texts)
    assert _validate.read_fields(Region, missing.to_dict(), "a region") == missing
    (rest,) = numbers.minus(Region((Side("b", LabelSet(("y",))), *missing.sides)))
    assert rest == numbers
    # One text may be 1.00 or true as well.
    for kind in ("DECIMAL(9,2)", "BOOLEAN", "UUID"):
        typed = Region((Side("a", LabelSet(("1.00",)), kind=kind),))
        assert typed.meets(texts)
        assert comparable_regions([typed, texts])[0] == EVERYTHING


def test_empty_region_and_two_sides_of_column_are_rejected() -> None:
    for values in (LabelSet(), Span("whole", 3, 3), Span("time", 5, 4)):
        with refuses("region", "'a'"):
            Region((Side("a", values),))
    with pytest.raises(ParameterError, match="one side for each column"):
        Region((Side("a", LabelSet(("x",))), Side("a", LabelSet(("y",)))))


@pytest.mark.parametrize(
    ("values", "missing", "words"),
    [
        (days("2026-01-01", "2026-01-31"), False, "c from 2026-01-01 to 2026-01-31"),
        (days("2026-01-01", "2026-01-01"), False, "c 2026-01-01"),
        (days("2026-01-01", "2026-01-01"), True, "c 2026-01-01 or missing"),
        (Span("time", 0, 10**6), False, "c from 1970-01-01 00:00:00 to 1970-01-01 00:00:00.999999"),
        (Span("instant", 0, None), False, "c from 1970-01-01 (UTC)"),
        (Span("whole", 3, 9), False, "c from 3 to 8"),
        (Span("whole", None, 9), False, "c to 8"),
        (Span("whole", 3, 4), False, "c 3"),
        (LabelSet(("FR", "DE")), False, "c DE or FR"),
        (LabelSet(("FR",), but=True), True, "c not FR or missing"),
        (LabelSet(), True, "c missing"),
    ],
)  # fmt: skip
def test_words(values: Values, missing: bool, words: str) -> None:
    assert str(Region((Side("c", values, missing),))) == words


def test_everything() -> None:
    region = Region((Side("a", LabelSet(("x",))),))
    assert str(EVERYTHING) == "everything"
    assert EVERYTHING.everything
    assert region.within(EVERYTHING)
    assert EVERYTHING.minus(region) == (
        Region((Side("a", LabelSet(("x",), but=True), missing=True),)),
    )
    assert EVERYTHING.around(region) == EVERYTHING


def test_moments_are_counted_in_utc() -> None:
    plain = datetime(2026, 1, 1)
    assert microseconds(plain) == microseconds(plain.replace(tzinfo=UTC))
    ahead = plain.replace(tzinfo=timezone(timedelta(hours=2)))
    assert microseconds(plain) - microseconds(ahead) == 2 * 3600 * 10**6


def test_labels_are_a_list_of_writable_texts() -> None:
    for wrong, word in ((-1, "list"), ("ab", "list"), (("\ud800",), "UTF-8"), ((0.5,), "integers")):
        with refuses("labels", word):
            LabelSet(wrong)  # type: ignore[arg-type]


def test_ends_beyond_calendars_are_written() -> None:
    side = Side("at", Span("time", 5, 10**40))
    assert (
        str(Region((side,))) == "at from 1970-01-01 00:00:00.000005 to 9999-12-31 23:59:59.999999"
    )
    assert "0001-01-01" in str(Region((Side("at", Span("date", -(10**40), 0)),)))


def test_too_many_classes_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpgrain.scope.regions._MOST_ATOMS", 3)
    with refuses("regions", "3"):
        atoms([Region((Side("a", Span("whole", i, i + 1)),)) for i in range(4)])
