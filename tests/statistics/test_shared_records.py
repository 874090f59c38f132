"""Counts and sums of shared records: the effect of one unit, and errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from tests.effort import Effort

import dpgrain as dg
from dpgrain import learn
from dpgrain.errors import DpgrainError, ParameterError
from dpgrain.learn.column_rows import ColumnRows
from dpgrain.learn.features import FeatureEncoding, NumberColumn
from dpgrain.publishing import draws
from dpgrain.releases.table_queries import mean_of_columns
from dpgrain.shared_records.extension import BoundSearch
from dpgrain.statistics.group_estimates import Histogram
from dpgrain.units import PLAIN_UNITS, RELATIONS, Relation, Unit

Row = tuple[tuple[str, ...], str, float]
CHANNELS = ("x", "y", "z")
PEOPLE = "abcde"
ASKED: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "random_state": 1}
ELEMENT = dg.Element("channel")


def _table(rows: Sequence[Row], **how: Any) -> dg.SharedTable:
    owners, channel, amount = zip(*rows, strict=True) if rows else ((),) * 3
    columns: dict[str, Any] = {
        "channel": pa.array(channel, pa.string()),
        "amount": pa.array(amount, pa.float64()),
    }
    for place, name in enumerate(("sender", "receiver")):
        named = [each[place] if len(each) > place else None for each in owners]
        columns[name] = pa.array(named, pa.string())
    return dg.read(pa.table(columns), user=["sender", "receiver"], **how)


def _count(table: Any, **asked: Any) -> Histogram:
    return dg.count(table, by="channel", domain=CHANNELS, **asked)


def _total(table: Any, **asked: Any) -> Histogram:
    return dg.sum(table, "amount", by="channel", domain=CHANNELS, bounds=(0, 4), **asked)


def _one(table: Any, **asked: Any) -> Histogram:
    return dg.sum(table, "amount", bounds=(0, 4), **asked)


def _weights(table: Any, **asked: Any) -> Histogram:
    laws = {**asked, "noise": asked.get("noise", "gaussian")}
    return dg.histogram(table, "channel", weight="amount", domain=CHANNELS, **laws)


def _own(table: Any, **asked: Any) -> Histogram:
    return _count(table, **{**asked, "clip": {"x": 3.0, "y": 0.3, "z": 1.9}})


PUBLISH: dict[str, Callable[..., Histogram]] = {
    "count": _count, "sum": _total, "one sum": _one, "weights": _weights,
    "own bounds": _own,
}  # fmt: skip


def _exact(publish: Callable[..., Histogram], rows: Sequence[Row], **asked: Any) -> Any:
    def none(event: object, sums: Any, scale: object, source: object) -> Any:
        return sums

    with mock.patch.object(draws, "with_noise", none):
        release = publish(_table(rows), **{**ASKED, "clip": 3.0, **asked})
    return release.estimate / release.std_error, release


def _rows(rng: np.random.Generator, count: int, owners: int) -> list[Row]:
    return [
        (
            tuple(sorted(set(rng.choice(list(PEOPLE), rng.integers(1, owners + 1)).tolist()))),
            str(rng.choice(CHANNELS)),
            float(rng.choice([0.0, 0.7, 1.0, 3.3, 9.0, -5.0])),
        )
        for _ in range(count)
    ]


def _of(person: str, rows: Sequence[Row], channel: str | None = None) -> list[Row]:
    return [row for row in rows if person in row[0] and channel in (None, row[1])]


def _neighbours(
    unit: Unit, relation: Relation, rng: np.random.Generator, owners: int
) -> tuple[list[Row], list[Row]]:
    channel = str(rng.choice(CHANNELS)) if unit.level == "element" else None
    rows = _rows(rng, int(rng.integers(2, 14)), owners)
    rest = [row for row in rows if row not in _of("a", rows, channel)]
    if relation == "zero_out":
        return rows, rest
    others = _of("a", _rows(rng, 12, owners), channel)
    return rows, [*rest, *others]


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("unit", [dg.User(), ELEMENT], ids=["user", "element"])
@pytest.mark.parametrize("name", PUBLISH)
def test_no_neighbours_exceed_the_charge(
    name: str, unit: Unit, relation: Relation, effort: Effort
) -> None:
    if name == "one sum" and unit == ELEMENT:
        pytest.skip("elements are groups")
    worst, rng = 0.0, np.random.default_rng(len(name))
    for _ in effort.some(range(150)):
        left, right = _neighbours(unit, relation, rng, 2)
        asked: dict[str, Any] = {"unit": unit, "relation": relation}
        asked["noise"] = "gaussian"
        one, release = _exact(PUBLISH[name], left, **asked)
        two, other = _exact(PUBLISH[name], right, **asked)
        event = release.guarantee.event
        assert event == other.guarantee.event
        mu = event.loss(relation=relation, unit=PLAIN_UNITS[unit.level]).mu
        moved = float(np.linalg.norm(one - two)) / mu
        assert moved <= 1 + 1e-9, (left, right)
        worst = max(worst, moved)
    assert worst > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("unit", [dg.User(), ELEMENT], ids=["user", "element"])
def test_laplace_noise_is_charged_by_summed_changes(
    unit: Unit, relation: Relation, effort: Effort
) -> None:
    worst, rng = 0.0, np.random.default_rng(4)
    for _ in effort.some(range(150)):
        left, right = _neighbours(unit, relation, rng, 2)
        asked = {"unit": unit, "relation": relation, "noise": "laplace", "delta": 0.0}
        one, release = _exact(_count, left, **asked)
        two, _ = _exact(_count, right, **asked)
        moved = float(np.abs(one - two).sum()) * np.sqrt(2)
        assert moved <= 1.0 + 1e-9
        assert release.guarantee.epsilon() <= 1.0
        worst = max(worst, moved)
    assert worst > 0.5


@pytest.mark.slow
def test_elements_of_one_person_move_separate_numbers() -> None:
    rng = np.random.default_rng(11)
    for _ in range(30):
        rows = _rows(rng, 12, 2)
        rest = [row for row in rows if row not in [*_of("a", rows, "x"), *_of("a", rows, "y")]]
        one, release = _exact(_count, rows, unit=ELEMENT)
        two, _ = _exact(_count, rest, unit=ELEMENT)
        mu = release.guarantee.event.loss(units=2).mu
        assert mu == pytest.approx(np.sqrt(2) * release.guarantee.event.loss().mu)
        assert float(np.linalg.norm(one - two)) <= mu * (1 + 1e-9)


# -- promises --


@pytest.mark.parametrize("clip", ["auto", 5.0, dg.AutoClip(share=0.5, low=0.1, high=50.0)])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("noise", ["auto", "gaussian", "laplace"])
def test_guarantee_is_satisfied_and_used(clip: Any, relation: Relation, noise: Any) -> None:
    for unit, by in ((dg.User(), None), (ELEMENT, "channel")):
        asked = {"by": by, "domain": CHANNELS if by else None, "clip": clip, "noise": noise}
        query = dg.count.query(
            _table([]), unit=unit, epsilon=0.7, delta=1e-6, relation=relation, **asked
        )
        told = query.plan.guarantee
        assert 0.69 < told.epsilon() <= 0.7


def test_private_bound_suits_the_rows() -> None:
    ring: list[Row] = [((f"p{i}", f"p{(i + 1) % 4000}"), "x", 1.0) for i in range(4000)]
    rows = ring * 3
    release = dg.count(_table(rows), unit=dg.User(), **{**ASKED, "epsilon": 2.0})
    assert 4 <= release.clip[0] <= 64
    assert abs(release.value - 12_000) < 4 * release.std_error[0] + 400
    by_cell = _count(_table(rows), unit=ELEMENT, **{**ASKED, "epsilon": 2.0})
    assert by_cell.clip[0] > by_cell.clip[1]


def test_estimates_refer_to_the_bounded_values() -> None:
    rows: list[Row] = [(("a", "b"), "x", 4.0)] * 6 + [(("b",), "y", 2.0)] * 2 + [((), "x", 1.0)]
    one, release = _exact(_one, rows, unit=dg.User(), clip=2.0)
    # b has two own rows of 2, and shares the other 8 with a: all of a's rows count.
    assert one[0] * release.std_error[0] == pytest.approx(8.0)
    count, told = _exact(lambda t, **o: dg.count(t, "amount", **o), rows, unit=dg.User(), clip=5.0)
    assert count[0] * told.std_error[0] == pytest.approx(5.0)
    assert told.clip.tolist() == [5.0]
    assert release.clip.tolist() == [8.0]


def test_groups_of_whole_users_share_the_bound() -> None:
    rows: list[Row] = [*[(("a",), "x", 1.0)] * 9, (("a",), "y", 1.0)]
    for noise, norm in (("gaussian", 2), ("laplace", 1)):
        numbers, release = _exact(_count, rows, unit=dg.User(), clip=6.0, noise=noise)
        assert np.linalg.norm(release.clip, norm) == pytest.approx(6.0)
        assert (numbers * release.std_error)[:2].tolist() == pytest.approx([release.clip[0], 1.0])


def test_groups_may_have_separate_bounds() -> None:
    rows: list[Row] = [*[(("a",), "x", 1.0)] * 9, *[(("a",), "y", 1.0)] * 9]
    own = {"y": 4.0, "x": 3.0, "z": 12.0}
    for unit, noise, norm in ((dg.User(), "gaussian", 13.0), (dg.User(), "laplace", 19.0)):
        numbers, release = _exact(_count, rows, unit=unit, clip=own, noise=noise)
        assert release.clip.tolist() == [3.0, 4.0, 12.0]
        assert (numbers * release.std_error).tolist() == pytest.approx([3.0, 4.0, 0.0])
        plain = _exact(_count, rows, unit=unit, clip=norm, noise=noise)[1]
        assert release.std_error.tolist() == pytest.approx(plain.std_error.tolist(), rel=1e-6)
    cells = _exact(_count, rows, unit=ELEMENT, clip=own)[1]
    assert (cells.std_error / cells.clip).tolist() == pytest.approx([cells.std_error[0] / 3] * 3)
    assert "the bounds 3, 4, 12" in str(cells.guarantee)
    for wrong in ({"x": 1.0}, {**own, "w": 1.0}, {**own, "x": "auto"}, {**own, "x": -1.0}):
        with pytest.raises(ParameterError, match="clip"):
            _count(_table([]), unit=ELEMENT, clip=wrong, **ASKED)
    with pytest.raises(ParameterError, match="one group"):
        dg.count(_table([]), unit=dg.User(), clip=own, **ASKED)
    with pytest.raises(ParameterError, match="clip"):
        dg.count(dg.read(pa.table({"w": [1]}), user="w"), unit=dg.User(), clip={"x": 1.0}, **ASKED)


def test_release_states_its_coverage(tmp_path: Path) -> None:
    release = _count(_table([(("a", "b"), "x", 1.0)], n_users=5), unit=ELEMENT, clip=2.0, **ASKED)
    told = str(release.guarantee)
    assert "whole records are protected, but not the removal of one name from a record" in told
    assert "'sender' and 'receiver'" in told
    assert release.metadata.user == "'sender' and 'receiver'"
    page = release.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "sender" in page
    again = Histogram.load(release.save(tmp_path / "release.parquet"))
    assert again.metadata == release.metadata
    with pytest.raises(ParameterError, match="min_people"):
        release.min_people(3)


def test_negative_estimates_may_be_set_to_0() -> None:
    table = _table([])
    release = dg.histogram(
        table, "channel", domain=CHANNELS, unit=ELEMENT, clip=2.0, nonnegative=True, **ASKED
    )
    assert release.estimate.min() == 0.0


def test_a_budget_is_charged_and_shared() -> None:
    table = _table([(("a", "b"), "x", 1.0)])
    with dg.budget(1.0, 1e-6) as whole:
        dg.count(table, unit=dg.User(), share=0.5)
        dg.sum(table, "amount", bounds=(0, 1), unit=dg.User(), share=0.5, clip=2.0)
        with pytest.raises(dg.RefusedError):
            dg.count(table, unit=dg.User(), epsilon=0.5, delta=1e-7, clip=2.0)
    assert whole.guarantee is not None


# -- refusals --

REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "mean": (lambda t: dg.mean(t, "amount", unit=dg.User(), **ASKED), "several owners"),
    "variance": (lambda t: dg.variance(t, "amount", unit=dg.User(), **ASKED), "several owners"),
    "std": (lambda t: dg.std(t, "amount", unit=dg.User(), **ASKED), "several owners"),
    "quantiles": (lambda t: dg.quantiles(t, "amount", unit=dg.User(), **ASKED), "several owners"),
    "distribution": (
        lambda t: dg.distribution(t, "amount", unit=dg.User(), **ASKED), "several owners"
    ),
    "top": (lambda t: dg.top(t, "channel", unit=dg.User(), **ASKED), "several owners"),
    "holdings": (
        lambda t: dg.elements_per_user(t, "channel", unit=dg.User(), **ASKED), "several owners"
    ),
    "edges": (
        lambda t: dg.histogram(t, "amount", edges=[1, 2], unit=dg.User(), **ASKED),
        "several owners",
    ),
    "record": (lambda t: dg.count(t, unit=dg.Record(), **ASKED), "Record"),
    "domain": (lambda t: dg.count(t, by="channel", unit=ELEMENT, **ASKED), "domain is required"),
    "signed": (
        lambda t: dg.sum(t, "amount", bounds=(-1, 1), unit=dg.User(), **ASKED), "negative"
    ),
    "no bounds": (
        lambda t: dg.sum(t, "amount", unit=dg.User(), **ASKED), r"bounds must be \(low, high\)"
    ),
    "owners": (
        lambda t: dg.count(t, by="sender", domain=["a"], unit=dg.User(), clip=1.0, **ASKED),
        "a column of owners",
    ),
    "two keys": (
        lambda t: dg.count(
            t, by=["channel", "amount"], domain=[("x", 1)], unit=dg.User(), **ASKED
        ),
        "one column",
    ),
    "found for users": (lambda t: _count(t, unit=dg.User(), **ASKED), "clip is required"),
    "other cells": (lambda t: dg.count(t, unit=ELEMENT, **ASKED), "column to group by"),
    "elements of users": (
        lambda t: _count(t, unit=dg.User(2, by="channel"), **ASKED), "max_elements"
    ),
    "ratio": (lambda t: dg.count(t, unit=dg.User(), clip=dg.AutoClip(ratio=3.0), **ASKED), "ratio"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_statistics_without_theorem_are_rejected_before_the_charge(name: str) -> None:
    ask, said = REFUSED[name]
    with dg.budget(9.0, 1e-3) as whole, pytest.raises(ParameterError, match=said):
        ask(_table([]))
    assert whole.guarantee is None


def test_the_search_is_drawn_with_its_ticket() -> None:
    query = dg.count.query(_table([]), unit=dg.User(), epsilon=1.0, delta=1e-6)
    parts = [type(part).__name__ for part in draws.tickets(query.plan.guarantee.event)]
    assert parts == ["AboveThreshold", "Laplace"]
    search = query.search  # type: ignore[attr-defined]
    assert isinstance(search, BoundSearch)
    assert search.people == pytest.approx(np.sqrt(2) * query.sums.noise_multiplier)  # type: ignore[attr-defined]


def test_options_together() -> None:
    rows = _rows(np.random.default_rng(3), 30, 2)
    for unit, relation, noise in itertools.product(
        (dg.User(), ELEMENT), RELATIONS, ("gaussian", "laplace")
    ):
        release = _count(_table(rows), unit=unit, relation=relation, noise=noise, clip=4.0, **ASKED)
        assert len(release) == 3
        assert release.guarantee.epsilon() <= 1.0


# -- files of releases, fits --

FILE = """
[table]
source = "mail.csv"
user = ["sender", "receiver"]
filter = "channel != 'z'"
[budget]
unit = "user"
epsilon = 1.0
delta = 1e-6
[release.mails]
statistic = "STATISTIC"
OPTIONS
epsilon = 0.5
delta = 1e-7
output = "mails.csv"
"""


def test_a_file_of_releases_reads_owners(tmp_path: Path) -> None:
    rows = "".join(f"p{i % 9},p{i % 7},{'xz'[i % 2]}\n" for i in range(90))
    (tmp_path / "mail.csv").write_text("sender,receiver,channel\n" + rows, encoding="utf-8")
    file = tmp_path / "releases.toml"

    def write(statistic: str, options: str) -> None:
        text = FILE.replace("STATISTIC", statistic).replace("OPTIONS", options)
        file.write_text(text, encoding="utf-8")

    write("count", "clip = 40.0")
    release = dg.releases(file)["mails"]
    assert release.metadata.user == "'sender' and 'receiver'"
    assert abs(release.value - 45) < 6 * release.std_error[0]
    write("mean", 'value = "channel"')
    with pytest.raises(DpgrainError, match="several owners"):
        dg.plan_releases(file)


def test_fits_and_per_user_means_of_columns_are_rejected() -> None:
    table: Any = _table([])
    model = learn.LinearRegression(unit=dg.User(), epsilon=1.0, delta=1e-6)
    encoding = FeatureEncoding((NumberColumn("amount", (0.0, 1.0)),))
    with pytest.raises(ParameterError, match="a fit does not support"):
        model.query(ColumnRows(table, encoding, "amount"), None)
    with pytest.raises(ParameterError, match="a mean of users does not support"):
        mean_of_columns.query(table, ["amount"], bound=1.0, unit=dg.User(), **ASKED)
