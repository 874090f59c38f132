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
from dpgrain.tables.engines.protocol import Engine
from dpgrain.tables.engines.spark_tasks import Slices
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


# Coordinates that take several slices.
WIDE = 20_000


def _wide(table: dg.UserTable, engine: Engine) -> Contributions:
    groups = Groups.of(("item",), [pa.array(np.arange(WIDE))])
    blocks = Blocks("user")
    return Contributions(engine, blocks, groups, blocks.cells(groups, public=True))


def _wide_sums(cluster: Cluster, rows: pa.Table) -> IntArray:
    table = dg.read(rows, user="who", engine=cluster)
    with table.open_engine() as engine:
        return _wide(table, engine).sums(Grid(np.array([1.0]), 10))


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
    """A source that gives the person's records another item when it is read again."""
    ends = rows["c1"][run % 2].as_py()
    return rows.set_column(1, "c1", pa.array([ends] * len(rows)))


def _ends() -> pa.Table:
    """Records of one person with the items of the first and of the last coordinate."""
    table = dg.read(pa.table({"who": [7], "item": [0]}), user="who")
    with table.open_engine() as engine:
        items = _wide(table, engine).dictionary.groups.columns[0].to_pylist()
    return pa.table({"who": [7, 7], "item": [items[-1], items[0]]})


@pytest.mark.parametrize("which", [0, 1])
def test_slices_of_two_runs_on_other_rows_are_never_added_up(which: int) -> None:
    """Half of a person's contribution from each of two runs might be longer than the bound."""
    rows = _ends()
    plain = Cluster(size=1, source=_other_rows)
    assert _norm(_wide_sums(plain, rows)) == pytest.approx(1.0, abs=0.01)
    torn = Cluster(size=1, again=lambda _, place: (place == 0) is bool(which), source=_other_rows)
    with pytest.raises(DataError, match="gave other rows when Spark read them again"):
        _wide_sums(torn, rows)


def test_without_fingerprints_a_person_would_add_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeded bug: slices of two runs are added up, and are longer than the bound together."""
    monkeypatch.setattr(Slices, "_mark", lambda *_: b"")
    torn = Cluster(size=1, again=lambda _, place: place == 0, source=_other_rows)
    assert _norm(_wide_sums(torn, _ends())) == pytest.approx(2**0.5, abs=0.01)


@pytest.mark.search(keep=6)
@pytest.mark.parametrize("seed", range(40))
def test_no_user_moves_sums_by_more_than_the_bound(seed: int) -> None:
    """Neighbours are searched over places, units, sizes, and which tasks are run again."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 60))
    highest = {"who": 4, "item": 9, "day": 3}
    rows = pa.table({name: rng.integers(0, most, count) for name, most in highest.items()})
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

    def release() -> None:
        table = dg.read(tables[source](), user="who", engine="spark")
        dg.count(table, by="at", unit=User(), epsilon=1.0, delta=1e-6, random_state=1)

    with pytest.raises((ParameterError, SchemaError), match=remedy):
        release()
