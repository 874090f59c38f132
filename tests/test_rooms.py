"""Rooms import downwards only: the report knows what is below it; nothing below knows the report."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from tests.refusals import refuses
from tests.rooms import (
    DOOR,
    SOURCE,
    Graph,
    imported,
    imports_in,
    modules_of,
    needed,
    pairs_of,
    tree_of,
)

import dpgrain as dg
from dpgrain import learn
from dpgrain import report as pages
from dpgrain.accounting import Contribution, Gaussian
from dpgrain.shuffle import VectorSum
from dpgrain.statistics.release_metadata import ReleaseMetadata
from dpgrain.tables.groups import Groups

# The command line is above.
ABOVE = ("dpgrain.cli", "dpgrain.__main__")

# These modules import each other in a circle; no others do.
CIRCLES = [
    {"dpgrain.learn.files", "dpgrain.learn.model"},
]
# How many modules of the package are imported inside functions, below the report.
INSIDE = {"dpgrain.learn.files": 1, "dpgrain.learn.model": 2}


def _circles(graph: Graph) -> list[set[str]]:
    """The largest sets of modules that all need each other."""
    reached = {module: _reachable(graph, module) for module in graph}
    circles = (
        frozenset(other for other in reached[module] if module in reached[other])
        for module in graph
    )
    return [set(circle) for circle in sorted(set(circles), key=sorted) if circle]


def _inside(source: Path) -> dict[str, int]:
    """How many modules of the package each module imports inside its functions."""
    count: dict[str, int] = {}
    for importer, path in modules_of(source).items():
        tree = tree_of(path)
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        found = {node for function in functions for node in imports_in(function)}
        own = [node for node in found if any(_is_own(module) for module, _ in pairs_of(node))]
        if own:
            count[importer] = len(own)
    return count


def _is_own(module: str) -> bool:
    return module == "dpgrain" or module.startswith("dpgrain.")


def _reachable(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    open_ = [start]
    while open_:
        for target in graph[open_.pop()] - seen:
            seen.add(target)
            open_.append(target)
    return seen


def _is_report(module: str) -> bool:
    return module == "dpgrain.report" or module.startswith("dpgrain.report.")


def _into_the_report(graph: Graph) -> set[str]:
    return {
        module
        for module, targets in graph.items()
        if not _is_report(module) and any(map(_is_report, targets))
    }


@pytest.fixture(scope="module")
def graph() -> Graph:
    return imported(SOURCE)[0]


@pytest.mark.slow
def test_only_lazy_loader_and_command_line_import_the_report(graph: Graph) -> None:
    found = _into_the_report(graph)
    assert DOOR in found
    assert {module for module in found - {DOOR} if not module.startswith(ABOVE)} == set()


def test_no_circle_of_imports_goes_through_the_report(graph: Graph) -> None:
    # This import is the only arrow that goes up, and it runs only for a report.
    without = {**graph, DOOR: set()}
    rooms = [module for module in graph if _is_report(module)]
    assert len(rooms) > 10
    assert [module for module in rooms if module in _reachable(without, module)] == []


LEARNING = ("means", "gradients", "choices", "learn", "papers")


def test_no_circle_of_imports_goes_through_means_and_fits(graph: Graph) -> None:
    without = {**graph, DOOR: set()}
    of = [module for module in graph if module.split(".")[1:2] in [[room] for room in LEARNING]]
    assert len(of) > 40
    assert [module for module in of if module in _reachable(without, module)] == []


def test_inputs_know_nothing_of_tables_and_means(graph: Graph) -> None:
    inputs = [module for module in graph if module.startswith("dpgrain.inputs")]
    above = [f"dpgrain.{room}" for room in (*LEARNING, "tables", "statistics")]
    # A guarantee can be drawn, but the code for it is loaded lazily.
    closed = {**graph, DOOR: set()}
    reached = set().union(*(_reachable(closed, module) for module in inputs))
    assert [module for module in reached if module.startswith(tuple(above))] == []


def test_papers_are_loaded_only_by_name(graph: Graph) -> None:
    # Plans show the least error of any mechanism; all else is loaded on request.
    rooms = {
        module.split(".")[1]
        for module, targets in graph.items()
        if any(target.startswith("dpgrain.papers") for target in targets)
    }
    assert rooms == {"papers", "planning", "report"}


def test_the_door_itself_needs_nothing(graph: Graph) -> None:
    assert graph[DOOR] == {"dpgrain.report", "dpgrain._lazy_import"}


@pytest.mark.slow
def test_no_other_modules_need_each_other() -> None:
    circles = _circles(needed(SOURCE))
    assert [circle for circle in circles if not any(circle <= known for known in CIRCLES)] == []


@pytest.mark.slow
def test_imports_inside_functions_become_no_more() -> None:
    below = {
        module: number
        for module, number in _inside(SOURCE).items()
        if not (module.startswith(ABOVE) or _is_report(module) or module == DOOR)
    }
    assert {m: n for m, n in below.items() if n > INSIDE.get(m, 0)} == {}


@pytest.mark.slow
def test_private_names_stay_in_their_module() -> None:
    assert imported(SOURCE)[1] == []


def _release() -> dg.Histogram:
    return dg.Histogram(
        Groups.of(["word"], [pa.array(["a", "b"])]),
        np.array([3.0, 2.0]),
        np.array([1.0, 1.0]),
        np.array([1.0, 1.0]),
        dg.Guarantee("user", "", "zero_out", 1e-6, Gaussian(4.0, Contribution(block="user"))),
        ReleaseMetadata(by=("word",)),
    )


@pytest.mark.slow
def test_report_is_equal_from_every_caller(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(30, 2))
    model = learn.LinearRegression(rounds=2).fit(rows, rows[:, 0])
    for thing in (_release(), model, VectorSum(n_users=9, dim=1, epsilon=1.0, delta=1e-6)):
        own, asked = thing.report(tmp_path / "a"), pages.report(thing, tmp_path / "b")
        assert own.read_text() == asked.read_text()
        labels = [tick.get_text() for tick in thing.plot(Figure().subplots()).get_yticklabels()]
        ax = pages.plot(thing, Figure().subplots())
        assert [tick.get_text() for tick in ax.get_yticklabels()] == labels != []
    assert [tick.get_text() for tick in model.plot(Figure().subplots()).get_yticklabels()] == [
        "x0",
        "x1",
    ]


def test_objects_without_report_are_rejected(tmp_path: Path) -> None:
    event = _release().guarantee.event
    with refuses("report", "Gaussian"):
        pages.report(event, tmp_path / "a")
    with refuses("plot", "Gaussian"):
        pages.plot(event)
    with refuses("thing", "Gaussian"):
        pages.notebook_html(event)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_page_of_a_release_loads_no_estimators(tmp_path: Path) -> None:
    saved = _release().save(tmp_path / "r.parquet")
    code = (
        "import sys, dpgrain as dg; "
        f"made = dg.Histogram.load({str(saved)!r}); "
        "assert 'dpgrain.report' not in sys.modules; "
        f"made.report({str(tmp_path / 'r.html')!r}); "
        "assert 'dpgrain.learn' not in sys.modules and 'dpgrain.shuffle' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- tables: the engine is a seam ---

ENGINES = "dpgrain.tables.engines"
SOURCES = "dpgrain.tables.sources"
# Ledgers use separate SQL.
STORES = "dpgrain.ledger.stores"
SQL = re.compile(r"\s*(SELECT|WITH|CREATE|CAST|TRY_CAST|SET|FROM|JOIN)\b[ (]")


def _says_sql(path: Path) -> bool:
    tree = tree_of(path)
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return any(isinstance(text, str) and SQL.match(text) for text in texts)


def test_sql_is_written_in_engines_and_sources_only() -> None:
    speaking = {name for name, path in modules_of(SOURCE).items() if _says_sql(path)}
    assert {f"{ENGINES}.duckdb", f"{STORES}.ledger_tables"} < speaking
    assert all(name.startswith((ENGINES, SOURCES, STORES)) for name in speaking)


@pytest.mark.slow
def test_duckdb_is_called_in_engines_and_sources_only() -> None:
    calling = {
        name
        for name, path in modules_of(SOURCE).items()
        for node in imports_in(tree_of(path))
        if any(module.partition(".")[0] == "duckdb" for module, _ in pairs_of(node))
    }
    assert f"{ENGINES}.duckdb" in calling
    assert all(name.startswith((ENGINES, SOURCES)) for name in calling)


def test_only_the_registry_knows_the_engines(graph: Graph) -> None:
    kinds = {f"{ENGINES}.{name}" for name in ("duckdb", "registry")}
    above = {
        module: targets & kinds
        for module, targets in graph.items()
        if targets & kinds and not module.startswith(ENGINES)
    }
    assert above == {"dpgrain.tables.table": {f"{ENGINES}.registry"}}


# -- tests mirror the source ---

TESTS = Path(__file__).parent
# Shorter modules may be tested together with their users.
FEW_LINES = 60
# Modules without a test of the same name: this list only becomes shorter.
WITHOUT_A_TEST = {
    "_report_mixins.py",
    "cli/predict_command.py",
    "cli/printing.py",
    "ledger/stores/store_protocol.py",
    # Its tests are in tests/torch, because they need PyTorch.
    "noise/device_normals.py",
    "tables/engines/check.py",
    "tables/engines/protocol.py",
    "tables/rows.py",
    "testing/engine_contract.py",
    "testing/mean_contract.py",
    "testing/statistic_contract.py",
}


def _test_of(module: Path) -> Path:
    return module.with_name(f"test_{module.stem.removeprefix('_')}.py")


def _untested(source: Path, tests: Path) -> set[str]:
    """The modules of more than a few lines without a test in the mirrored folder."""
    long = (
        path.relative_to(source)
        for path in source.rglob("*.py")
        if path.name != "__init__.py" and len(path.read_text("utf-8").splitlines()) > FEW_LINES
    )
    return {module.as_posix() for module in long if not (tests / _test_of(module)).exists()}


def test_each_module_has_a_test_of_its_name() -> None:
    # A module that has got its test, or is no more, leaves the list.
    assert _untested(SOURCE / "dpgrain", TESTS) == WITHOUT_A_TEST
