"""The contents of `import dpgrain`, and its cost."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest

import dpgrain as dg

PUBLIC = [
    "AccessError",
    "AnyDays",
    "AnyHours",
    "Audit",
    "AutoClip",
    "AutoRange",
    "Budget",
    "CareWarning",
    "Choice",
    "DataError",
    "DeltaWarning",
    "DpgrainError",
    "Element",
    "Elements",
    "EndedWarning",
    "EpsilonWarning",
    "Estimates",
    "Fact",
    "FileAudit",
    "Guarantee",
    "Histogram",
    "Holdings",
    "LastingPromise",
    "Ledger",
    "Marginals",
    "MeanOfUsers",
    "MissingPackageError",
    "ParameterError",
    "Plan",
    "PlannedReleases",
    "Query",
    "Record",
    "RefusedError",
    "Release",
    "Releases",
    "Risk",
    "SchemaError",
    "ScoreWarning",
    "SharedTable",
    "SumsNoise",
    "User",
    "UserTable",
    "__version__",
    "accounting",
    "audit",
    "audit_releases",
    "audit_training",
    "best_of",
    "budget",
    "correlation",
    "count",
    "covariance",
    "distribution",
    "elements_per_user",
    "histogram",
    "learn",
    "marginals",
    "mean",
    "mean_of_users",
    "means",
    "noise",
    "optimize",
    "papers",
    "plan_histogram",
    "plan_releases",
    "planning",
    "publish",
    "quantile",
    "quantiles",
    "read",
    "releases",
    "select",
    "shuffle",
    "std",
    "sum",
    "top",
    "torch",
    "variance",
]

# The packages that need only the library's own requirements.
PACKAGES = (
    "accounting",
    "learn",
    "means",
    "noise",
    "optimize",
    "papers",
    "planning",
    "shuffle",
)

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
    """``test_docstrings.py`` checks the rest of a docstring."""
    value: Any = getattr(dg, name)
    assert value if name == "__version__" else value.__doc__


@pytest.mark.parametrize("package", [*PACKAGES, "testing", "datasets"])
def test_package_lists_its_contents(package: str) -> None:
    room = import_module(f"dpgrain.{package}")
    assert len(set(room.__all__)) == len(room.__all__)
    assert all(getattr(room, name) is not None for name in room.__all__)


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match=r"use dpgrain\.quantile\(table, value, 0\.5\)"):
        dg.median  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="module 'dpgrain' has no attribute 'nothing'"):
        dg.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_import_loads_nothing_heavy() -> None:
    code = f"import sys, dpgrain; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run(code).strip() == "[]"


def test_import_loads_few_modules() -> None:
    code = (
        "import sys; before = set(sys.modules); import dpgrain; print(*set(sys.modules) - before)"
    )
    own = {name for name in run(code).split() if name.split(".")[0] == "dpgrain"}
    # Its other modules are the standard library's, needed by dataclasses.
    assert own == {
        "dpgrain",
        *(
            f"dpgrain.{name}"
            for name in ("_lazy_import", "_validate", "errors", "statistics", "units")
        ),
    }
    assert len(run(code).split()) < 60


@pytest.mark.slow
def test_names_are_loaded_on_request() -> None:
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
