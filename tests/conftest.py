"""Which tests run, and what tests of several rooms need.

Of long searches a run takes a sample, the rest of it, or everything.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests import sampling

from dpgrain.cli import main
from dpgrain.noise import SystemSource
from dpgrain.publishing.guarantee import warn_of_epsilon

# Many tests promise little, so that noise is small; that this is said once is tested in a process.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    warn_of_epsilon(100.0)

# Name of the plugin that lists tests which take long.
_CLOCK = "seconds"

# Runs a command from its words.
Command: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


def shown(error: BaseException) -> str:
    """All that is ever shown of an error, also by a tool that shows what was suppressed."""
    text, each = "", [error]
    for one in each:
        text += "".join(traceback.format_exception(one)) + repr(one) + repr(vars(one))
        each += [known for known in (one.__cause__, one.__context__) if known is not None]
    return text


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--search",
        choices=sampling.PARTS,
        default="sample",
        help="of long searches: a sample (`make test`), the rest (`make audit`), or all",
    )
    parser.addoption(
        "--most", type=int, help="of the rest of each search, at most so many cases (`make audit`)"
    )
    parser.addoption("--inputs", type=int, help="odd inputs that all tests of them share")
    parser.addoption(
        "--note-seconds", action="store_true", help="list the tests that take long (`make seconds`)"
    )


def _part(config: pytest.Config) -> sampling.Part:
    part: sampling.Part = config.getoption("--search")
    # A test that is asked for by its name runs with all its cases.
    by_name = any("::" in argument for argument in config.args)
    return "all" if part == "sample" and by_name else part


def pytest_configure(config: pytest.Config) -> None:
    sampling.load(_part(config))
    if config.getoption("--note-seconds"):
        config.pluginmanager.register(sampling.Clock(), _CLOCK)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # What a shell starts in the background ignores interruptions, and so would what tests start.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # Of what is left when other marks are heeded.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (clock := config.pluginmanager.get_plugin(_CLOCK)) is not None:
        clock.count(items, _part(config))
    names = sampling.left_out(items, _part(config), config.getoption("--most"))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in names])
    items[:] = [item for item in items if item.nodeid not in names]


@pytest.fixture(autouse=True)
def draws(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the same noise in each run of a test, unless everything runs."""
    if _part(request.config) != "all":
        monkeypatch.setattr(SystemSource, "words", sampling.same_draws(request.node.nodeid))


@pytest.fixture(autouse=True)
def figures() -> Iterator[None]:
    """Close what a test has drawn, as matplotlib keeps each figure and warns of many."""
    yield
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close("all")


@pytest.fixture
def some_of(request: pytest.FixtureRequest) -> sampling.Some:
    """Shorten a loop inside a search: a fifth of its turns in a sample, a third in an audit."""
    return sampling.shortened(request.node.nodeid, _part(request.config))


@pytest.fixture
def strength(request: pytest.FixtureRequest) -> int | None:
    """How many options meet in every combination: pairs in a sample, triples in its rest, or all."""
    strengths: dict[sampling.Part, int | None] = {"sample": 2, "rest": 3, "all": None}
    return strengths[_part(request.config)]


@pytest.fixture
def inputs(request: pytest.FixtureRequest) -> int:
    """How many odd inputs all tests that try them share: few in a sample, 10⁴ in its rest, or 10⁶."""
    number: int | None = request.config.getoption("--inputs")
    return number or sampling.INPUTS[_part(request.config)]


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """A command in this process, which takes a fraction of the time of one of its own."""

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["dpgrain", *map(str, words)])
        # What was printed before is not the command's.
        capsys.readouterr()
        with warnings.catch_warnings():
            # What the library warns of is printed, as for a person; all else is an error.
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
    """A command in a process of its own, as a person runs it."""

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
    """Why there is no Spark here; empty where there is."""
    if find_spec("pyspark") is None:
        return "PySpark is absent: pip install 'dpgrain[spark]'"
    return "" if shutil.which("java") else "Java is absent: install a headless Java 17"


@pytest.fixture(scope="session")
def pyspark_and_java() -> None:
    """Skip a test that starts Spark in a process of its own, where there is none."""
    if _no_spark():
        pytest.skip(_no_spark())


@pytest.fixture(scope="session")
def spark(pyspark_and_java: None) -> Iterator[Any]:
    """One session of Spark for all tests of a process, where there are PySpark and Java."""
    from pyspark.sql import SparkSession

    settings = {
        # A session lives for a minute, in which Java's second compiler takes more than it saves.
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
