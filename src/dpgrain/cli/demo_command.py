"""Command ``dpgrain demo``: a city library publishes statistics of its loans."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from dpgrain._files import atomic_write, check_writable
from dpgrain._lazy_import import lazy_import
from dpgrain.cli.command import command
from dpgrain.cli.document import finish
from dpgrain.cli.fit_command import print_model
from dpgrain.cli.options import option
from dpgrain.cli.printing import plain, print_estimates, print_table, say
from dpgrain.cli.run_command import releases_as_json
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
# Printed rows and columns of the table, which fit in a terminal of 80 characters.
_SHOWN, _COLUMNS = 5, ("reader", "title", "subject", "branch", "day")

# The release file; an element is a reader's loans on one subject.
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


@command("dpgrain demo --folder demo")
def demo(
    folder: Annotated[
        Path, option("Folder of the table, the release file and the report.", metavar="FOLDER")
    ] = Path("demo"),
) -> None:
    """Publish from a synthetic table, with a report."""
    _print_table()
    published = run(folder)
    for name, release in published.items():
        say(f"\n{name}")
        if hasattr(release, "groups"):
            print_estimates(release, _SHOWN)
        else:
            print_model(release, _SHOWN, folder / "report.html")
    say(f"\n{published.promise}")
    say(f"\nReport: {folder / 'report.html'}")
    say("Try next:")
    for line in _next(folder):
        say(f"  {line}")
    outputs = (folder / "loans.parquet", folder / "releases.toml", *published.plan.file.outputs)
    finish(
        lambda: {**releases_as_json(published), "next": _next(folder)}, *outputs, list_files=False
    )


def _print_table() -> None:
    """Print a description of the synthetic table and a few of its rows."""
    rows = datasets.loans(_READERS)
    first = rows.slice(0, _SHOWN).select(_COLUMNS).to_pylist()
    cells = [[plain(str(value)) for value in row.values()] for row in first]
    print_table("The loans of a city library, one year", _COLUMNS, cells)
    others = [name for name in rows.column_names if name not in _COLUMNS]
    say(
        f"… {rows.num_rows:,} rows of {_READERS:,} readers, with {', '.join(others)} as well. "
        "The table is synthetic."
    )


def run(folder: Path) -> Releases:
    """Write the table and the release file to a folder, which may be new, and run the file."""
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
    """Return commands to try next, which can be copied."""
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
