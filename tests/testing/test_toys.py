"""CONTRIBUTING lists everything that a plug-in needs: a sample of each type, in a copy.

Means and engines come from outside the package, and have separate tests (`test_toy_mean.py`,
`tests/tables/engines/test_another.py`).
"""

from __future__ import annotations

import difflib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

import dpgrain as dg

SOURCE = Path(dg.__file__).parent


@dataclass(frozen=True)
class Toy:
    """Something new in the package.

    Args:
        files: number of changed files, according to CONTRIBUTING.
        lines: the number of new lines in them.
        edits: the edits: a file, a unique text in it, and the text that will follow it; for a new
            file the text is empty.
    """

    files: int
    lines: int
    edits: tuple[tuple[str, str, str], ...]
    program: str
    prints: str | tuple[str, ...]


ROWS = """
import pyarrow as pa, dpgrain as dg
ROWS = {"who": [1, 1, 2, 3], "item": ["a", "b", "a", "a"], "x": [1.0, 2.0, 3.0, 0.5]}
TABLE = dg.read(pa.table(ROWS), user="who")
ASKED = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6}
"""

LAW = Toy(
    4,
    14,
    (
        ("units.py", 'Literal["gaussian", "laplace"', ', "twin"'),
        (
            "noise/additive_noise.py",
            "#: Distributions that releases can use.\n",
            'TWIN = AdditiveNoise(**{**vars(LAPLACE), "name": "twin"})\n',
        ),
        ("noise/additive_noise.py", "for law in (GAUSSIAN, LAPLACE", ", TWIN"),
        ("accounting/events/additive.py", "import GAUSSIAN, LAPLACE, ", "TWIN, "),
        (
            "accounting/events/additive.py",
            "return Loss(pure=pure, rho=self.count * one * one / 2)\n",
            "\n\n@dataclass(frozen=True)\nclass Twin(Laplace):\n"
            '    """Laplace noise by another name."""\n\n'
            "    law: ClassVar[AdditiveNoise] = TWIN\n",
        ),
        ("accounting/events/additive.py", "Additive: TypeAlias = Gaussian | Laplace", " | Twin"),
        ("accounting/events/additive.py", "for kind in (Gaussian, Laplace", ", Twin"),
        ("words/event_sentences.py", '    "Laplace": _laplace,\n', '    "Twin": _laplace,\n'),
    ),
    f"""{ROWS}
asked = {{**ASKED, "noise": "twin", "random_state": 1}}
sums = dg.sum(TABLE, "x", bounds=(0.0, 3.0), by="item", domain=["a", "b"], clip=3.0, **asked)
twin = dg.sum(TABLE, "x", bounds=(0.0, 3.0), by="item", domain=["a", "b"], clip=3.0,
              **{{**asked, "noise": "laplace"}})
assert abs(sums.guarantee.epsilon() - 1) < 1e-3, sums.guarantee.epsilon()
assert abs(sums.low / twin.low - 1).max() < 1e-3
spread = dg.distribution(TABLE, "x", [1.0, 2.0], **asked)
held = dg.elements_per_user(TABLE, by="item", **asked)
print(sums.noise, held.noise, sums.guarantee.event)
""",
    "twin twin Twin(",
)

WAY_IN = Toy(
    1,
    6,
    (
        (
            "tables/sources/read_arguments.py",
            "    if isinstance(data, duckdb.DuckDBPyRelation):\n        require_names",
            '(data.columns, "The relation")\n        return RelationSource(data)\n'
            "    if isinstance(data, dict):\n"
            '        return ArrowSource(pa.table(data), "The dictionary")\n'
            "    if isinstance(data, duckdb.DuckDBPyRelation):\n        require_names",
        ),
        (
            "tables/sources/read_arguments.py",
            "if isinstance(data, pa.Table | pa.RecordBatchReader",
            " | dict",
        ),
    ),
    f"""{ROWS}
asked = {{**ASKED, "by": "item", "random_state": 1}}
of_lists = dg.count(dg.read(ROWS, user="who"), **asked)
assert of_lists.to_pandas().equals(dg.count(TABLE, **asked).to_pandas())
print(of_lists.guarantee.provenance)
""",
    "as given",
)

