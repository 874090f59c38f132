"""A guarantee in full, and in one line."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpgrain as dg
from dpgrain._formatting import rounded_up
from dpgrain.accounting import Contribution, Event, Gaussian, PureDP
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.receipt import Receipt
from dpgrain.scope.partitions import Partition, Rule
from dpgrain.scope.regions import LabelSet, Region, Side, days
from dpgrain.units import Level, Relation


def promise(
    level: Level = "element", relation: Relation = "zero_out", event: Event | None = None
) -> Guarantee:
    event = event or Gaussian(5.0, Contribution(block=level))
    elements = "the column 'topic'" if level == "element" else ""
    return Guarantee(level, elements, relation, 1e-6, event, (Fact("items", (9,)),))


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
