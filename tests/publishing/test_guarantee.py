"""The promise in one sentence and as a curve."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refuses

import dpgrain as dg
from dpgrain._formatting import rounded_up
from dpgrain.accounting import Contribution, Event, Gaussian, Laplace, PureDP
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.receipt import Receipt
from dpgrain.scope.partitions import Partition, Rule
from dpgrain.scope.regions import LabelSet, Region, Side, days
from dpgrain.units import Level, Relation, Unit


def promise(
    level: Level = "element", relation: Relation = "zero_out", event: Event | None = None
) -> Guarantee:
    event = event or Gaussian(5.0, Contribution(block=level))
    elements = "the column 'topic'" if level == "element" else ""
    return Guarantee(level, elements, relation, 1e-6, event, (Fact("items", (9,)),))


def test_text_that_cannot_be_written_is_refused() -> None:
    """Halves of letters are text to JSON, and have neither a hash nor bytes."""
    values = {**promise().to_dict(), "elements": "the column '\ud800'"}
    with refuses("elements", "valid UTF-8 text"):
        Guarantee.from_json(json.dumps(values))


@pytest.mark.parametrize(
    ("level", "relation", "words"),
    [
        ("record", "zero_out", "adding or removing one record"),
        ("record", "replace", "replacing one record with another"),
        (
            "element",
            "zero_out",
            "adding or removing all of one user's records in one cell of the partition by the column "
            "'topic' (the user remains enrolled)",
        ),
        (
            "element",
            "replace",
            "replacing all of one user's records in one cell of the partition by the column 'topic' "
            "with other records in the same cell",
        ),
        (
            "user",
            "zero_out",
            "adding or removing all of one user's records (the user remains enrolled)",
        ),
        ("user", "replace", "replacing all of one user's records with other records"),
    ],
)  # fmt: skip
def test_sentence(level: Level, relation: Relation, words: str) -> None:
    text = str(promise(level, relation))
    epsilon, factor = ("0.834118", "2.31") if relation == "zero_out" else ("1.21197", "3.37")
    assert text == (
        f"{level.capitalize()}-level differential privacy with ε = {epsilon} and δ = 10⁻⁶: {words} "
        f"changes the probability of any outcome by at most a factor of e^ε = {factor}, plus δ = "
        "10⁻⁶. Assumed public and fixed in advance: the list of 9 items."
    )


def test_the_parts_of_a_sentence_are_in_order() -> None:
    scope = Region((Side("day", days("2025-03-01", "2025-05-31")),))
    told = Guarantee(
        "user", "", "zero_out", 0.0, PureDP(1.0), (Fact("bins"),), user="reader", scope=scope,
        provenance="as given", receipts=(Receipt("1f", "loans", 2, "9c"),),
    )  # fmt: skip
    assert str(told) == (
        "User-level differential privacy with ε = 1 and δ = 0: adding or removing all of one user's "
        "records (the user remains enrolled) changes the probability of any outcome by at most a "
        "factor of e^ε = 2.72. Users are identified by 'reader'; rows without a user are dropped. Only "
        "these records are read: day "
        "from 2025-03-01 to 2025-05-31. The rows come from a query, frame or array that dpgrain did "
        "not build: the guarantee assumes that no user's data determined the rows of other users, or "
        "whether the rows could be read. Assumed public and fixed in advance: the bins. Charged on "
        "line 2 of ledger 'loans' (id 1f, hash 9c)."
    )
    nothing = replace(told, delta=0.0, event=Gaussian(1.0, Contribution("user")))
    assert "changes the probability of any outcome without a limit at this δ." in str(nothing)
    braces = Guarantee("element", "{elements}", "zero_out", 1e-6, Gaussian(5.0))
    assert "partition by {elements} (the user" in str(braces)


def test_the_sentence_of_a_seeded_release_begins_with_a_warning() -> None:
    seeded = Guarantee("user", "", "zero_out", 1e-6, Gaussian(5.0), private=False)
    assert str(seeded).startswith("NOT PRIVATE: the random seed is known. With secret")
    assert not (seeded + promise("user", event=Gaussian(1.0))).private


def test_the_brief_promise_has_all_that_decides_what_it_is() -> None:
    """What differs in unit, partition, relation, rows, region or receipt is printed otherwise."""
    told = promise("element", "replace")
    assert told.summary == (
        f"ε = {rounded_up(told.epsilon(), 6)}, δ = 10⁻⁶ per element ('topic'; replace)."
    )
    january = Region((Side("day", days("2026-01-01", "2026-01-31")),))
    others = (
        promise("user", "replace"),
        promise("element", "zero_out"),
        replace(told, elements="the column 'page'"),
        replace(told, delta=1e-7),
        replace(told, provenance="as given"),
        replace(told, private=False),
        replace(told, scope=january),
        replace(told, receipts=(Receipt("1f", "visits", 7, "9c"),)),
    )
    lines = [told.summary, *(other.summary for other in others)]
    assert len({*lines}) == len(lines)
    assert "only rows with day from 2026-01-01 to 2026-01-31" in lines[-2]
    assert lines[-1].endswith("; line 7 of ledger 'visits').")
    mapping = Partition((Rule("title", "stated", mark="97598022", cells=12),))
    mapped = replace(told, elements="a mapping of 49 items to 12 cells", partition=mapping)
    assert "(12 public cells #97598022 of 'title'; replace)" in mapped.summary
    assert "a mapping of 49 items to 12 cells" in str(mapped)
    owned = replace(told, user="'sender' and 'receiver'")
    assert "; users 'sender' and 'receiver'; " in owned.summary
    assert "Users are identified by 'sender' and 'receiver'." in str(owned)


def test_rows_without_a_user_are_known_only_if_they_were_read() -> None:
    by_hand = Guarantee("user", "", "zero_out", 0.0, PureDP(1.0), user="reader")
    said = "rows without a user are dropped"
    assert "Users are identified by 'reader'." in str(by_hand)
    assert said not in str(by_hand)
    for provenance in ("table", "checked", "as given"):
        assert said in str(replace(by_hand, provenance=provenance))


@given(st.floats(1e-12, 1e12))
def test_printed_epsilon_is_never_below_the_true_one(epsilon: float) -> None:
    shown = Decimal(rounded_up(epsilon, 6).replace(",", ""))
    assert shown >= Decimal(epsilon) * (1 - Decimal("1e-15"))
    assert shown <= Decimal(epsilon) * (1 + Decimal("1.1e-5"))


def test_printed_epsilon_of_whole_and_odd_values() -> None:
    assert [rounded_up(e, 6) for e in (0, 1.0, 0.5, 2.0, 10.0, 100.0, math.inf)] == [
        "0", "1", "0.5", "2", "10", "100", "∞",
    ]  # fmt: skip
    assert rounded_up(1.0000001, 6) == "1.00001"
    assert rounded_up(0.83370001, 6) == "0.833701"


def test_composition() -> None:
    both = promise() + promise()
    assert both.delta == 2e-6
    assert both.public == (Fact("items", (9,)),)
    mu = math.sqrt(2) / 5.0
    assert both.epsilon() == pytest.approx(Gaussian(1 / mu).epsilon(2e-6), rel=1e-9)
    three = both + promise()
    assert three.epsilon(1e-6) == pytest.approx(Gaussian(5.0, count=3).epsilon(1e-6), rel=1e-9)
    assert promise().epsilon(1e-6) < both.epsilon(1e-6) < three.epsilon(1e-6)


def test_what_does_not_compose() -> None:
    mine = promise()
    others = [
        promise("user"),
        promise("element", "replace"),
        Guarantee("element", "another partition", "zero_out", 1e-6, mine.event),
    ]
    for other in others:
        with refuses("guarantees", "compose"):
            mine + other


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(5.0, Contribution(max_elements=3, cells=9, record_size=0.25)),
        Laplace(2.0),
        Gaussian(5.0) + Gaussian(2.0, Contribution(layout="shared")) + PureDP(0.1, level="element"),
    ],
)
def test_json_round_trip(event: Event) -> None:
    before = promise(event=event)
    text = before.to_json()
    assert json.loads(text)["elements"] == "the column 'topic'"
    after = Guarantee.from_json(text)
    assert after == before
    assert str(after) == str(before)


def test_the_curve_by_granularity() -> None:
    disjoint = promise(event=Gaussian(5.0))
    shared = promise(event=Gaussian(5.0, Contribution(layout="shared")))
    for k in (1, 2, 4, 9):
        assert disjoint.epsilon(units=k) == pytest.approx(
            Gaussian(5.0 / math.sqrt(k)).epsilon(1e-6), rel=1e-12
        )
        assert shared.epsilon(units=k) == pytest.approx(Gaussian(5.0 / k).epsilon(1e-6), rel=1e-12)
        assert disjoint.epsilon(unit=dg.User(k)) == disjoint.epsilon(units=k)
    pure = Guarantee("element", "cells", "zero_out", 0.0, Laplace(2.0))
    assert [pure.epsilon(units=k) for k in (1, 2, 3)] == [0.5, 1.0, 1.5]
    assert disjoint.epsilon(relation="replace") > disjoint.epsilon()


@pytest.mark.parametrize(
    ("level", "unit"),
    [
        ("element", dg.User()),
        ("record", dg.User()),
        ("record", dg.Element()),
        ("record", dg.User(3)),
    ],
)
def test_nothing_is_promised_where_nothing_bounds_it(level: Level, unit: Unit) -> None:
    assert promise(level).epsilon(unit=unit) == math.inf


def test_wrong_arguments() -> None:
    with refuses("level"):
        Guarantee("group", "", "zero_out", 1e-6, Gaussian(1.0))  # type: ignore[arg-type]
    with refuses("relation"):
        promise(relation="add")  # type: ignore[arg-type]
    with refuses("delta", "1.0"):
        Guarantee("user", "", "zero_out", 1.0, Gaussian(1.0))
    for wrong in (0, -1, 1.5, True):
        with refuses("units", "integer"):
            promise().epsilon(units=wrong)  # type: ignore[arg-type]
    with refuses("delta"):
        promise().epsilon(2.0)
    with refuses("unit"):
        promise().epsilon(unit="user")  # type: ignore[arg-type]


def test_parts_of_one_element_in_two_releases_compose() -> None:
    # Monday and Tuesday lie in one week, which is the element: whoever is in both pays for both.
    weeks = Partition((Rule("day", "week"),))

    def of_a_day(day: str) -> Guarantee:
        event, scope = Gaussian(5.0), Region((Side("day", days(day, day)),))
        return Guarantee(
            "element", str(weeks), "zero_out", 1e-6, event, scope=scope, partition=weeks
        )

    monday, tuesday, later = map(of_a_day, ("2026-11-23", "2026-11-24", "2026-12-01"))
    both = Gaussian(5.0, count=2).epsilon(1e-6)
    assert (monday + tuesday).epsilon(1e-6) == pytest.approx(both)
    assert (monday + later).epsilon(1e-6) == pytest.approx(Gaussian(5.0).epsilon(1e-6))
    assert monday.region_of_units.within(tuesday.region_of_units)


def test_the_brief_guarantee_lists_every_filter() -> None:
    one = Guarantee("record", "", "zero_out", 0.0, PureDP(1.0))
    small, large = (Fact("rows-where", (words,)) for words in ("amount < 9", "amount > 3"))
    region = Region((Side("branch", LabelSet(("East",))),))
    both = replace(one, public=(small, large), scope=region)
    assert both.summary == (
        "ε = 2, δ = 0 per record (zero_out; only rows with branch East; only rows where amount < 9; "
        "only rows where amount > 3)."
    )
    # A filter of one of two releases does not hold for the other.
    for composed in (both + replace(one, public=(large,)), replace(one, public=(large,)) + both):
        assert "; only rows where amount > 3)" in composed.summary
        assert "amount < 9" not in composed.summary
        assert "some releases use only rows where amount < 9" in str(composed)
    three = both + one + one
    assert {fact.kind for fact in three.public} == {"some-rows-where"}
    assert (one + (one + both)).public == three.public


def test_a_filtered_table_is_printed_with_its_filter() -> None:
    table = dg.read(pa.table({"who": [1, 2], "paid": [3.0, 40.0]}), user="who")
    rows = table.filter("paid > 30")
    for made in (rows, rows.per_user(total="total(paid)")):
        release = dg.count(made, unit=dg.User(), clip=1.0, epsilon=1, random_state=1)
        assert "; only rows where paid > 30)" in release.guarantee.summary