SQUARES = '''
from dataclasses import replace
from typing import Any

from dpgrain.publishing import Promise, publishes
from dpgrain.statistics.statistic import Statistic, register
from dpgrain.statistics.sums_query import SumsQuery
from dpgrain.statistics.values import Moments
from dpgrain.units import Relation

SQUARES = register(
    Statistic("squares", "What squares add up to", title="sum of squares of", amount="sum")
)


@publishes
def squares(
    table: Any, value: str, high: float, *, by: Any = None, unit: Any, epsilon: float | None = None,
    delta: float = 0.0, share: float | None = None, relation: Relation = "zero_out",
    domain: Any = None, random_state: Any = None, progress: bool | None = None,
) -> SumsQuery:
    """Publish the sum of the squares of a column."""
    promise = Promise.of(unit, epsilon, delta, relation, share)
    return SquaresQuery.of(
        SQUARES, table, by, promise=promise, domain=domain, value=value, measure=Moments.of(2),
        bounds=(0.0, high), random_state=random_state, progress=progress,
    )


class SquaresQuery(SumsQuery):
    def release(self, measured: Any) -> Any:
        only = replace(measured, masses=measured.masses[:, 2:])
        return only.as_histogram(scale=self.bounds[1] ** 2)
'''
FILE = """
[budget]
unit = "user"
epsilon = 2
delta = 1e-6

[release.squares]
statistic = "squares"
value = "x"
high = 3.0
by = "item"
domain = ["a", "b"]
share = 0.5
"""
STATISTIC = Toy(
    3,
    36,
    (
        ("statistics/squares.py", "", SQUARES),
        (
            "statistics/__init__.py",
            '    "top": "dpgrain.statistics.top",\n',
            '    "squares": "dpgrain.statistics.squares",\n',
        ),
        ("__init__.py", '    "std",\n', '    "squares",\n'),
        (
            "__init__.py",
            "    from dpgrain.statistics.top import top\n",
            "    from dpgrain.statistics.squares import squares\n",
        ),
    ),
    f"""{ROWS}
from pathlib import Path
Path("releases.toml").write_text({FILE!r})
asked = {{"by": "item", "domain": ["a", "b"]}}
made = dg.plan_releases("releases.toml", TABLE).run()["squares"]
query = dg.squares.query(TABLE, "x", 3.0, **asked, **ASKED)
with dg.budget(2.0, 1e-6) as budget:
    half = dg.squares(TABLE, "x", 3.0, **asked, unit=dg.User(), share=0.5)
assert 0.5 < budget.left < 1, budget.left
assert abs(half.guarantee.epsilon() - made.guarantee.epsilon()) < 0.02
print(type(made).__name__, round(query.plan.guarantee.epsilon(), 6))
import sys
import pyarrow.parquet
from dpgrain.cli import main
pyarrow.parquet.write_table(pa.table(ROWS), "rows.parquet")
words = "squares rows.parquet --user who --value x --high 3 --unit user --epsilon 1 --delta 1e-6"
sys.argv = ["dpgrain", *words.split()]
main()
""",
    ("Histogram 1.0", "Sum of squares of x"),
)

RESPONSE = '''
from dataclasses import dataclass

from dpgrain.accounting.events.base import Event, Neighbours
from dpgrain.accounting.losses.loss import Loss
from dpgrain.units import Level


@dataclass(frozen=True)
class Response(Event):
    """A random answer of each user."""

    bound: float
    level: Level = "user"

    def cost(self, neighbours: Neighbours) -> Loss:
        return Loss(pure=self.bound * neighbours.steps(self.level, "replace"))
'''
EVENT = Toy(
    3,
    21,
    (
        ("accounting/events/responses.py", "", RESPONSE),
        ("accounting/__init__.py", '    "RDP",\n', '    "Response",\n'),
        (
            "accounting/__init__.py",
            "    from dpgrain.accounting.events.region_events import Scoped\n",
            "    from dpgrain.accounting.events.responses import Response\n",
        ),
        (
            "accounting/__init__.py",
            '        "dpgrain.accounting.events.region_events": ("Scoped",),\n',
            '        "dpgrain.accounting.events.responses": ("Response",),\n',
        ),
        (
            "words/event_sentences.py",
            '    "SoftCore": _soft_core,\n',
            '    "Response": lambda event: f"Random answers, ε = {event.bound:g}.",\n',
        ),
    ),
    """
from dpgrain.accounting import Event
from dpgrain.words.event_sentences import sentences
event = Event.from_dict({"event": "Response", "bound": 0.5})
print(event.epsilon(), sentences(event + event))
""",
    "0.5 ['Random answers, ε = 0.5.'",
)

