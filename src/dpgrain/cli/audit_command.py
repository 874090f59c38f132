"""Command ``dpgrain audit``: lower bounds on the ε of the releases of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import dpgrain as dg
from dpgrain._lazy_import import lazy_import
from dpgrain.cli import options as given
from dpgrain.cli.command import command
from dpgrain.cli.document import finish
from dpgrain.cli.options import argument, integers, option
from dpgrain.cli.printing import check_picture, say
from dpgrain.releases.table_options import sides_of

if TYPE_CHECKING:
    from dpgrain.report import plots
else:
    plots = lazy_import("dpgrain.report.plots")

#: Exit codes if an audit refutes a claim, or does not cover every release.
VIOLATED, NOT_AUDITED = 4, 6


@command("dpgrain audit releases.toml --seconds 60")
def audit(
    file: Annotated[Path, argument("A release file, in TOML.", "FILE")],
    units: Annotated[
        list[str] | None,
        option(
            "Numbers of differing units of one person, such as 1,2; by default 1,2,4.",
            metavar="NUMBERS …",
        ),
    ] = None,
    seconds: Annotated[
        float, option("Time limit for all draws, in seconds; worst-case searches may take longer.")
    ] = 60.0,
    confidence: Annotated[float, option("Probability that all bounds hold together.")] = 0.99,
    where: given.Where = None,
    plot: Annotated[
        Path | None, option("Also draw the trade-off curves: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Compute lower bounds on the ε of each release of a file.

    The worst-case neighbours are synthetic: no row is read, and nothing is charged. The exit code is 4
    if a bound refutes the claimed ε, and 6 if a release could not be audited.
    """
    check_picture(plot)
    audits = dg.audit_releases(
        file,
        where=sides_of(where or []),
        units=(1, 2, 4) if units is None else integers("--units", units, "integers such as 1,2,4"),
        seconds=seconds,
        confidence=confidence,
    )
    if plot is not None:
        plots.save_audits(audits, plot)
    say(str(audits).replace(".explain()", "docs/tutorials/audits.md"))
    finish(audits.to_dict, plot)
    if audits.verdict in ("violated", "not audited"):
        raise typer.Exit(VIOLATED if audits.verdict == "violated" else NOT_AUDITED)
