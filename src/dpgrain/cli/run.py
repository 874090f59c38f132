"""The command ``dpgrain run``: the releases of a file, planned, charged and made together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpgrain._later import later
from dpgrain.cli.command import command
from dpgrain.cli.printing import say, written

if TYPE_CHECKING:
    from dpgrain.releases import plan as plans
else:
    plans = later("dpgrain.releases.plan")


@command(
    "dpgrain run releases.toml --dry-run",
    "dpgrain run releases.toml",
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
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Publish anew where outputs are there: charged anew, and replaced."
        ),
    ] = False,
) -> None:
    """Publish all that a file of releases asks for, under one promise.

    The file is checked as a whole, and all releases are charged before anything is read.
    docs/releases.md says what may stand in it.
    """
    plan = plans.plan_releases(file)
    say(str(plan))
    if dry_run:
        say("Nothing was read, charged or written: --dry-run.")
        return
    made = plan.run(again=again)
    for each in plan.releases:
        if care := _care(made[each.entry.name]):
            say(f"{each.entry.name}: take care: {care}.", style="yellow")
    say(str(made.promise))
    written(*plan.file.outputs)


def _care(release: object) -> str:
    """Return the warning of a release, if it has one."""
    asked = getattr(release, "asked", None)
    return getattr(asked, "take_care", "") if not callable(asked) else ""