# One parameter, which Python, the command line and files of releases take.
PARAMETER = Toy(
    1,
    3,
    (
        (
            "statistics/contribution_counts.py",
            "    edges: Sequence[int] = _EDGES,\n",
            "    first: int = 1,\n",
        ),
        (
            "statistics/contribution_counts.py",
            "They are\n            public, and a last bin contains larger numbers.\n",
            "        first: the smallest edge that counts.\n",
        ),
        (
            "statistics/contribution_counts.py",
            "    limits = tuple(_checked_edges(edges))\n",
            "    limits = tuple(edge for edge in limits if edge >= first)\n",
        ),
    ),
    f"""{ROWS}
import sys
import pyarrow.parquet
from pathlib import Path
from dpgrain.cli import main
asked = {{**ASKED, "by": "item", "first": 5000, "random_state": 1}}
assert len(dg.elements_per_user(TABLE, **asked)) == 6
Path("releases.toml").write_text(
    "[budget]\\nunit = 'user'\\nepsilon = 1\\ndelta = 1e-6\\n"
    "[release.held]\\nstatistic = 'elements_per_user'\\nby = 'item'\\nfirst = 5000\\nshare = 1.0\\n"
)
assert len(dg.plan_releases("releases.toml", TABLE).run()["held"]) == 6
pyarrow.parquet.write_table(pa.table(ROWS), "rows.parquet")
words = "elements-per-user rows.parquet --user who --by item --unit user --epsilon 1 --delta 1e-6"
sys.argv = ["dpgrain", *words.split(), "--first", "5000"]
main()
""",
    "10,000",
)

OPTION = Toy(
    2,
    14,
    (
        (
            "tables/rows.py",
            "        return self._over(source, filters=(*self.filters, expression.text))\n",
            "\n    def positive(self, column: str) -> Self:\n"
            '        """Return the table of the rows with a positive value."""\n'
            '        return self.filter(f"{column} > 0")\n',
        ),
        (
            "releases/table_options.py",
            '        "CONDITION",\n    ),\n',
            "    TableOption(\n"
            '        "positive",\n'
            "        str,\n"
            '        "--positive",\n'
            '        "Only rows with a positive value in this column.",\n'
            '        lambda stated, _: (("positive", column) for column in stated),\n'
            "        lambda rows, _, column, _tables: rows.positive(column),\n"
            '        "[table] positive:",\n'
            '        "COLUMN",\n'
            "    ),\n",
        ),
    ),
    f"""{ROWS}
import sys
import pyarrow.parquet
from pathlib import Path
from dpgrain.cli import main
assert TABLE.positive("x").filters == ("x > 0",)
pyarrow.parquet.write_table(pa.table(ROWS), "rows.parquet")
Path("releases.toml").write_text(
    "[table]\\nsource = 'rows.parquet'\\nuser = 'who'\\npositive = 'x'\\n"
    "[budget]\\nunit = 'user'\\nepsilon = 1\\ndelta = 1e-6\\n"
    "[release.all]\\nstatistic = 'count'\\nclip = 5.0\\nshare = 1.0\\n"
)
assert "only rows where x > 0" in dg.plan_releases("releases.toml").run()["all"].guarantee.summary
words = "count rows.parquet --user who --positive x --unit user --epsilon 1 --delta 1e-6"
sys.argv = ["dpgrain", *words.split()]
main()
""",
    "only rows where x > 0",
)

