"""Command ``dpgrain run``: plan, charge and publish all releases of a file."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import dpgrain as dg
from dpgrain._files import reject_locked
from dpgrain._formatting import quantity
from dpgrain._lazy_import import lazy_import
from dpgrain.cli import options as given
from dpgrain.cli.command import command
from dpgrain.cli.document import (
    finish,
    guarantee_as_json,
    mean_as_json,
    model_as_json,
    release_as_json,
)
from dpgrain.cli.options import argument, option
from dpgrain.cli.printing import as_json, plain, print_table, say
from dpgrain.cli.spelling import spelled_inside
from dpgrain.releases.table_options import sides_of

if TYPE_CHECKING:
    from dpgrain.releases import run as running
    from dpgrain.tables.engines import check as checking
    from dpgrain.words import fit_text, ledger_text, mean_text, notes, quantities
    from dpgrain.words import release_text as formatting
else:
    checking = lazy_import("dpgrain.tables.engines.check")
    formatting = lazy_import("dpgrain.words.release_text")
    fit_text = lazy_import("dpgrain.words.fit_text")
    mean_text = lazy_import("dpgrain.words.mean_text")
    notes = lazy_import("dpgrain.words.notes")
    ledger_text = lazy_import("dpgrain.words.ledger_text")
    quantities = lazy_import("dpgrain.words.quantities")
    running = lazy_import("dpgrain.releases.run")

# Maximum number of printed characters of the first key.
_KEY_LENGTH = 40


@command(
    "dpgrain run releases.toml --dry-run",
    "dpgrain run releases.toml --where day=2026-01 --folder 2026-01 --ledger visits.ledger",
)
def run(
    file: Annotated[Path, argument("A release file, in TOML.", "FILE")],
    dry_run: Annotated[
        bool,
        option(
            "Only print the plan: the guarantee and expected error of each release.", "--dry-run"
        ),
    ] = False,
    check: given.Check = False,
    where: given.Where = None,
    folder: Annotated[
        Path | None,
        option(
            "Output folder, created if missing; by default the folder of the file.",
            metavar="FOLDER",
        ),
    ] = None,
    report: given.Report = None,
    ledger: given.Ledger = None,
    again: Annotated[
        bool,
        option(
            "Publish again what was published before: it is charged again, and replaced.", "--again"
        ),
    ] = False,
) -> None:
    """Publish all releases of a file under one guarantee.

    The whole file is checked and all releases are charged before any row is read. docs/releases.md
    describes the format.
    """
    known: dict[str, Any] = {"where": sides_of(where or []), "folder": folder, "report": report}
    if check:
        _check(dg.plan_releases(file, **known))
        return
    with nullcontext() if ledger is None else dg.Ledger(ledger) as opened:
        plan = dg.plan_releases(file, **known)
        say(str(plan))
        if dry_run:
            _dry_run(plan, opened, again=again)
            return
        published = plan.run(again=again)
    _print(published)
    say(str(published.promise))
    finish(lambda: {"plan": _plan_as_json(plan), **releases_as_json(published)}, *plan.file.outputs)


def _check(plan: dg.PlannedReleases) -> None:
    """Print the exact counts of invalid values that each release would read."""
    counts = {
        name: {spelled_inside(text): count for text, count in each.items()}
        for name, each in plan.check_counts().items()
    }
    if not as_json.get():
        for planned in plan.releases:
            entry = planned.entry
            table = f" (table {entry.table})" if entry.table else ""
            say(f"{plain(entry.name + table)}: {checking.format_counts(counts[entry.name])}")
    finish(lambda: {"private": False, "counts": counts})


def _print(published: dg.Releases) -> None:
    """Print one line per release, warnings, and the shares beyond stated bounds."""
    rows = []
    for each in published.plan.releases:
        name, output = each.entry.name, each.entry.output
        there = "nowhere: set an output, or pass --report" if output is None else output.name
        if output is None and published.plan.file.report is not None:
            there = "the report"
        rows.append((plain(name), _brief(published[name]), plain(there)))
    print_table("Published releases", ("release", "numbers", "written to"), rows)
    for name, release in published.items():
        for care in _cautions(release):
            say(f"{name}: warning: {spelled_inside(care).removesuffix('.')}.", style="yellow")
        if not hasattr(release, "groups"):
            continue
        if clipped := quantities.clipping_effect(release.metadata) or formatting.share_limit(
            release
        ):
            say(f"{name}: {spelled_inside(clipped)}.")
        if chosen := quantities.clamped_to(release.metadata):
            say(f"{name}: numbers are clamped to {chosen}.")
        if beyond := quantities.beyond_bounds(release.metadata):
            say(f"{name}: share beyond the stated bounds: {beyond}.")


def _cautions(release: Any) -> list[str]:
    """Return the warnings about a release."""
    if hasattr(release, "groups"):
        return list(filter(None, [formatting.all_warnings(release)]))
    if hasattr(release, "value"):
        return [] if all(map(math.isfinite, release.value)) else [mean_text.NO_MEAN]
    return list(fit_text.coefficients(release).cautions)


def _brief(release: Any) -> str:
    """Describe the first number of a release and the number of estimates."""
    if not hasattr(release, "groups"):
        return "a mean of users" if hasattr(release, "value") else "a fitted model"
    if not len(release):
        return "none passed the threshold"
    (line,) = formatting.format_rows(release, formatting.shown(release, 1), letters=_KEY_LENGTH)
    least = dict(zip(release.more, line.more, strict=True)).get("at_least")
    number = f"{release.covers} {line.estimate}, 95% interval {line.low} to {line.high}"
    number += f", at least {least}" if least else ""
    if not line.keys:
        return number
    first = formatting.ranking_name(release)
    return f"{quantity(len(release), 'estimate')}, {first} {', '.join(line.keys)}: {number}"


def _dry_run(plan: dg.PlannedReleases, ledger: dg.Ledger | None, *, again: bool) -> None:
    """Print the budget that the releases need, and raise if a ledger would refuse them."""
    parts = [] if ledger is None else _parts(plan, ledger)
    for promise, left, taken in parts:
        remaining, needed = ledger_text.compared_shares(left, taken)
        say(
            f"Promise: {promise}. At least {remaining} remains; these releases need at most {needed}."
        )
    reject_locked(plan.file.folder, plan.file.path.name)
    if ledger is not None:
        with running.note_missing_outputs(plan, again=again):
            ledger.rehearse(*plan.guarantees, mark=plan.mark, again=again)
    say("Dry run: nothing was read, charged or written.")
    shares = [{"promise": promise, "left": left, "taken": taken} for promise, left, taken in parts]
    finish(
        lambda: {
            "plan": _plan_as_json(plan),
            "ledger": shares,
            **guarantee_as_json(plan.guarantee),
        }
    )


def _parts(plan: dg.PlannedReleases, ledger: dg.Ledger) -> list[tuple[str, float, float]]:
    """Return each promise of a ledger, its remaining share, and the share that the file needs."""
    result = []
    for number, promise in ledger.promises.items():
        taken = ledger.projected_share(number, *plan.guarantees)
        renewal = ledger.renewal_text(number).removesuffix(".")
        text = f"{promise}{'; it ' + renewal if renewal else ''}"
        result.append((text, ledger.left(number, plan.guarantee.scope), taken))
    return result


def _plan_as_json(plan: dg.PlannedReleases) -> list[dict[str, Any]]:
    """Return the guarantee and expected error of each planned release as JSON values."""
    return [
        {
            "release": each.entry.name,
            "publishes": each.entry.function,
            "share": each.entry.share,
            "epsilon": each.guarantee.epsilon(),
            "delta": each.guarantee.delta,
            "error": None if each.expected is None else str(each.expected),
            "care": list(notes.note_texts(each.care)),
        }
        for each in plan.releases
    ]


def releases_as_json(published: dg.Releases) -> dict[str, Any]:
    """Return all releases by name, and their common guarantee, as JSON values."""
    fields: dict[str, Any] = {}
    for each in published.plan.releases:
        release = published[each.entry.name]
        if hasattr(release, "groups"):
            fields[each.entry.name] = release_as_json(release)
        elif hasattr(release, "value"):
            fields[each.entry.name] = mean_as_json(release, each.entry.own["columns"])
        else:
            fields[each.entry.name] = model_as_json(release)
    return {"releases": fields, **guarantee_as_json(published.promise)}
