"""Modules loaded by a command: none that it does not use, in a separate process."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from typer.main import get_command

from dpgrain.cli.app import app

# Slow imports that no command needs for its help or for a guarantee in numbers.
LATE = (
    "scipy.stats",
    "scipy.signal",
    "scipy.optimize",
    "scipy.sparse",
    "pandas",
    "sklearn",
    "pyarrow",
    "duckdb",
    "matplotlib",
    "jinja2",
    "polars",
    "mpmath",
)
GAUSSIAN = ("guarantee", "--noise-multiplier", "4", "--delta", "1e-6")
SAMPLED = (*GAUSSIAN, "--sampling-rate", "0.01", "--rounds", "1000")


def after(code: str, names: tuple[str, ...]) -> str:
    """Which of some modules a process has loaded when the code has run."""
    end = f"import sys; print('LOADED', [name for name in {names!r} if name in sys.modules])"
    command = [sys.executable, "-W", "error", "-c", f"{code}\n{end}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.rsplit("LOADED ", 1)[-1].strip()


def running(*commands: tuple[str, ...]) -> str:
    """Code that runs commands one after the other."""
    return f"""import sys
from dpgrain.cli import main
for arguments in {commands!r}:
    sys.argv = ["dpgrain", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code, arguments
"""


@pytest.mark.slow
def test_help_of_every_command_loads_no_numbers() -> None:
    names = get_command(app).list_commands(None)  # type: ignore[attr-defined]
    assert {"histogram", "guarantee", "plan", "fit", "predict", "demo"} < set(names)
    asked = [(name, "--help") for name in names]
    assert (
        after(
            running(("--help",), ("--version",), *asked), ("numpy", "scipy", "rich.markdown", *LATE)
        )
        == "[]"
    )


@pytest.mark.slow
@pytest.mark.parametrize("command", [GAUSSIAN, SAMPLED], ids=["gaussian", "sampled"])
def test_guarantee_loads_its_computation(command: tuple[str, ...]) -> None:
    assert after(running(command), LATE) == "[]"


def test_special_functions_load_none_of_numpys_tools() -> None:
    tools = ("numpy.f2py", "numpy.testing", "numpy.polynomial", "numpy.ma")
    code = "import numpy as np\nimport dpgrain.numerics.special_functions\n"
    code += "assert not {'f2py', 'testing', 'polynomial', 'ma'} & set(vars(np))\n"
    assert after(code, tools) == "[]"
    # They are there when they are used, also through what SciPy keeps of NumPy.
    code += "import scipy._lib.array_api_compat.numpy as copied\n"
    code += "assert copied.ma.masked_array is np.ma.masked_array\n"
    code += "assert np.polynomial.Polynomial([1, 2])(3) == 7"
    assert "numpy.ma" in after(code, tools)


def test_first_sampled_answer_loads_no_statistics_library() -> None:
    code = "import dpgrain as dg\ndg.accounting.SampledGaussian(1.0, 0.01, 1000).epsilon(1e-6)"
    assert after(code, LATE) == "[]"


@pytest.mark.slow
def test_estimators_load_only_scikit_learns_modules() -> None:
    # scikit-learn's own imports depend on its version.
    code = "import sys, sklearn.base\nbefore = set(sys.modules)\n"
    code += "from dpgrain.learn import LogisticRegression\n"
    code += "for name in before - {'sys'}: del sys.modules[name]"
    assert after(code, (*LATE, "rich", "typer")) == "[]"


NEEDS_TORCH = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="PyTorch is not installed: pip install 'dpgrain[torch]'",
)
PACKAGES = (
    "dpgrain",
    "dpgrain.accounting",
    "dpgrain.means",
    "dpgrain.tables",
    "dpgrain.learn",
    "dpgrain.noise",
    "dpgrain.optimize",
    "dpgrain.publishing",
    "dpgrain.papers",
    "dpgrain.shuffle",
    "dpgrain.testing",
    pytest.param("dpgrain.torch", marks=NEEDS_TORCH),
)


# The packages of each extra, and calls that need it.
_NEED_AN_EXTRA = (
    ("torch", "torch", ("dpgrain.torch.train", "dpgrain.torch.losses.causal_lm")),
    (
        "sklearn",
        "learn",
        ("dpgrain.learn.LogisticRegression", "dpgrain.Elements.kmeans({'a': [0], 'b': [1]}, k=2)"),
    ),
    ("threadpoolctl", "learn", ("dpgrain.learn.minimise",)),
    ("jinja2", "report", ("release.report('page.html')",)),
    ("matplotlib", "report", ("release.plot()",)),
    ("pandas", "pandas", ("release.to_pandas()",)),
)


# Hides the packages whose names are put into ``missing``.
_HIDE = """import sys
from importlib.machinery import PathFinder
missing = set()
class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, *args):
        if name.partition(".")[0] in missing:
            return None
        return super().find_spec(name, *args)
sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""


def printed(code: str) -> str:
    """Run code in a process that can hide packages, and return its output."""
    call = [sys.executable, "-c", _HIDE + code]
    return subprocess.run(call, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def said_without() -> dict[str, list[str]]:
    """Missing package → printed errors; one process imports the rest, and is forked for each."""
    code = f"""import os
import dpgrain, pyarrow, dpgrain.statistics.moments, dpgrain.tables.engines.duckdb
for package, extra, calls in {_NEED_AN_EXTRA!r}:
    assert package not in sys.modules
    print("WITHOUT", package, flush=True)
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
        continue
    missing.add(package)
    table = dpgrain.read(pyarrow.table({{"who": [1, 2]}}), user="who", n_users=2)
    release = dpgrain.count(table, unit=dpgrain.User(), epsilon=1.0)
    assert (release._repr_html_() is None) == (extra == "report")
    for call in calls:
        try:
            eval(call)
        except dpgrain.MissingPackageError as error:
            print(error)
    sys.stdout.flush()
    os._exit(0)"""
    parts = printed(code).split("WITHOUT ")[1:]
    return {part.splitlines()[0]: part.splitlines()[1:] for part in parts}


@pytest.mark.parametrize(("package", "extra", "calls"), _NEED_AN_EXTRA)
def test_a_missing_package_is_reported_with_its_extra(
    package: str, extra: str, calls: tuple[str, ...], said_without: dict[str, list[str]]
) -> None:
    said = said_without[package]
    assert len(said) == len(calls)
    for line in said:
        assert f"requires {package}, which is not installed" in line
        assert line.endswith(f"run pip install 'dpgrain[{extra}]'.")


def test_zoned_rows_need_pandas_before_any_charge() -> None:
    code = """missing.add("pandas")
import dpgrain, numpy as np, pyarrow as pa
with dpgrain.budget(1.0, 1e-6) as budget:
    for rows in (0, 2):
        users = pa.array([0] * rows, pa.timestamp("s", "UTC"))
        for call in (
            lambda: dpgrain.mean_of_users(np.ones((rows, 1)), users=users, bound=1.0, share=0.1),
            lambda: dpgrain.mean_of_users(pa.table({"a": [1.0] * rows}), bound=1.0, share=0.1),
        ):
            try:
                call()
            except dpgrain.MissingPackageError as error:
                print("missing")
    print(budget.left)"""
    assert printed(code).split() == [*["missing"] * 4, "1.0"]


def test_command_without_its_extra_prints_its_installation() -> None:
    code = "import sys; sys.modules['typer'] = None; from dpgrain.cli import main; main()"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert "pip install 'dpgrain[cli]'" in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_lazy_packages_have_all_their_public_names(package: str) -> None:
    # Every module first, in a fresh process: an import binds it in its package, under its name.
    code = f"""import importlib, pkgutil, types
import {package} as package
for module in pkgutil.iter_modules(package.__path__, {package!r} + "."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
assert dir(package) == sorted(package.__all__)
modules = {{name for name, home in package._homes.items() if home == {package!r}}}
for name in package.__all__:
    value = getattr(package, name)
    assert isinstance(value, types.ModuleType) == (name in modules), name
    assert name in package._homes or name in vars(package), name
for name, home in package._homes.items():
    whole = {package!r} + "." + name
    value = importlib.import_module(whole) if name in modules else None
    assert getattr(package, name) is (value or getattr(importlib.import_module(home), name)), name
assert set(package._homes) <= set(package.__all__)
try:
    package.nothing
except AttributeError as error:
    assert str(error) == "module {package!r} has no attribute 'nothing'", error
else:
    raise AssertionError
"""
    assert after(code, ("nothing",)) == "[]"


@pytest.mark.slow
def test_the_benchmark_of_starting_up_runs(capsys: pytest.CaptureFixture[str]) -> None:
    importlib.import_module("benchmarks.startup").main(["--runs", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("dpgrain --help") for line in lines)
    assert lines[-1].startswith("an estimator ÷ import sklearn.base: ")
