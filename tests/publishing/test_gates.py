"""Rows are opened and noise is drawn with a charge: a walk over imports and calls finds who does so."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.rooms import SOURCE, modules_of, needed, tree_of

# Names of dpgrain.noise that draw nothing.
_HARMLESS = {
    "RandomSource", "RandomState", "SystemSource", "SeededSource", "raise_scale", "MAX_SCALE",
    "rounded", "BinomialDistribution", "CountDistribution", "PoissonDistribution",
    "LARGEST_COUNT", "AdditiveNoise", "GAUSSIAN", "LAPLACE", "noise_by_name",
    "random_bits", "random_source", "resolve_source",
}  # fmt: skip
# Functions that draw numbers of PyTorch or NumPy, and that create their generators.
_NUMBERS = {"randn", "rand", "normal", "normal_", "standard_normal", "laplace", "exponential_"}
_GENERATORS = {"default_rng", "PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"}
# Random bits for other purposes than noise.
_BITS = {"bits", "random_bits", "randbits", "token_bytes"}
# A file without any of these words neither draws nor reads, and need not be parsed.
_WORDS = re.compile(
    "|".join(
        ["dpgrain.noise", "open_engine", "add_noise", "words", *_NUMBERS, *_GENERATORS, *_BITS]
    )
)
# Packages of samplers and of the charge.
_BEHIND = ("noise/", "publishing/")
# Packages of audits and conformance suites, which open rows and watch draws, and publish nothing.
_WATCHES = ("auditing/", "testing/")


def _draws(tree: ast.Module) -> set[str]:
    """The names with which a module draws noise or reads the rows of tables."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpgrain.noise"):
            found |= {alias.name for alias in node.names} - _HARMLESS
        if isinstance(node, ast.Attribute):
            if node.attr in ("open_engine", "add_noise"):
                found.add(node.attr)
            if node.attr == "words" and ast.unparse(node.value).endswith(("source", "draws")):
                found.add(ast.unparse(node))
        if isinstance(node, ast.Call) and _draws_numbers(node):
            found.add(ast.unparse(node.func))
    names = {_name(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    # Random bits for other purposes produce no numbers, and a release's bits seed no generator.
    if names & _BITS:
        found |= names & _NUMBERS
    if names & {"bits", "random_bits"}:
        found |= names & _GENERATORS
    return found


def _draws_numbers(call: ast.Call) -> bool:
    """Whether a call draws numbers without a generator, or seeds a generator with nothing."""
    last = _name(call.func)
    if last in _GENERATORS:
        return not call.args and not call.keywords
    return (
        last in _NUMBERS
        and ast.unparse(call.func) in (f"torch.{last}", f"np.random.{last}")
        and not any(keyword.arg == "generator" for keyword in call.keywords)
    )


def _name(function: ast.expr) -> str:
    """The last part of the name of a called function."""
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


@cache
def _places(source: Path) -> set[str]:
    """Files that draw or read, except behind the gate and without publishing."""
    root = source / "dpgrain"
    files = {path.relative_to(root).as_posix(): path for path in modules_of(source).values()}
    return {
        name
        for name, path in files.items()
        if not name.startswith(_BEHIND)
        and _WORDS.search(path.read_text(encoding="utf-8"))
        and _draws(tree_of(path))
    }


def test_rows_and_noise_are_accessed_behind_the_gate() -> None:
    places = _places(SOURCE)
    assert {name for name in places if not name.startswith(_WATCHES)} == set()
    # The finder detects observers.
    assert {name.split("/")[0] + "/" for name in places} == set(_WATCHES)


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