COMMAND = Toy(
    2,
    14,
    (
        (
            "cli/people.py",
            "",
            """
from typing import Annotated

import typer

from dpgrain.cli.command import command
from dpgrain.cli.printing import say


@command("--unit user")
def people(unit: Annotated[str, typer.Option(help="The unit.")] = "user") -> None:
    \"\"\"Say what the unit is.\"\"\"
    say(f"a unit is a {unit}")
""",
        ),
        (
            "cli/app.py",
            '"Begin here": {"demo": "dpgrain.cli.demo_command:demo"',
            ', "people": "dpgrain.cli.people:people"',
        ),
    ),
    """
import sys
from dpgrain.cli import main
sys.argv = ["dpgrain", "people", "--unit", "reader"]
main()
""",
    "a unit is a reader",
)

LAYER = Toy(
    1,
    14,
    (
        (
            "torch/layers.py",
            "#: Rejected layers, with the reason.\n",
            "class Shift(nn.Module):\n"
            "    def __init__(self, size):\n"
            "        super().__init__()\n"
            "        self.bias = nn.Parameter(torch.zeros(size))\n\n"
            "    def forward(self, x):\n"
            "        return x + self.bias\n\n\n"
            "def _shift(layer, x, b, layout):\n"
            '    return {"bias": StoredGradients(layout, layout.per_block(b))}\n\n\n',
        ),
        ("torch/layers.py", "    nn.PReLU: _slope,\n", "    Shift: _shift,\n"),
    ),
    """
import torch
from dpgrain.torch.clipping import clipped_sums
from dpgrain.torch.layers import Shift
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.recorder import Recorder
layout, module = BlockLayout([1, 2]), Shift(2)
recorder = Recorder(module, (), lambda: layout)
(module(torch.zeros(3, 2)) * torch.tensor([[3.0, 4.0], [0.0, 1.0], [0.0, 0.0]])).sum().backward()
print(clipped_sums(recorder.uses, layout, 1.0)[module.bias].numpy().round(3))
""",
    "[0.6 1.3]",
)

TOYS = {
    "a noise law": LAW,
    "a source of rows": WAY_IN,
    "a statistic": STATISTIC,
    "an event": EVENT,
    "a parameter": PARAMETER,
    "an option of a table": OPTION,
    "a command": COMMAND,
    "a layer": LAYER,
}


def made_of(toy: Toy, folder: Path) -> Path:
    """Copy the package, with a toy in it."""
    copy = folder / "dpgrain"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for file, before, after in toy.edits:
        path = copy / file
        text = path.read_text(encoding="utf-8") if before else ""
        assert text.count(before) == 1 if before else not path.exists(), (file, before)
        path.write_text(text.replace(before, before + after) if before else after, encoding="utf-8")
    return copy


def _new_lines(copy: Path, file: Path) -> int:
    """Count the lines of a file of a copy that the package lacks."""
    before = (SOURCE / file).read_text("utf-8").splitlines() if (SOURCE / file).exists() else []
    after = (copy / file).read_text("utf-8").splitlines()
    return sum(line.startswith("+ ") for line in difflib.ndiff(before, after))


@pytest.mark.slow
@pytest.mark.parametrize("kind", TOYS)
def test_sample_is_built_by_its_recipe(kind: str, tmp_path: Path) -> None:
    toy = TOYS[kind]
    if toy is LAYER and find_spec("torch") is None:
        pytest.skip("PyTorch is not installed: pip install 'dpgrain[torch]'")
    copy = made_of(toy, tmp_path)
    changed = {
        path.relative_to(copy)
        for path in copy.rglob("*.py")
        if not (SOURCE / path.relative_to(copy)).exists()
        or path.read_bytes() != (SOURCE / path.relative_to(copy)).read_bytes()
    }
    assert len(changed) == toy.files
    assert sum(_new_lines(copy, file) for file in changed) == toy.lines
    made = subprocess.run(
        [sys.executable, "-W", "error", "-c", toy.program],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert made.returncode == 0, made.stderr
    for text in [toy.prints] if isinstance(toy.prints, str) else toy.prints:
        assert text in made.stdout
