"""Which cases a run tries, and fixtures for tests of several packages."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Generator, Hashable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests import effort as effort_of_runs
from tests import reused_databases

from dpgrain.cli import main
from dpgrain.noise import SystemSource
from dpgrain.publishing.guarantee import warn_large_epsilon
from dpgrain.tables.engines import duckdb as engine_of_duckdb

# Many tests use little noise for a weak guarantee; a separate process tests that this warns once.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    warn_large_epsilon(100.0)

# The advice to check CSV files has its own test.
os.environ["DPGRAIN_QUIET"] = "1"

# Tests of how a database is opened and closed.
_OPENING = (
    "tests/tables/test_table.py::test_safe_settings_are_in_force",
    "tests/tables/engines/test_memory.py",
    "tests/tables/sources/test_streams.py",
)

Command: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


def shown(error: BaseException) -> str:
    """All text that an error ever shows, also in tools that show suppressed exceptions."""
    text, each = "", [error]
    for one in each:
        text += "".join(traceback.format_exception(one)) + repr(one) + repr(vars(one))
        each += [known for known in (one.__cause__, one.__context__) if known is not None]
    return text


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--effort",
        choices=effort_of_runs.LEVELS,
        default="1",
        help="how much each test tries: 1 (`make test`), 3 (`make nightly`) or full (`make test-all`)",
    )
    parser.addoption("--inputs", type=int, help="number of malformed inputs of all fuzz tests")


def _level(config: pytest.Config) -> effort_of_runs.Level:
    """Return the effort of a run; a test selected by name runs in full."""
    by_name = any("::" in argument for argument in config.args)
    return None if by_name else effort_of_runs.LEVELS[config.getoption("--effort")]


def pytest_configure(config: pytest.Config) -> None:
    effort_of_runs.load(_level(config))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Background jobs of a shell ignore interruptions, and so would processes started by tests.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from modules and tests: millions of objects that all stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Drop the cases that this run does not try before pytest builds them, which takes longer."""
    yield
    test = metafunc.definition
    calls = {f"{test.nodeid}[{call.id}]": call for call in metafunc._calls}
    if not calls:
        return
    level, proved = _level(metafunc.config), test.get_closest_marker("proof") is not None
    own = test.get_closest_marker("slow")
    by_mark: dict[str, tuple[pytest.Mark | None, dict[str, frozenset[Hashable]]]] = {}
    for name, call in calls.items():
        mark = next((mark for mark in call.marks if mark.name == "slow"), own)
        _, cases = by_mark.setdefault(repr(mark), (mark, {}))
        cases[name] = effort_of_runs.values_of(call.params)
    kept: set[str] = set()
    for mark, cases in by_mark.values():
        kept |= effort_of_runs.cases_of(test.nodeid, mark, cases, level, is_evidence=proved)
    metafunc._calls[:] = [call for name, call in calls.items() if name in kept]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect slow tests without cases that this run does not try, and put tests of Spark first."""
    tried = [_tried(item, _level(config)) for item in items]
    config.hook.pytest_deselected(
        items=[item for item, kept in zip(items, tried, strict=True) if not kept]
    )
    kept = [item for item, kept in zip(items, tried, strict=True) if kept]
    # Tests of Spark come first and together, so that one worker starts a session: 17 seconds of work.
    items[:] = sorted(kept, key=lambda item: "spark" not in getattr(item, "fixturenames", ()))


def _tried(item: pytest.Item, level: effort_of_runs.Level) -> bool:
    if isinstance(item, pytest.Function) and not hasattr(item, "callspec"):
        slow, proved = item.get_closest_marker("slow"), item.get_closest_marker("proof")
        cases = {item.nodeid: frozenset({item.nodeid})}
        return bool(
            effort_of_runs.cases_of(item.nodeid, slow, cases, level, is_evidence=proved is not None)
        )
    return True


@pytest.fixture
def effort(request: pytest.FixtureRequest) -> effort_of_runs.Effort:
    number: int | None = request.config.getoption("--inputs")
    return effort_of_runs.Effort(_level(request.config), request.node.nodeid, number)


@pytest.fixture(autouse=True)
def draws(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the same noise in each run of a test, unless everything runs."""
    if _level(request.config) is not None:
        monkeypatch.setattr(SystemSource, "words", effort_of_runs.same_draws(request.node.nodeid))


@pytest.fixture(autouse=True)
def reused_database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use databases again at effort 1, except in tests of connections, settings and spilling."""
    if _level(request.config) == 1 and not request.node.nodeid.startswith(_OPENING):
        monkeypatch.setattr(engine_of_duckdb, "connect", reused_databases.connect)


@pytest.fixture(autouse=True)
def figures() -> Iterator[None]:
    """Close what a test has drawn, as matplotlib keeps each figure and warns of many."""
    yield
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close("all")


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """A command in this process, in a fraction of the time of a separate one."""

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["dpgrain", *map(str, words)])
        # Earlier output does not belong to the command.
        capsys.readouterr()
        with warnings.catch_warnings():
            # Warnings of the library are printed, as for a person; all others are errors.
            warnings.simplefilter("always", UserWarning)
            with pytest.raises(SystemExit) as ended:
                main()
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(
            sys.argv, int(ended.value.code or 0), printed.out, printed.err
        )

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    before = signal.getsignal(signal.SIGTERM)
    yield run
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def process() -> Command:
    """A command in a separate process, as a person runs it."""

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "dpgrain", *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
            env={"COLUMNS": "200", "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
        )

    return run


def _no_spark() -> str:
    if find_spec("pyspark") is None:
        return "PySpark is absent: pip install 'dpgrain[spark]'"
    return "" if shutil.which("java") else "Java is absent: install a headless Java 17"


@pytest.fixture(scope="session")
def pyspark_and_java() -> None:
    if _no_spark():
        pytest.skip(_no_spark())


@pytest.fixture(scope="session")
def spark(pyspark_and_java: None) -> Iterator[Any]:
    """One session of Spark for all tests of a process, if PySpark and Java are installed."""
    from pyspark.sql import SparkSession

    settings = {
        # A session runs for a minute; Java's second compiler would cost more time than it saves.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "3",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
    }
    # Tasks may fail twice.
    builder = SparkSession.builder.master("local[2,3]").appName("tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
