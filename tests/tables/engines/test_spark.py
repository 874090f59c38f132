"""Spark gives the integers of DuckDB, whatever happens to its tasks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.tables.engines.cluster import Cluster

import dpgrain as dg
from dpgrain._types import IntArray
from dpgrain.errors import DataError, ParameterError, SchemaError
from dpgrain.tables.blocks import Blocks
from dpgrain.tables.engines.kernel import Grid
from dpgrain.tables.groups import Groups
from dpgrain.tables.held import Contributions
from dpgrain.testing import EngineContract
from dpgrain.testing.engine import RELEASES, UNITS, some_rows
from dpgrain.units import User


@pytest.mark.search(keep=0)
@pytest.mark.usefixtures("spark")
class TestSpark(EngineContract):
    engine = "spark"
    users = 12


class TestInOneProcess(EngineContract):
    """The engine and its tasks, without Spark: rows lie in several places, some of them empty."""

    engine = Cluster(size=5)
    users = 12


def test_executors_get_no_noise_no_budget_and_no_ledger() -> None:
    cluster = Cluster()
    table = EngineContract().table(some_rows(30), engine=cluster)
    with dg.budget(epsilon=100.0, delta=1e-3):
        for release in RELEASES.values():
            release(table)
    assert any(name.startswith("dpgrain.tables") for name in cluster.sent)
    rooms = ("noise", "publishing", "ledger", "accounting", "cli", "learn", "report")
    found = [name for name in cluster.sent if name.startswith(tuple(f"dpgrain.{r}" for r in rooms))]
    assert found == []
    # Functions of the caller's stay here, as well.
    assert not [name for name in cluster.sent if name.startswith(("tests", "dpgrain.testing"))]


def test_what_was_kept_is_dropped() -> None:
    cluster = Cluster()
    table = dg.read(pa.table({"who": [1, 2], "item": ["a", "b"]}), user="who", engine=cluster)
    RELEASES["selected"](table.with_cells("topic", of="item", by=str))
    assert cluster.dropped == 1


# Coordinates that take several slices, and a user who holds one of the first and one of the last.
WIDE = 20_000


def _wide_sums(cluster: Cluster, rows: pa.Table) -> IntArray:
    with dg.read(rows, user="who", engine=cluster).open_engine() as engine:
        groups = Groups.of(("item",), [pa.array(np.arange(WIDE))])
        blocks = Blocks("user")
        data = Contributions(engine, blocks, groups, blocks.cells(groups, public=True))
        return data.sums(Grid(np.array([1.0]), 10))


def _norm(sums: IntArray) -> float:
    return float(np.sqrt((sums.astype(np.float64) ** 2).sum())) / 2**10


def test_a_task_that_is_run_again_on_the_same_rows_changes_nothing() -> None:
    rng = np.random.default_rng(5)
    rows = pa.table({"who": rng.integers(0, 9, 500), "item": rng.integers(0, WIDE, 500)})
    plain = _wide_sums(Cluster(), rows)
    assert plain.any()
    for part, kind in itertools.product(range(3), (lambda i: i == 0, lambda i: i > 1)):
        again = Cluster(again=lambda p, i, part=part, kind=kind: p == part and kind(i))  # type: ignore[misc]
        assert np.array_equal(_wide_sums(again, rows), plain)


def _other_rows(run: int, rows: pa.Table) -> pa.Table:
    """A source that gives the one person's records other items when it is read again."""
    return pa.table(
        {"who": rows["who"], "item": pa.array([0 if run % 2 else WIDE - 1] * len(rows))}
    )


@pytest.mark.parametrize("first", [True, False])
def test_slices_of_two_runs_on_other_rows_are_never_added_up(first: bool) -> None:
    """Half of a person's contribution from each of two runs would be longer than the bound."""
    rows = pa.table({"who": [7] * 4, "item": [0] * 4})
    # The first slice comes of one run, in which the person holds its item; the others of the other.
    torn = Cluster(size=1, again=lambda _, place: (place == 0) is first, source=_other_rows)
    whole = Cluster(size=1, source=_other_rows)
    assert _norm(_wide_sums(whole, rows)) == pytest.approx(1.0, abs=0.01)
    if first:
        with pytest.raises(DataError, match="gave other rows when Spark read them again"):
            _wide_sums(torn, rows)
    else:
        # Here neither run's part holds anything, which has to be refused as well.
        with pytest.raises(DataError, match="gave other rows"):
            _wide_sums(torn, rows)


def test_without_marks_the_bound_would_break(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above could fail: without fingerprints, a person adds more than the bound."""
    from dpgrain.tables.engines import spark_tasks

    monkeypatch.setattr(spark_tasks.Slices, "_mark", lambda *_: b"")
    torn = Cluster(size=1, again=lambda _, place: place == 0, source=_other_rows)
    rows = pa.table({"who": [7] * 4, "item": [0] * 4})
    assert _norm(_wide_sums(torn, rows)) == pytest.approx(2**0.5, abs=0.01)


@pytest.mark.search(keep=6)
@pytest.mark.parametrize("seed", range(40))
def test_no_user_moves_sums_by_more_than_the_bound(seed: int) -> None:
    """Neighbours are searched over places, units, sizes, and which tasks are run again."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 60))
    rows = pa.table(
        {"who": rng.integers(0, 4, count), "item": rng.integers(0, 9, count), "day": rng.integers(0, 3, count)}
    )  # fmt: skip
    cluster = Cluster(
        size=int(rng.integers(1, 6)),
        again=lambda p, i, odd=int(rng.integers(2)): (p + i) % 2 == odd,
    )  # type: ignore[misc]
    bound, kept = (
        float(rng.choice([0.5, 1.0, 3.0])),
        rows.filter(pa.array(np.asarray(rows["who"]) != 0)),
    )
    unit = [UNITS["user"], User(2, by="item"), User(1, by="day")][seed % 3]
    found = []
    for data in (rows, kept):
        table = dg.read(data, user="who", engine=cluster)
        with table.open_engine() as engine:
            groups = Groups.of(("item",), [pa.array(np.arange(9))])
            blocks = Blocks.of_unit(unit, table, ["item"])
            made = Contributions(engine, blocks, groups, blocks.cells(groups, public=True))
            found.append(made.sums(Grid(np.array([bound]), 20)) / 2.0**20)
    cells = {UNITS["user"]: 1, User(2, by="item"): 2, User(1, by="day"): 1}[unit]
    scale = Grid(np.array([bound]), 20).step[0] * 2.0**20
    assert np.linalg.norm((found[0] - found[1]) * scale) <= bound * np.sqrt(cells) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("rows.csv", "engine='duckdb', or write it to Parquet once"),
        ("duckdb", "take engine='duckdb'"),
        ("nanoseconds", "cast it, or use engine='duckdb'"),
    ],
)
def test_what_is_not_supported_is_refused_with_its_remedy(
    source: str, remedy: str, spark: Any
) -> None:
    import duckdb

    tables: dict[str, Callable[[], Any]] = {
        "rows.csv": lambda: "rows.csv",
        "duckdb": lambda: duckdb.sql("SELECT 1 AS who"),
        "nanoseconds": lambda: pa.table(
            {"who": pa.array([1]), "at": pa.array([1], pa.timestamp("ns"))}
        ),
    }
    with pytest.raises((ParameterError, SchemaError), match=remedy):
        table = dg.read(tables[source](), user="who", engine="spark")
        dg.count(table, by="at", unit=User(), epsilon=1.0, delta=1e-6, random_state=1)
