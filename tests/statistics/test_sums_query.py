"""Invalid queries raise a one-sentence error, before anything is read."""

from __future__ import annotations

import dataclasses
import datetime
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from tests.publishing.cases import Unread
from tests.refusals import refuses
from tests.statistics import cases

import dpgrain as dg

Row: TypeAlias = tuple[int | None, str | None, str | None, float | None]  # who, item, cell, x
Pair: TypeAlias = tuple[list[Row], list[Row]]
Values: TypeAlias = NDArray[np.float64]


Ask: TypeAlias = Callable[[dg.UserTable], Any]


def unread(**options: Any) -> dg.UserTable:
    return dataclasses.replace(cases.table_of([]), source=Unread(), **options)


GOOD: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6}
SUM: Any = dg.sum
MEAN: Any = dg.mean
QUANTILES: Any = dg.quantiles
TOP: Any = dg.top
HELD: Any = dg.elements_per_user
COUNT: Any = dg.count
WRONG: list[Any] = [
    *[
        (ask, ("x",), {"bounds": bounds}, words)
        for ask in (SUM, MEAN, QUANTILES, dg.variance)
        for bounds, words in [
            ((2, 1), "bounds must be finite and increasing"),
            ((1, 1), "bounds must be finite and"),
            ((0, math.inf), "bounds must be finite"),
            ((math.nan, 1), "bounds must be finite"),
            ((-1e308, 1.7e308), "bounds must be finite"),
            (3, "bounds must be two numbers"),
            ((1,), "bounds must be two numbers"),
            ((0, 10**400), "bounds must be two numbers"),
            ((1, 2, 3), "two numbers"),
            (("a", "b"), "two numbers"),
        ]
    ],
    *[
        (QUANTILES, ("x", q), {"bounds": (0, 1)}, words)
        for q, words in [
            ([1.5], r"q must contain ranks in \[0, 1\]"),
            ([-0.1], "q must contain ranks"),
            ([], "q must contain"),
            ([math.nan], "q must contain"),
            ([0.5, 0.5], "q must contain distinct ranks"),
            (0.5, "q must be a list"),
            (["x"], "q must be a list"),
        ]
    ],
    (QUANTILES, ("x",), {"bounds": (0, 1), "bins": 10}, "bins must be 16, 256 or 4096"),
    *[
        (ask, arguments, options, words)
        for ask, arguments in [(COUNT, ()), (SUM, ("x",)), (MEAN, ("x",)), (QUANTILES, ("x",))]
        for options, words in [
            ({"by": "nothing"}, "'nothing' is not a column"),
            ({"by": ["item", "item"]}, "different columns"),
            ({"by": 3}, "by must be a column, a list of columns or None"),
            ({"by": "x"}, "cannot be used as a key"),
            ({"by": "item", "domain": {"cell": ["p"]}}, "domain"),
            (
                {"by": ["item", "cell"], "domain": {"nothing": ["p"]}},
                "domain keys must be among item, cell, not 'nothing'",
            ),
            ({"by": ["item", "cell"], "domain": [("a",)]}, "domain must have rows of 2 values"),
            ({"domain": ["a"]}, "domain requires by="),
            ({"by": "item", "noise": "laplace"}, "domain is required with Laplace noise"),
            ({"noise": "gaussian", "delta": 0.0}, "delta must be above 0"),
            ({"noise": "uniform"}, "noise must be one of"),
            ({"unit": dg.Element(cases.MAPPING)}, "there is no item to apply it to"),
            ({"unit": dg.Element()}, "requires a partition"),
            ({"unit": dg.Element("nothing")}, "'nothing' is not a"),
            ({"epsilon": 0}, "epsilon must be positive and finite"),
            ({"delta": 2}, "delta must be in"),
            ({"relation": "swap"}, "relation must be"),
            ({"clip": -1}, "clip must be positive and finite"),
            ({"max_items": 0}, "max_items must be"),
            ({"random_state": "x"}, "random_state must be"),
            ({"unit": "user"}, "unit must be"),
        ]
    ],
    (SUM, ("item",), {}, "must be numeric, not text"),
    (MEAN, ("nothing",), {}, "'nothing' is not a column"),
    (COUNT, ("cell",), {}, "must be numeric, not text"),
    (COUNT, (["x"],), {}, "a column name"),
    (
        MEAN,
        ("x",),
        {"unit": dg.Record(), "clip": 0.5, "bounds": (0, 1)},
        "clip must be at least 1 for Record",
    ),
    (
        QUANTILES,
        ("x",),
        {"unit": dg.Record(), "clip": 1.0, "bounds": (0, 1)},
        "clip must be at least 1.7",
    ),
    (TOP, ("item",), {"k": 0}, "k must be"),
    (TOP, ("item",), {"k": 1.5}, "k must be"),
    (TOP, ("item",), {"method": "best"}, "method must be one of"),
    (TOP, ("item",), {"method": "laplace"}, "domain is required"),
    (TOP, ("item",), {"method": "gumbel", "k": 1}, "requires a public domain"),
    (TOP, ("item",), {"method": "gumbel", "domain": cases.ITEMS}, "requires k"),
    (TOP, ("item",), {"method": "truncated", "domain": cases.ITEMS}, "for unknown items"),
    (TOP, ("item",), {"counts": False, "domain": cases.ITEMS}, "leave out domain="),
    (
        TOP,
        (["item", "cell"],),
        {"counts": False, "domain": {"item": cases.ITEMS}},
        "public for all columns or for none",
    ),
    (
        TOP,
        (["item", "cell"],),
        {"method": "truncated", "domain": {"item": cases.ITEMS}},
        "public for all columns",
    ),
    (TOP, ([],), {}, "item must be at least one column"),
    (TOP, ("item",), {"delta": 0.0}, "delta"),
    (TOP, ("item",), {"delta": 0.0, "domain": cases.ITEMS, "method": "gaussian"}, "delta"),
    (HELD, (), {}, "by (must be|is required; pass) the column"),
    (HELD, ("nothing",), {}, "'nothing' is not a column"),
    (
        HELD,
        (),
        {"unit": dg.Element(cases.MAPPING)},
        "by (must be|is required; pass) the column",
    ),
    (HELD, (cases.MAPPING,), {}, "by (must be|is required; pass) the column"),
    (HELD, ("item",), {"edges": [3, 2]}, "increasing"),
    (HELD, ("item",), {"edges": []}, "edges must be"),
    (HELD, ("item",), {"edges": [0]}, "edges must be"),
    (HELD, ("item",), {"edges": [1.5]}, "edges must be"),
    (HELD, ("item",), {"edges": 5}, "edges must be"),
    (HELD, ("item",), {"delta": 0.0}, "delta"),
    (HELD, ("item",), {"noise": "x"}, "noise must be one of"),
    (HELD, ("item",), {"unit": "x"}, "unit must be"),
    (HELD, ("item",), {"epsilon": -1}, "epsilon must be"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_invalid_query_raises_one_sentence_before_reading(number: int) -> None:
    ask, arguments, options, words = WRONG[number]
    with pytest.raises((dg.ParameterError, dg.SchemaError), match=words) as caught:
        ask(unread(), *arguments, **{**GOOD, **options})
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    assert len(text) < 300


@pytest.mark.parametrize(
    "ask",
    [
        lambda t, **o: dg.count(t, **o),
        lambda t, **o: dg.mean(t, "x", **o),
        lambda t, **o: dg.top(t, "item", **o),
        lambda t, **o: dg.elements_per_user(t, "item", **o),
    ],
    ids=["count", "mean", "top", "held"],
)
def test_table_without_users_counts_records(ask: Any) -> None:
    for unit in (dg.User(), dg.Element("item")):
        with pytest.raises(
            dg.ParameterError, match=r"pass user= to dg\.read|user (must|is required)"
        ):
            ask(unread(user=None), **{**GOOD, "unit": unit})
    with refuses("table", "come"):
        ask({}, **GOOD)


@pytest.mark.parametrize(
    ("unit", "by", "law"),
    [
        (dg.User(), None, "laplace"),
        # 2 corners of n groups: (2·5)^¼·√2 is below the Gaussian's 4.22, (2·60)^¼·√2 is not.
        (dg.User(), 5, "laplace"),
        (dg.User(), 60, "gaussian"),
        # Laplace noise for 20 elements of a user costs 20, not √20, times the noise for one.
        (dg.User(max_elements=20), 5, "gaussian"),
        (dg.Element("item"), 5, "gaussian"),
        (dg.Record(), 60, "laplace"),
    ],
)
def test_noise_distribution_is_the_less_lossy_one(unit: Any, by: int | None, law: str) -> None:
    rows: list[Row] = [(u, f"i{u % 3}", None, 1.0) for u in range(9)]
    domain = None if by is None else [f"i{number}" for number in range(by)]
    found = dg.mean(
        cases.table_of(rows), "x", by="item" if by else None, domain=domain, unit=unit,
        epsilon=1.0, delta=1e-6, bounds=(0, 1), random_state=0,
    )  # fmt: skip
    assert found.metadata.noise == law


def test_unknown_groups_get_gaussian_noise() -> None:
    rows: list[Row] = [(u, "a", None, 1.0) for u in range(900)]
    found = dg.mean(
        cases.table_of(rows), "x", by="item", unit=dg.User(), epsilon=1.0, delta=1e-6,
        bounds=(0, 1), random_state=0,
    )  # fmt: skip
    assert (found.metadata.noise, len(found)) == ("gaussian", 1)


@pytest.mark.parametrize(
    ("ask", "unit"),
    [
        (lambda t, **o: dg.count.query(t, **o), "records"),
        (lambda t, **o: dg.count.query(t, "x", **o), "records"),
        (lambda t, **o: dg.sum.query(t, "x", bounds=(0, 9), **o), "x"),
        (lambda t, **o: dg.histogram.query(t, "item", weight="x", domain=["a"], **o), "x"),
        (lambda t, **o: dg.top.query(t, "item", method="gaussian", **o), "holders"),
    ],
)
def test_expected_error_names_the_sum(ask: Any, unit: str) -> None:
    rows = pa.table({"who": [1, 2], "item": ["a", "b"], "x": [1.0, 2.0]})
    asked = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6}
    assert ask(dg.read(rows, user="who"), **asked).plan.expected.unit == unit


@pytest.mark.parametrize(
    ("ask", "fact"),
    [
        (lambda t, o: dg.sum(t, "x", bounds=(0, 150), clip=400.0, **o), "400 × 150 = 60,000"),
        (lambda t, o: dg.count(t, clip=3.0, **o), "the clipping bound 3"),
        (lambda t, o: dg.histogram(t, "x", edges=[1, 2, 5], **o), "the list of 3 edges of 'x'"),
        (lambda t, o: dg.distribution(t, "x", [1], **o), "the list of 1 threshold of 'x'"),
        (
            lambda t, o: dg.sum(t, "x", bounds=(0, 9), **{**o, "unit": dg.Record()}),
            "each record adds at most 9",
        ),
        (
            lambda t, o: dg.count(t.per_user(by="x", n="count()"), by="x", domain=[1], **o),
            "one row per person and x, with n (count())",
        ),
    ],
)
def test_public_facts_of_bounds_and_edges(ask: Any, fact: str) -> None:
    table = dg.read(pa.table({"who": [1, 2], "x": [1, 2]}), user="who")
    release = ask(table, {"unit": dg.User(), "epsilon": 1.0, "random_state": 1, "noise": "laplace"})
    assert fact in str(release.guarantee)


# -- queries as values ---

QUERIES: dict[str, Callable[[dg.UserTable], dg.Query[Any]]] = {
    "histogram": lambda table: dg.histogram.query(table, "item", weight="x", **GOOD),
    "bins": lambda table: dg.histogram.query(table, "x", edges=[1, 2], nonnegative=True, **GOOD),
    "count": lambda table: dg.count.query(
        table, by="month(at)", domain=[datetime.date(2024, 1, 1)], **GOOD
    ),
    "sum": lambda table: dg.sum.query(table, "x", **GOOD),
    "mean": lambda table: dg.mean.query(table, "x", bounds=(0, 9), **GOOD),
    "std": lambda table: dg.std.query(table, "x", **GOOD),
    "correlation": lambda table: dg.correlation.query(
        table, "x", "y", bounds=(0, 9), other_bounds=(0, 9), **GOOD
    ),
    "quantiles": lambda table: dg.quantiles.query(table, "x", **GOOD),
    "distribution": lambda table: dg.distribution.query(table, "x", **GOOD),
    "top": lambda table: dg.top.query(table, "item", k=2, domain=["a", "b"], **GOOD),
    "names": lambda table: dg.top.query(table, "item", counts=False, method="gaussian", **GOOD),
    "truncated": lambda table: dg.top.query(table, "item", method="truncated", **GOOD),
    "elements": lambda table: dg.elements_per_user.query(table, "item", **GOOD),
}


def fields_of(value: Any) -> Iterator[Any]:
    """All values in a query, at any depth of dataclasses and tuples."""
    yield value
    parts: Sequence[Any] = value if isinstance(value, tuple | list) else ()
    if dataclasses.is_dataclass(value):
        parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
    for part in parts:
        yield from fields_of(part)


@pytest.mark.parametrize("name", QUERIES)
def test_queries_of_equal_parameters_are_equal(name: str) -> None:
    columns = {"who": [1], "item": ["a"], "x": [1.0], "y": [2.0], "at": [datetime.date(2024, 1, 1)]}
    table = dg.read(pa.table(columns), user="who")
    query = QUERIES[name](table)
    assert query == QUERIES[name](table)
    assert query != query.with_promise(dataclasses.replace(query.promise, epsilon=0.5))
    assert not [value for value in fields_of(query) if inspect.isroutine(value)]


def test_queries_of_shared_records_are_equal() -> None:
    mail = pa.table({"sender": [1, 2], "receiver": [2, 1], "topic": ["a", "b"]})
    table = dg.read(mail, user=["sender", "receiver"])
    query = partial(dg.count.query, table, by="topic", domain=["a", "b"], **GOOD)
    assert query(clip=2.0) == query(clip=2.0)
    assert query(clip=2.0) != query(clip=3.0)
