"""The command ``dpgrain run``: the releases of a file, planned, charged and made together."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpgrain._later import later
from dpgrain._wording import counted
from dpgrain.cli import options as given
from dpgrain.cli.command import command
from dpgrain.cli.printing import console, grid, plain, say, written
from dpgrain.cli.table import sides_of

if TYPE_CHECKING:
    from dpgrain.ledger import ledger as ledgers
    from dpgrain.ledger.ledger import Ledger
    from dpgrain.releases import plan as plans
    from dpgrain.releases.plan import PlannedReleases
    from dpgrain.releases.run import Releases
    from dpgrain.statistics import printed
else:
    ledgers, plans = later("dpgrain.ledger.ledger"), later("dpgrain.releases.plan")
    printed = later("dpgrain.statistics.printed")

# A key of the first estimate is cut to so many letters.
_LETTERS = 40


@command(
    "dpgrain run releases.toml --dry-run",
    "dpgrain run releases.toml --where day=2026-01 --folder 2026-01 --ledger visits.ledger",
    name="run",
)
def run(
    file: Annotated[Path, typer.Argument(help="A file of releases, in TOML.", metavar="FILE")],
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Only print the plan: what each release promises, and the error to expect.",
        ),
    ] = False,
    where: given.Where = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the outputs, made if there is none; that of the file without it."
        ),
    ] = None,
    ledger: given.Ledger = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Publish anew what was published before: charged anew, and replaced."
        ),
    ] = False,
) -> None:
    """Publish all that a file of releases asks for, under one promise.

    The file is checked as a whole, and all releases are charged before anything is read.
    docs/releases.md says what may stand in it.
    """
    with nullcontext() if ledger is None else ledgers.Ledger(ledger) as opened:
        plan = plans.plan_releases(file, where=sides_of(where or []), folder=folder)
        say(str(plan))
        if dry_run:
            if opened is not None:
                _tell_left(plan, opened)
                opened.rehearse(*plan.guarantees, mark=plan.mark, again=again)
            say("Nothing was read, charged or written: --dry-run.")
            return
        made = plan.run(again=again)
    _tell(made)
    say(str(made.promise))
    written(*plan.file.outputs)


def _tell(made: Releases) -> None:
    """Print what was published, in a line for each release, and what to take care of."""
    table = grid("What was published", "release", "numbers", "written to")
    for each in made.plan.releases:
        name, output = each.entry.name, each.entry.output
        there = (
            "nowhere: give it an output, or the file a report" if output is None else output.name
        )
        if output is None and made.plan.file.report is not None:
            there = "the report"
        table.add_row(plain(name), _in_brief(made[name]), plain(there))
    console().print(table)
    for name, release in made.items():
        care = getattr(getattr(release, "asked", None), "take_care", "")
        if care:
            say(f"{name}: take care: {care}.", style="yellow")


def _in_brief(release: Any) -> str:
    """Return the first number of a release in words, and how many there are."""
    if not hasattr(release, "groups"):
        # Means of users tell their vector, and models their coefficients.
        return "a mean of users" if hasattr(release, "value") else "a fitted model"
    if not len(release):
        return "none passed the threshold"
    (line,) = printed.lines_of(release, printed.shown(release, 1), letters=_LETTERS)
    told = f"{line.estimate} ± {line.std_error}"
    if not line.keys:
        return told
    first = "first" if printed.in_order(release) else "largest"
    return f"{counted(len(release), 'estimate')}, {first} {', '.join(line.keys)}: {told}"


def _tell_left(plan: PlannedReleases, ledger: Ledger) -> None:
    """Print what the ledger holds, and what the file would take of each promise."""
    for number, promise in ledger.promises.items():
        charged = ledger.would_take(number, *plan.guarantees)
        taken = sum(each.price.share_of(promise.caps) for each in charged)
        left = ledger.left(number, plan.guarantee.scope)
        say(
            f"{promise}: {100 * left:.1f}% is left where least is, and these releases take at most "
            f"{100 * taken:.1f}%."
        )
