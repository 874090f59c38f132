"""Rows are opened and noise is drawn with a charge: a walk over imports and calls finds who does so."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.rooms import SOURCE, modules_of, tree_of

# Names of dpgrain.noise by which nothing is drawn.
_HARMLESS = {
    "RandomSource", "RandomState", "SystemSource", "SeededSource", "raise_scale", "MAX_SCALE",
    "rounded", "BinomialDistribution", "CountDistribution", "PoissonDistribution",
    "LARGEST_COUNT", "AdditiveNoise", "GAUSSIAN", "LAPLACE", "noise_by_name",
}  # fmt: skip

# The gate.
GATE = {
    f"publishing/{name}.py"
    for name in ("charge", "curator", "publish", "best_of_runs", "reservation")
}
# Mechanisms of many draws, which draw with the source that a charge lends them for their event.
LENT = {
    "gradients/norms.py", "inputs/population.py", "learn/classes.py", "learn/confidence.py",
    "learn/rounds.py", "learn/tuning.py", "means/clipped.py", "means/grid.py", "means/radius.py",
    "means/recentred.py", "papers/pan_private.py", "papers/softcore.py",
    "papers/winsorized/ranges.py", "papers/winsorized/winsorized.py", "shared_records/bound.py",
}  # fmt: skip
# Parties of a sum without a curator, each of which holds its own data and draws for them.
PARTIES = {"shuffle/parties.py", "shuffle/protocol.py"}
# Contracts, which open engines and watch draws themselves.
CONTRACTS = {"testing/engine.py"}
# Audits, which open rows that are given in place of a table's, and publish no release.
AUDITS = {
    "auditing/audit.py",
    "auditing/runs.py",
    "auditing/scores.py",
    "auditing/training.py",
}


def _draws(tree: ast.Module) -> set[str]:
    """The names by which a module draws noise or opens the rows of tables."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpgrain.noise"):
            found |= {alias.name for alias in node.names} - _HARMLESS
        if isinstance(node, ast.Attribute) and node.attr in ("open_engine", "add_noise"):
            found.add(node.attr)
    return found


@cache
def _places(source: Path) -> set[str]:
    """The files that draw or open, but for those of the samplers themselves."""
    root = source / "dpgrain"
    files = {
        path.relative_to(root).as_posix(): _draws(tree_of(path))
        for path in modules_of(source).values()
    }
    return {name for name, found in files.items() if found and not name.startswith("noise/")}


def test_rows_are_opened_and_noise_is_drawn_behind_the_gate() -> None:
    assert _places(SOURCE) == GATE | LENT | PARTIES | CONTRACTS | AUDITS


def test_no_statistic_and_no_choice_draws_by_itself() -> None:
    rooms = {name.split("/")[0] for name in _places(SOURCE)}
    assert not rooms & {"statistics", "choices", "releases", "report", "planning", "ledger"}


def test_who_draws_by_itself_is_seen(tmp_path: Path) -> None:
    room = tmp_path / "dpgrain" / "statistics"
    room.mkdir(parents=True)
    for name, text in {
        "law.py": "from dpgrain.noise.sums import with_gaussian\n",
        "named.py": "def draw(event, *sums):\n    return event.law.add_noise(*sums)\n",
        "row.py": "def read(table):\n    return table.open_engine()\n",
        "fine.py": "from dpgrain.noise import RandomState\n",
    }.items():
        (room / name).write_text(text, encoding="utf-8")
    assert _places(tmp_path) == {f"statistics/{name}.py" for name in ("law", "named", "row")}
