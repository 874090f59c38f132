"""Statistics as a table of them: the built-in ones, and one from outside the package."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.publishing import Promise, publish
from dpgrain.statistics.run import NoisySums
from dpgrain.statistics.statistic import (
    COUNT,
    MEAN,
    QUANTILES,
    STATISTICS,
    SUM,
    Statistic,
    register,
    statistic_by_name,
)
from dpgrain.statistics.sums_query import SumsQuery
from dpgrain.statistics.values import Moments
from dpgrain.testing.statistic_contract import HIGH, ITEMS, LOW, StatisticContract
from dpgrain.units import Relation, Unit

# -- a statistic from elsewhere: all that it takes ---


SQUARES = register(
    Statistic(
        "sum of squares",
        "What the squares of the numbers of all records add up to",
        title="sum of squares of",
        amount="sum",
    )
)


def sum_of_squares(
    table: dg.UserTable,
    value: str,
    high: float,
    *,
    by: str | None = None,
    unit: Unit,
    epsilon: float,
    delta: float,
    relation: Relation = "zero_out",
    clip: Any = "auto",
    domain: Any = None,
    random_state: Any = None,
) -> dg.Histogram:
    query = SquaresQuery.of(
        SQUARES, table, by, promise=Promise(unit, epsilon, delta, relation), clip=clip,
        domain=domain, value=value, measure=Moments.of(2), bounds=(0.0, high),
        random_state=random_state,
    )  # fmt: skip
    return publish(query)


class SquaresQuery(SumsQuery[dg.Histogram]):
    def release(self, measured: NoisySums) -> dg.Histogram:
        assert isinstance(self.bounds, tuple)
        squares = replace(measured, masses=measured.masses[:, 2:])
        return squares.as_histogram(scale=self.measure.unit_value(*self.bounds))


class TestSumOfSquares(StatisticContract):
    statistic = SQUARES

    def publish(self, table: dg.UserTable, **options: Any) -> dg.Release:
        return sum_of_squares(table, "x", HIGH, by="item", domain=list(ITEMS), **options)


# -- built-in ones ---


class TestCount(StatisticContract):
    statistic = COUNT

    def publish(self, table: dg.UserTable, **options: Any) -> dg.Release:
        return dg.count(table, by="item", domain=list(ITEMS), noise="gaussian", **options)


class TestMean(StatisticContract):
    statistic = MEAN

    def publish(self, table: dg.UserTable, **options: Any) -> dg.Release:
        domain = list(ITEMS)
        return dg.mean(
            table, "x", by="item", domain=domain, bounds=(LOW, HIGH), noise="gaussian", **options
        )


class TestQuantiles(StatisticContract):
    statistic = QUANTILES

    def publish(self, table: dg.UserTable, **options: Any) -> dg.Release:
        return dg.quantiles(table, "x", bounds=(LOW, HIGH), bins=16, **options)


USERS = {"user": dg.User()}


def test_search_finds_a_statistic_with_excessive_changes() -> None:
    class Broken(TestCount):
        units = USERS

        def exact_sums(self, rows: Any, **options: Any) -> Any:
            sums, release = super().exact_sums(rows, **options)
            return 1.01 * sums, release

    with pytest.raises(AssertionError):
        Broken().test_no_neighbours_exceed_the_charged_loss()


@pytest.mark.slow
def test_search_finds_a_constant_statistic() -> None:
    class Still(TestCount):
        units = USERS

        def exact_sums(self, rows: Any, **options: Any) -> Any:
            sums, release = super().exact_sums(rows, **options)
            return 0 * sums, release

    with pytest.raises(AssertionError, match="at all"):
        Still().test_no_neighbours_exceed_the_charged_loss()


def test_names_belong_to_one_statistic() -> None:
    assert {name: str(each) for name, each in STATISTICS.items()} == {n: n for n in STATISTICS}
    assert register(SUM) is SUM
    with refuses("name", "'mean'"):
        register(Statistic("mean"))
    assert "mode" not in STATISTICS
    assert statistic_by_name("mode") == Statistic("mode")
