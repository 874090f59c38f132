"""Conformance suite of statistics: :class:`StatisticContract`, for the tests of a new statistic."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from dpgrain._types import FloatArray, IntArray
from dpgrain.errors import ParameterError
from dpgrain.publishing import budget, draws
from dpgrain.statistics import run
from dpgrain.statistics.release import Release
from dpgrain.statistics.run import NoisySums
from dpgrain.statistics.statistic import STATISTICS, Statistic
from dpgrain.tables.table import UserTable, read
from dpgrain.units import PLAIN_UNITS, RELATIONS, Element, Record, Relation, Unit, User

Row = tuple[int, str, str, float]  # who, item, cell, x
Pair = tuple[list[Row], list[Row]]

ITEMS, CELLS = ("a", "b", "c"), ("p", "q")
# Bounds of statistics of numbers.
LOW, HIGH = -4.0, 4.0
UNITS: dict[str, Unit] = {
    "record": Record(),
    "item": Element("item"),
    "cell": Element("cell"),
    "user": User(),
}
_ROUNDING = 1e-9
# Invalid options.
_REFUSED: tuple[dict[str, Any], ...] = (
    {"epsilon": -1.0},
    {"delta": 2.0},
    {"relation": "other"},
    {"clip": -1.0},
    {"unit": "user"},
)


def table_of(rows: Sequence[Row]) -> UserTable:
    """Return the table of rows (who, item, cell, x)."""
    who, item, cell, x = zip(*rows, strict=True) if rows else ((),) * 4
    columns = {
        "who": pa.array(who, pa.int64()),
        "item": pa.array(item, pa.string()),
        "cell": pa.array(cell, pa.string()),
        "x": pa.array(x, pa.float64()),
    }
    return read(pa.table(columns), user="who", threads=1)


class StatisticContract:
    """Tests of one statistic; a subclass defines the statistic and :meth:`publish`.

    Attributes:
        statistic: the statistic.
        clip: a public clipping bound that suits one record.
        units: the privacy units to test.
        unlike: the minimum share of the privacy loss that the search must find, so that it can
            fail.

    >>> from dpgrain import count
    >>> from dpgrain.statistics.statistic import COUNT
    >>> class TestCount(StatisticContract):
    ...     statistic = COUNT
    ...
    ...     def publish(self, table, **options):
    ...         return count(table, by="item", domain=list(ITEMS), **options)
    >>> TestCount().test_rejected_release_is_not_charged()
    """

    statistic: Statistic
    clip: float = 2.0
    units: Mapping[str, Unit] = UNITS
    unlike: float = 0.7

    def publish(self, table: UserTable, **options: Any) -> Release:
        """Publish the statistic with public groups, bounds and clipping bound.

        Args:
            table: rows with the columns ``who``, ``item``, ``cell`` and ``x``.
            **options: unit, ε, δ, relation, clip and seed.
        """
        raise NotImplementedError

    # -- sums --

    def exact_sums(self, rows: Sequence[Row], **options: Any) -> tuple[FloatArray, Release]:
        """Return the sums before noise, in units of its standard deviations, and the release.

        Args:
            rows: the rows of the table.
            **options: the options of :meth:`publish`.
        """
        seen: list[NoisySums] = []

        def measured(*parts: Any, **named: Any) -> NoisySums:
            seen.append(NoisySums(*parts, **named))
            return seen[-1]

        with _without_noise(), mock.patch.object(run, "NoisySums", measured):
            release = self.publish(table_of(rows), **{**self._options(), **options})
        assert len(seen) == 1, "sums are made by noisy_sums, once"
        return np.ravel(seen[0].masses / seen[0].sd[:, None]), release

    def _options(self) -> dict[str, Any]:
        return {"unit": User(), "epsilon": 1.0, "delta": 1e-6, "clip": self.clip, "random_state": 1}

    def test_no_neighbours_exceed_the_charged_loss(self) -> None:
        worst, rng = 0.0, np.random.default_rng(7)
        for unit, relation in itertools.product(self.units.values(), RELATIONS):
            for left, right in neighbours(unit, relation, rng):
                options: dict[str, Any] = {"unit": unit, "relation": relation}
                one, release = self.exact_sums(left, **options)
                two, other = self.exact_sums(right, **options)
                event = release.guarantee.event
                assert event == other.guarantee.event, (
                    "what is promised follows from public numbers"
                )
                loss = event.loss(relation=relation, unit=PLAIN_UNITS[unit.level])
                result = float(np.linalg.norm(one - two)) / loss.mu
                assert result <= 1 + _ROUNDING, (unit, relation, left, right)
                worst = max(worst, result)
        assert worst > self.unlike, "neighbours that move it at all"

    # -- releases --

    def _released(self) -> Release:
        return self.publish(table_of(_some_rows()), **self._options())

    def test_release_has_its_statistic(self) -> None:
        release = self._released()
        assert release.statistic is STATISTICS[str(self.statistic)] is self.statistic
        assert release.metadata.statistic == self.statistic

    def test_release_has_a_report_and_a_plot(self, tmp_path: Path) -> None:
        release = self._released()
        page = release.report(tmp_path / "page.html").read_text(encoding="utf-8")
        assert self.statistic.lead.partition(",")[0] in page
        assert release.plot(Figure().subplots()).get_figure() is not None

    def test_release_saves_and_loads(self, tmp_path: Path) -> None:
        release = self._released()
        again: Release = type(release).load(release.save(tmp_path / "release.parquet"))
        assert type(again) is type(release)
        assert again.statistic is release.statistic
        assert again.metadata == release.metadata
        assert again.guarantee == release.guarantee
        assert again.to_arrow().equals(release.to_arrow())

    def test_rejected_release_is_not_charged(self) -> None:
        for wrong in _REFUSED:
            with budget(epsilon=9.0, delta=1e-3) as open_:
                _refused(partial(self._with, **wrong))
            assert open_.guarantee is None, wrong
        with budget(epsilon=0.5, delta=1e-3) as small:
            _refused(self._with)
        assert small.guarantee is None

    def _with(self, **options: Any) -> Release:
        return self.publish(table_of(_some_rows()), **{**self._options(), **options})


def _refused(publish: Callable[[], Release]) -> None:
    try:
        publish()
    except ParameterError:
        return
    raise AssertionError(
        "a release was published although its query is invalid or exceeds the budget"
    )


def _without_noise() -> AbstractContextManager[Any]:
    """Set the noise of releases to 0."""

    def none(event: object, sums: IntArray, scale: object, source: object) -> IntArray:  # noqa: ARG001
        return sums

    return mock.patch.object(draws, "with_noise", none)


# -- neighbours ---


def neighbours(unit: Unit, relation: Relation, rng: np.random.Generator) -> Iterator[Pair]:
    """Yield pairs of tables that differ in one unit: worst and random cases."""
    yield _changed(unit, relation, [], _heavy(HIGH), _heavy(LOW))
    yield _changed(unit, relation, _some_rows(), _heavy(LOW), _heavy(HIGH))
    mine, new = (_random_rows(rng, 0) for _ in range(2))
    yield _changed(unit, relation, _random_rows(rng, 1), mine, new)


def _changed(
    unit: Unit, relation: Relation, others: list[Row], mine: list[Row], new: list[Row]
) -> Pair:
    """Return two tables that differ in one unit, removed or replaced by some of the new rows."""
    replace = relation == "replace"
    if isinstance(unit, Record):
        return others + mine, others + mine[1:] + (new[:1] if replace else [])
    place = None if isinstance(unit, User) else ("who", "item", "cell").index(str(unit.by))
    gone = [row for row in mine if place is None or row[place] == mine[0][place]]
    remaining = [row for row in mine if row not in gone]
    came = [row for row in new if place is None or row[place] == mine[0][place]]
    return others + mine, others + remaining + (came if replace else [])


def _heavy(x: float) -> list[Row]:
    """Return rows of a user with many records of every item; item a only in the first cell."""
    places = [("a", "p"), ("b", "p"), ("b", "q"), ("c", "q")]
    return [(0, item, cell, x) for item, cell in places for _ in range(40)]


def _some_rows() -> list[Row]:
    return [
        (user, ITEMS[user % 3], CELLS[user % 2], LOW + user % 9)
        for user in range(1, 60)
        for _ in range(1 + user % 2)
    ]


def _random_rows(rng: np.random.Generator, user: int) -> list[Row]:
    """Return a few rows of one user, some of them repeated."""
    rows: list[Row] = []
    for _ in range(int(rng.integers(1, 6))):
        item, cell = ITEMS[rng.integers(0, 3)], CELLS[rng.integers(0, 2)]
        row = (user, item, cell, float(rng.uniform(2 * LOW, 2 * HIGH)))
        rows += [row] * int(rng.choice([1, 2, 30]))
    return rows
