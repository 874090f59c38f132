"""Rows are opened and noise is drawn with a charge: a walk over imports and calls finds who does so."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.rooms import SOURCE, modules_of, needed, tree_of

# Names of dpgrain.noise that draw nothing; constants in capitals draw nothing either.
_HARMLESS = {
    "RandomSource", "RandomState", "SystemSource", "SeededSource", "raise_scale", "rounded",
    "BinomialDistribution", "CountDistribution", "PoissonDistribution", "AdditiveNoise",
    "noise_by_name", "random_bits", "random_source", "resolve_source",
}  # fmt: skip
# Functions that draw numbers of PyTorch, NumPy or Python, and that create their generators.
_IN_PLACE = {"normal_", "exponential_", "uniform_", "bernoulli_", "cauchy_", "log_normal_"}
_NUMBERS = _IN_PLACE | {
    "randn", "rand", "randn_like", "rand_like", "normal", "standard_normal", "laplace",
    "gauss", "normalvariate", "expovariate",
}  # fmt: skip
_GENERATORS = {"default_rng", "PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"}
# Random bits for other purposes than noise.
_BITS = {"bits", "random_bits", "randbits", "token_bytes"}
# Rights to open rows and draw noise.
_RIGHTS = {"Charge", "CountedSource", "Curator"}
# Files that create one: a run resumed from its file, and exact predictions for internal use.
_CREATORS = {"torch/privacy_engine.py", "cli/predict_command.py"}
# Packages of samplers and of the charge.
_BEHIND = ("noise/", "publishing/")
# Packages of audits and conformance suites, which open rows and watch draws, and publish nothing.
_WATCHES = ("auditing/", "testing/")


def _draws(tree: ast.Module) -> set[str]:
    """The names with which a module draws noise or reads the rows of tables."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpgrain.noise"):
            names = {alias.name for alias in node.names} - _HARMLESS
            found |= {name for name in names if not name.isupper()}
        if isinstance(node, ast.ImportFrom) and node.module == "dpgrain":
            found |= {alias.name for alias in node.names} & {"noise"}
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("dpgrain.noise")}
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if node.attr in ("open_engine", "add_noise"):
                found.add(node.attr)
            if node.attr == "words" and re.search("[Ss]ource|draws", owner):
                found.add(ast.unparse(node))
            if node.attr == "attach" and owner.endswith("source"):
                found.add("attach")
        if isinstance(node, ast.Call) and _draws_numbers(node):
            found.add(ast.unparse(node.func))
    names = {
        ast.unparse(node.func).split(".")[-1]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
    # Random bits for other purposes produce no numbers, and a release's bits seed no generator.
    if names & _BITS:
        found |= names & _NUMBERS
    if names & {"bits", "random_bits"}:
        found |= names & _GENERATORS
    return found


def _creates_right(tree: ast.Module) -> bool:
    """Whether a module creates a charge, or opens rows without one."""
    calls = (ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(call.split(".")[-1] in _RIGHTS for call in calls)


def _draws_numbers(call: ast.Call) -> bool:
    """Whether a call draws numbers without a generator, or seeds a generator with nothing."""
    name = ast.unparse(call.func)
    *module, last = name.split(".")
    if last in _GENERATORS:
        return not call.args and not call.keywords
    return (
        last in _NUMBERS
        and (last in _IN_PLACE or module in (["torch"], ["np", "random"], ["random"]))
        and not any(keyword.arg == "generator" for keyword in call.keywords)
    )


@cache
def _places(source: Path) -> set[str]:
    """Files that draw or read, except behind the gate and without publishing."""
    root = source / "dpgrain"
    files = {
        path.relative_to(root).as_posix(): _draws(tree_of(path))
        for path in modules_of(source).values()
    }
    # The package shows its parts, and an engine attaches the sources of its tables.
    files.get("__init__.py", set()).discard("noise")
    for name, found in files.items():
        if name.startswith("tables/"):
            found.discard("attach")
    return {name for name, found in files.items() if found and not name.startswith(_BEHIND)}


def _creators(source: Path) -> set[str]:
    """Files that create a right, except the charge itself and audits."""
    root = source / "dpgrain"
    paths = modules_of(source).values()
    names = {path.relative_to(root).as_posix() for path in paths if _creates_right(tree_of(path))}
    return {name for name in names if not name.startswith((*_BEHIND, *_WATCHES))}


def test_rows_and_noise_are_accessed_behind_the_gate() -> None:
    places = _places(SOURCE)
    assert {name for name in places if not name.startswith(_WATCHES)} == set()
    # The finder detects observers.
    assert {name.split("/")[0] + "/" for name in places} == set(_WATCHES)


def test_only_publish_and_resumed_runs_create_a_charge() -> None:
    assert _creators(SOURCE) == _CREATORS


def test_no_release_needs_observers() -> None:
    """Only a page shows the verdict of an audit, which has no draws."""
    watches = tuple("dpgrain." + room.removesuffix("/") for room in _WATCHES)
    users = {
        (name, target)
        for name, targets in needed(SOURCE).items()
        if not name.startswith((*watches, "dpgrain.cli"))
        for target in targets
        if target.startswith(watches)
    }
    assert {target for _, target in users} <= {"dpgrain.auditing.verdict"}
    assert {name.split(".")[1] for name, _ in users} <= {"report"}


def test_ungated_draws_are_detected(tmp_path: Path) -> None:
    seen = {
        "law.py": "from dpgrain.noise.noisy_sums import with_gaussian\n",
        "named.py": "def draw(event, *sums):\n    return event.law.add_noise(*sums)\n",
        "row.py": "def read(table):\n    return table.open_engine()\n",
        "word.py": "def seed(self):\n    return self._source.words(4)\n",
        "network.py": "def noise(size):\n    return torch.randn(size)\n",
        "device.py": "from dpgrain.noise.device_normals import NormalStream\n",
        "numpy.py": "def noise(size):\n    return np.random.normal(size=size)\n",
        "seedless.py": "def noise(size):\n    return np.random.default_rng().normal(size=size)\n",
        "module.py": "import dpgrain.noise.noisy_sums as law\n",
        "package.py": "from dpgrain import noise\n",
        "part.py": "from dpgrain.noise import noisy_sums\n",
        "place.py": "def noise(size):\n    return torch.empty(size).normal_()\n",
        "python.py": "def noise():\n    return random.gauss(0, 1)\n",
        "system.py": "def seed():\n    return SystemSource().words(4)\n",
        "around.py": "def rows(table, connection):\n    return table.source.attach(connection)\n",
        "seeded.py": "def noise(source):\n    return np.random.default_rng(source.bits('seed', 4))\n",
    }
    fine = {
        "fine.py": "from dpgrain.noise import RandomState\n",
        "example.py": "def example(size):\n    return torch.randn(size, generator=fixed)\n",
        "known.py": "def example(size):\n    return np.random.default_rng(1).normal(size=size)\n",
    }
    for room in ("statistics", "torch"):
        (tmp_path / "dpgrain" / room).mkdir(parents=True)
        for name, text in (seen | fine).items():
            (tmp_path / "dpgrain" / room / name).write_text(text, encoding="utf-8")
    assert _places(tmp_path) == {
        f"{room}/{name}" for room in ("statistics", "torch") for name in seen
    }


def test_created_charges_are_detected(tmp_path: Path) -> None:
    (tmp_path / "dpgrain" / "means").mkdir(parents=True)
    for right in ("Charge(told, source)", "draws.CountedSource(event, source)", "Curator()"):
        path = tmp_path / "dpgrain" / "means" / f"{len(right)}.py"
        path.write_text(f"def run(told, source):\n    return {right}\n", encoding="utf-8")
    assert len(_creators(tmp_path)) == 3
