"""The demonstration: what a city library publishes of its loans, by a file of releases."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from dpgrain._files import atomic_write, check_writable
from dpgrain._lazy_import import lazy_import
from dpgrain.cli import options as given
from dpgrain.cli.command import command
from dpgrain.cli.document import tell_json
from dpgrain.cli.fit import tell_model
from dpgrain.cli.printing import console, grid, plain, say, tell_estimates
from dpgrain.cli.run import releases_as_json
from dpgrain.errors import DataError

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from dpgrain import datasets
    from dpgrain.releases import run as releases
    from dpgrain.releases.run import Releases
else:
    pq, datasets = lazy_import("pyarrow.parquet"), lazy_import("dpgrain.datasets")
    releases = lazy_import("dpgrain.releases.run")

_READERS = 6000
# Rows and columns that are shown of the table; all would not fit in a terminal of 80 letters.
_SHOWN, _COLUMNS = 5, ("reader", "title", "subject", "branch", "day")

# What the library publishes: readers' loans of one subject are one element.
_FILE = """\
# Statistics of a library's loans: dpgrain run releases.toml --again
report = "report.html"

[table]
source = "loans.parquet"
user = "reader"
n_users = {readers}

[budget]
element = "subject"             # protects everything that one reader borrowed on one subject
epsilon = 1.0
delta = 1e-6

[release.titles]
statistic = "histogram"
item = "title"
domain = "titles.txt"
share = 0.3
output = "titles.csv"

[release.branches]
statistic = "count"
by = "branch"
domain = {branches}
share = 0.2
output = "branches.csv"

[release.days_kept]
statistic = "mean"
value = "days_kept"
bounds = [0, 60]
share = 0.2
output = "days_kept.csv"

[release.late]
fit = "logistic"
target = "late"
features = ["age"]
range = {{age = [0, 100]}}
classes = [0, 1]
share = 0.3
output = "late.json"
"""


@command("dpgrain demo --folder demo", name="demo")
def demo(
    folder: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", help="Folder of the table, the release file and the report."
        ),
    ] = Path("demo"),
    as_json: given.Json = False,
) -> None:
    """Publish from a synthetic table, with a report."""
    if not as_json:
        _tell_table()
    made = run(folder)
    if as_json:
        outputs = (folder / "loans.parquet", folder / "releases.toml", *made.plan.file.outputs)
        tell_json({**releases_as_json(made), "next": _next(folder)}, *outputs)
        return
    for name, release in made.items():
        say(f"\n{name}")
        if hasattr(release, "groups"):
            tell_estimates(release, _SHOWN)
        else:
            tell_model(release, _SHOWN, folder / "report.html")
    say(f"\n{made.promise}")
    say(f"\nThe report of all: {folder / 'report.html'}")
    say("Try next:")
    for line in _next(folder):
        say(f"  {line}")


def _tell_table() -> None:
    """Print what the table is, and a few of its rows, which are nobody's."""
    rows = datasets.loans(_READERS)
    table = grid("The loans of a city library, one year", *_COLUMNS)
    for row in rows.slice(0, _SHOWN).select(_COLUMNS).to_pylist():
        table.add_row(*(plain(str(value)) for value in row.values()))
    console().print(table)
    others = [name for name in rows.column_names if name not in _COLUMNS]
    say(
        f"… {rows.num_rows:,} rows of {_READERS:,} readers, with {', '.join(others)} as well. "
        "The table is generated: nobody is in it."
    )


def run(folder: Path) -> Releases:
    """Write the table and the file of releases to a folder, and run the file.

    Args:
        folder: the folder, which is made if it is missing.

    Raises:
        DataError: if the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"The folder {str(folder)!r} cannot be created; choose another.") from error
    check_writable(folder / "report.html")
    with atomic_write(folder / "loans.parquet") as part:
        pq.write_table(datasets.loans(_READERS), part)
    (folder / "titles.txt").write_text("\n".join(datasets.catalogue()), encoding="utf-8")
    file = folder / "releases.toml"
    branches = ", ".join(f'"{name}"' for name in datasets.BRANCHES)
    file.write_text(_FILE.format(readers=_READERS, branches=f"[{branches}]"), encoding="utf-8")
    return releases.releases(file, again=True)


def _next(folder: Path) -> list[str]:
    """Return commands to try next, as they can be typed here."""
    program = "dpgrain"
    if not shutil.which(program):
        own = Path(sys.argv[0])
        as_module = own.name == "__main__.py"
        program = f"{quote(sys.executable)} -m dpgrain" if as_module else quote(str(own))
    table = quote(str(folder / "loans.parquet"))
    return [
        f"{program} run {quote(str(folder / 'releases.toml'))} --dry-run",
        f"{program} top {table} --user reader --item title --element subject --epsilon 1 "
        "--delta 1e-6",
        f"{program} plan units --epsilon 1 --delta 1e-6 --n-users {_READERS} --records 16 "
        "--elements 4 --cells 12",
    ]
