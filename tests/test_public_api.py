"""What `import dpgrain` offers, and what it costs."""

from __future__ import annotations

import inspect
import subprocess
import sys
import time
from typing import Any

import pytest

import dpgrain as dg

PUBLIC = [
    "AnyDays",
    "AnyHours",
    "AutoClip",
    "AutoRange",
    "Budget",
    "Choice",
    "DataError",
    "DeltaWarning",
    "DpgrainError",
    "Element",
    "Elements",
    "Estimates",
    "Guarantee",
    "Histogram",
    "Holdings",
    "LastingPromise",
    "Ledger",
    "MeanOfUsers",
    "ParameterError",
    "Plan",
    "PlannedReleases",
    "Record",
    "RefusedError",
    "Release",
    "Releases",
    "SchemaError",
    "ScoreWarning",
    "User",
    "UserTable",
    "__version__",
    "accounting",
    "ball_cover",
    "best_of",
    "budget",
    "count",
    "d_element",
    "d_user",
    "distribution",
    "elements_per_user",
    "histogram",
    "learn",
    "mean",
    "mean_of_users",
    "means",
    "noise",
    "optimize",
    "plan_histogram",
    "plan_releases",
    "planning",
    "quantile",
    "quantiles",
    "read",
    "recipes",
    "releases",
    "select",
    "shuffle",
    "sum",
    "top",
    "torch",
    "variance",
]

# Public names whose docstring has no doctest, and why.
EXEMPT = {
    "DataError": "an exception",
    "DeltaWarning": "a warning",
    "DpgrainError": "an exception",
    "ParameterError": "an exception",
    "RefusedError": "an exception",
    "SchemaError": "an exception",
    "ScoreWarning": "a warning",
    "Budget": "made by dpgrain.budget, whose doctest shows it",
    "Elements": "made by its constructors, whose doctests show it",
    "Estimates": "made by dpgrain.mean and others, whose doctests show it",
    "Histogram": "made by dpgrain.histogram, whose doctest shows it",
    "Holdings": "made by dpgrain.elements_per_user, whose doctest shows it",
    "Plan": "made by plan_histogram, whose doctest shows it",
    "PlannedReleases": "made by plan_releases, whose doctest shows it",
    "Releases": "made by releases, whose doctest shows it",
    "Release": "what Histogram, Estimates and Holdings have in common",
    "UserTable": "made by dpgrain.read, whose doctest shows it",
}

HEAVY = (
    "torch",
    "pyspark",
    "pandas",
    "polars",
    "duckdb",
    "sklearn",
    "matplotlib",
    "scipy",
    "pyarrow",
)


def run(code: str) -> str:
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_public_names_are_these() -> None:
    assert sorted(PUBLIC) == PUBLIC
    assert list(dg.__all__) == PUBLIC
    assert dir(dg) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_and_described(name: str) -> None:
    value: Any = getattr(dg, name)
    if name == "__version__":
        assert value
        return
    text = inspect.getdoc(value)
    assert text
    if inspect.ismodule(value):
        return
    assert (">>>" in text) != (name in EXEMPT), name


# Names of public packages without a doctest of their own: protocols, what functions return, and what
# the doctest of another name shows. None is added without one.
UNSHOWN = {
    "accounting": {"Calibration", "Event", "selection_leak"},
    "learn": {"Evidence", "History", "Intervals", "LinearModel", "Minimum", "load"},
    "means": {
        *("Candidate", "ClippedRounds", "Contributions", "CountedRounds", "FreshRun", "Mean"),
        *("MeanRelease", "Method", "PanPrivateRounds", "Problem", "Rounds", "ShuffledRounds"),
    },
    "noise": {"BinomialLaw", "PoissonLaw", "Source", "source_of"},
    "optimize": {
        *("Accelerated", "Average", "Constant", "Domain", "Last", "Localisation", "Loss"),
        *("MarginLoss", "Model", "Phase", "Power", "Proximable", "RandomIterate", "Schedule"),
        *("Solver", "StronglyConvex", "Tail", "Uniform", "Weighted"),
    },
    "planning": {
        *("ErrorPlan", "RecurrentPlan", "Row", "Schedule", "UnitErrors", "UnitsPlan"),
        *("choice_order", "convex_order", "mean_order"),
    },
    "recipes": {"Known", "Program", "Recipe", "Stage", "Task", "TypicalRecords"},
    "shuffle": {
        *("Analyzer", "Arrivals", "Bag", "BlindAnalyzer", "BlindRandomizer", "BlindShuffler"),
        *("Coins", "Dropped", "Encoding", "Estimate"),
    },
}


@pytest.mark.parametrize("package", UNSHOWN)
def test_every_name_of_a_public_package_is_described(package: str) -> None:
    room: Any = getattr(dg, package)
    assert sorted(set(room.__all__)) == sorted(room.__all__)
    unshown = set()
    for name in room.__all__:
        value = getattr(room, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, name
            if ">>>" not in value.__doc__:
                unshown.add(name)
    assert unshown == UNSHOWN[package]


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="module 'dpgrain' has no attribute 'nothing'"):
        dg.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_import_loads_nothing_heavy() -> None:
    code = f"import sys, dpgrain; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run(code).strip() == "[]"


def test_import_is_quick() -> None:
    code = "import time; t = time.perf_counter(); import dpgrain; print(time.perf_counter() - t)"
    run(code)
    best = min(float(run(code)) for _ in range(3))
    assert best < 0.5


def test_names_arrive_when_asked_for() -> None:
    started = time.perf_counter()
    code = """
import sys, dpgrain
dpgrain.User(3)
assert "duckdb" not in sys.modules
dpgrain.read
assert "duckdb" in sys.modules
for heavy in ("torch", "pyspark", "sklearn", "matplotlib"):
    assert heavy not in sys.modules, heavy
dpgrain.histogram, dpgrain.Elements, dpgrain.accounting.Gaussian
for heavy in ("torch", "pyspark", "sklearn", "matplotlib"):
    assert heavy not in sys.modules, heavy
"""
    run(code)
    assert time.perf_counter() - started < 20
