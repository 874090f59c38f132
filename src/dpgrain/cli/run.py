"""The command ``dpgrain run``: the releases of a file, planned, charged and made together."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpgrain._formatting import percent, quantity
from dpgrain._lazy_import import lazy_import
from dpgrain.cli import options as given
from dpgrain.cli.command import command
from dpgrain.cli.document import (
    mean_as_json,
    model_as_json,
    promise_as_json,
    release_as_json,
    tell_json,
)
from dpgrain.cli.printing import console, grid, plain, say, written
from dpgrain.cli.table import sides_of

if TYPE_CHECKING:
    from dpgrain.learn import summary
    from dpgrain.ledger import ledger as ledgers
    from dpgrain.ledger.ledger import Ledger
    from dpgrain.means import of_users
    from dpgrain.releases import plan as plans
    from dpgrain.releases import run as running
    from dpgrain.releases.plan import PlannedReleases
    from dpgrain.releases.run import Releases
    from dpgrain.statistics import printed
else:
    ledgers, plans = lazy_import("dpgrain.ledger.ledger"), lazy_import("dpgrain.releases.plan")
    of_users, running = lazy_import("dpgrain.means.of_users"), lazy_import("dpgrain.releases.run")
    printed = lazy_import("dpgrain.statistics.printed")
    summary = lazy_import("dpgrain.learn.summary")

# Letters of a key of the first estimate that are printed, at most.
_LETTERS = 40


@command(
    "dpgrain run releases.toml --dry-run",
    "dpgrain run releases.toml --where day=2026-01 --folder 2026-01 --ledger visits.ledger",
    name="run",
)
def run(
    file: Annotated[Path, typer.Argument(help="A release file, in TOML.", metavar="FILE")],
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Only print the plan: the guarantee and expected error of each release.",
        ),
    ] = False,
    where: given.Where = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Output folder, created if missing; by default the folder of the file.",
        ),
    ] = None,
    ledger: given.Ledger = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Publish again what was published before: it is charged again, and replaced.",
        ),
    ] = False,
    as_json: given.Json = False,
) -> None:
    """Publish all releases of a file under one guarantee.

    The whole file is checked and all releases are charged before any row is read. docs/releases.md
    describes the format.
    """
    with nullcontext() if ledger is None else ledgers.Ledger(ledger) as opened:
        plan = plans.plan_releases(file, where=sides_of(where or []), folder=folder)
        if not as_json:
            say(str(plan))
        if dry_run:
            _dry_run(plan, opened, again=again, as_json=as_json)
            return
        made = plan.run(again=again)
    if as_json:
        told = {"plan": _plan_as_json(plan), **releases_as_json(made)}
        tell_json(told, *plan.file.outputs)
        return
    _tell(made)
    say(str(made.promise))
    written(*plan.file.outputs)


def _tell(made: Releases) -> None:
    """Print what was published, in a line for each release, and what to take care of."""
    table = grid("What was published", "release", "numbers", "written to")
    for each in made.plan.releases:
        name, output = each.entry.name, each.entry.output
        there = "nowhere: set an output, or a report of the file" if output is None else output.name
        if output is None and made.plan.file.report is not None:
            there = "the report"
        table.add_row(plain(name), _in_brief(made[name]), plain(there))
    console().print(table)
    for name, release in made.items():
        for care in _cautions(release):
            say(f"{name}: warning: {care.removesuffix('.')}.", style="yellow")


def _cautions(release: Any) -> list[str]:
    """Return what readers of a release must take care of, in sentences."""
    if hasattr(release, "groups"):
        return [release.asked.take_care] if release.asked.take_care else []
    if hasattr(release, "value"):
        return [] if all(map(math.isfinite, release.value)) else [of_users.NO_MEAN]
    return list(summary.coefficients(release).cautions)


def _in_brief(release: Any) -> str:
    """Return the first number of a release in words, and how many there are."""
    if not hasattr(release, "groups"):
        # Means of users tell their vector, and models their coefficients.
        return "a mean of users" if hasattr(release, "value") else "a fitted model"
    if not len(release):
        return "none passed the threshold"
    (line,) = printed.lines_of(release, printed.shown(release, 1), letters=_LETTERS)
    told = f"{release.covers} {line.estimate}, standard error {line.std_error}"
    if not line.keys:
        return told
    first = "first" if printed.in_order(release) else "largest"
    return f"{quantity(len(release), 'estimate')}, {first} {', '.join(line.keys)}: {told}"


def _dry_run(plan: PlannedReleases, ledger: Ledger | None, *, again: bool, as_json: bool) -> None:
    """Tell what the releases would take of a ledger, if there is one; and refuse as it would."""
    parts = [] if ledger is None else _parts(plan, ledger)
    if not as_json:
        for promise, left, taken in parts:
            say(
                f"Promise: {promise}. At least {percent(left, up=False)} remains; these releases need "
                f"at most {percent(taken)}."
            )
    if ledger is not None:
        with running.told_of_outputs(plan):
            ledger.rehearse(*plan.guarantees, mark=plan.mark, again=again)
    if as_json:
        told = [
            {"promise": promise, "left": left, "taken": taken} for promise, left, taken in parts
        ]
        tell_json({"plan": _plan_as_json(plan), "ledger": told, **promise_as_json(plan.guarantee)})
        return
    say("Dry run: nothing was read, charged or written.")


def _parts(plan: PlannedReleases, ledger: Ledger) -> list[tuple[str, float, float]]:
    """Return each promise of a ledger, what is left of it, and what the file would take at most."""
    result = []
    for number, promise in ledger.promises.items():
        charged = ledger.would_take(number, *plan.guarantees)
        taken = sum(each.price.share_of(promise.caps) for each in charged)
        result.append((str(promise), ledger.left(number, plan.guarantee.scope), taken))
    return result


def _plan_as_json(plan: PlannedReleases) -> list[dict[str, Any]]:
    """Return what each release of a file promises and errs, as JSON's values."""
    return [
        {
            "release": each.entry.name,
            "publishes": each.entry.kind.name,
            "share": each.entry.share,
            "epsilon": each.guarantee.epsilon(),
            "delta": each.guarantee.delta,
            "error": None if each.expected is None else str(each.expected),
            "care": list(each.care),
        }
        for each in plan.releases
    ]


def releases_as_json(made: Releases) -> dict[str, Any]:
    """Return what was published by the names of releases, and the promise of all, as JSON's values."""
    told: dict[str, Any] = {}
    for each in made.plan.releases:
        release = made[each.entry.name]
        if hasattr(release, "groups"):
            told[each.entry.name] = release_as_json(release)
        elif hasattr(release, "value"):
            told[each.entry.name] = mean_as_json(release, each.entry.own["columns"])
        else:
            told[each.entry.name] = model_as_json(release)
    return {"releases": told, **promise_as_json(made.promise)}
