"""Commands ``dpgrain plan``: from ε to noise and error, without data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dpgrain import accounting, planning, statistics
from dpgrain._files import check_outputs
from dpgrain._formatting import powers
from dpgrain._lazy_import import lazy_import
from dpgrain.cli import options as given
from dpgrain.cli.command import CommandGroup, command
from dpgrain.cli.document import finish
from dpgrain.cli.options import ParameterOption, level_of, option
from dpgrain.cli.parameters import options_of
from dpgrain.cli.printing import check_picture, print_table, say, shown
from dpgrain.publishing.parameters import parameters_of
from dpgrain.units import PLAIN_UNITS, Level, Unit, User

if TYPE_CHECKING:
    from dpgrain.planning import shuffled
    from dpgrain.planning.error_plan import ErrorPlan
    from dpgrain.planning.shuffled import Honest
    from dpgrain.report import plots
else:
    plots = lazy_import("dpgrain.report.plots")
    shuffled = lazy_import("dpgrain.planning.shuffled")

plan = CommandGroup(
    "Show expected errors, computed only from public numbers.",
    __name__,
    ("units", "recurrent", "histogram", "mean", "gradient", "sco", "select", "shuffle"),
)

# Options that apply to the protected unit, and parameters that the unit determines.
_UNIT = ("unit", "max_elements")


def _options(
    function: str, home: str, *, without: Sequence[str] = _UNIT, **defaults: Any
) -> Callable[[], list[ParameterOption]]:
    """Return a function for the options of a plan, with defaults other than the function's."""

    def options() -> list[ParameterOption]:
        known = parameters_of(f"dpgrain.{home}", function).values()
        return options_of(
            replace(
                one,
                # Errors about the users of a shuffled sum name n_users.
                name="n_users" if one.name == "users" else one.name,
                default=defaults.get(one.name, one.default),
            )
            for one in known
            if one.name not in without
        )

    return options


def _protected(level: Level, max_elements: int | None) -> Unit:
    level_of(level, None, max_elements)
    return User(max_elements) if level == "user" else PLAIN_UNITS[level]


@command(
    "dpgrain plan units --epsilon 1 --delta 1e-6 --n-users 10000 --records 90 --elements 5 --cells 40"
)
def units(
    stated: Annotated[dict[str, Any], _options("plan_units", "planning.units")],
    plot: Annotated[Path | None, option("Also draw the errors over ε: .png, .svg or .pdf.")] = None,
) -> None:
    """Compare records, elements and users as the unit: the error of a count, and the protection."""
    check_picture(plot)
    result = planning.plan_units(**stated)
    if plot is not None:
        plots.save_units(result, plot)
    first, *rows = result.rows()
    print_table(result.title, first, rows, title_justify="left")
    for note in result.notes:
        say(note)
    finish(result.to_dict, plot)


@command("dpgrain plan recurrent --epsilon 1 --delta 1e-6 --periods 365 --returns 30 --within 30")
def recurrent(
    stated: Annotated[dict[str, Any], _options("plan_recurrent", "planning.continual")],
) -> None:
    """Compare daily, weekly and running-total releases for a returning person."""
    result = planning.plan_recurrent(**stated)
    say(result.title)
    for heading, rows in result.tables():
        print_table(heading, result.columns, rows, title_justify="left")
    for note in result.notes:
        say(note)
    finish(result.to_dict)


@command("dpgrain plan histogram --epsilon 1 --delta 1e-6 --items 500")
def histogram(
    stated: Annotated[
        dict[str, Any],
        _options(
            "plan_histogram",
            "statistics.plan",
            without=(*_UNIT, "cells", "cell_of_item", "own_items", "weighted"),
        ),
    ],
    unit: given.Protected = "element",
    max_elements: given.MaxElements = None,
    shared: Annotated[
        bool,
        option("The cell is in another column, and does not follow from the item.", "--shared"),
    ] = False,
) -> None:
    """Plan a `dpgrain histogram`: the noise of a count, and which items are selected."""
    protected = _protected(unit, max_elements)
    release = statistics.plan_histogram(**stated, unit=protected, cell_of_item=not shared)
    select = release.select if isinstance(release.select, accounting.Selection) else None
    promise = {name: stated[name] for name in ("epsilon", "delta", "relation")}
    _finish(planning.plan_counts(release.sums, select, **promise, unit=protected))


@command("dpgrain plan mean --epsilon 1 --delta 1e-6 --n 10000 --dimension 100 --error 0.01")
def mean(
    stated: Annotated[dict[str, Any], _options("plan_mean", "planning.means")],
    unit: given.Protected = "user",
    max_elements: given.MaxElements = None,
) -> None:
    """Plan a mean of clipped vectors: its error, compared with the lower bound."""
    _finish(planning.plan_mean(**stated, unit=_protected(unit, max_elements)))


@command(
    "dpgrain plan gradient --epsilon 2 --delta 1e-6 --n 100000 --dimension 1000 --rounds 1000 "
    "--sampling pairs --sampling-rate 0.01",
)
def gradient(
    stated: Annotated[
        dict[str, Any],
        _options("plan_gradient", "planning.descent", without=("unit",), sampling=None),
    ],
    unit: given.Protected = "element",
) -> None:
    """Plan noisy gradient descent: the noise of a step, and its effect on the risk.

    By default, --sampling is pairs with --sampling-rate, and passes with --passes.
    """
    if "sampling_rate" in stated or "passes" in stated:
        usual = "pairs" if "sampling_rate" in stated else "passes"
        stated = {"sampling": usual, **stated}
    protected = User(stated.get("max_elements")) if unit == "user" else PLAIN_UNITS[unit]
    _finish(planning.plan_gradient(**stated, unit=protected))


@command("dpgrain plan sco --epsilon 1 --delta 1e-6 --n-users 10000 --records 50 --dimension 100")
def sco(stated: Annotated[dict[str, Any], _options("plan_sco", "planning.descent")]) -> None:
    """Plan a fit of convex losses: its excess risk, compared with the lower bound."""
    _finish(planning.plan_sco(**stated))


@command("dpgrain plan select --epsilon 1 --n-users 10000 --records 50 --hypotheses 100")
def select(stated: Annotated[dict[str, Any], _options("plan_select", "planning.choices")]) -> None:
    """Plan a choice among hypotheses: its excess risk, compared with the lower bound."""
    _finish(planning.plan_select(**stated))


@command("dpgrain plan shuffle --n-users 1000 --dimension 100 --epsilon 1 --delta 1e-6")
def shuffle(
    stated: Annotated[dict[str, Any], _options("plan_shuffle", "planning.shuffled", dim=1)],
    report: Annotated[
        Path | None, option("Also write an HTML page that explains the plan.")
    ] = None,
) -> None:
    """Plan a sum through a shuffler, without a curator: the messages and the error."""
    if report is not None:
        check_outputs([report])
    protocol = shuffled.plan_shuffle(users=stated.pop("n_users"), **stated)
    result, curve = shuffled.deployment(protocol), shuffled.honest_curve(protocol)
    if report is not None:
        protocol.report(report)
    _print(result)
    _print_honest(curve, stated["delta"])
    finish(lambda: {**result.to_dict(), "honest": [line.to_dict() for line in curve]}, report)


def _finish(result: ErrorPlan) -> None:
    _print(result)
    finish(result.to_dict)


def _print(result: ErrorPlan) -> None:
    """Print a plan as a table with its sources and notes."""
    # Numbered sources below the table, which then fits a narrow terminal.
    sources = list(dict.fromkeys(row.source for row in result.rows() if row.source))
    rows = []
    for row in result.rows():
        cited = f" \\[{sources.index(row.source) + 1}]" if row.source else ""
        rows.append((row.name + cited, row.text, row.unit))
    print_table(result.title, ("", "value", "in"), rows, left=(0, 2), title_justify="left")
    for number, source in enumerate(sources, 1):
        say(f"[{number}] {source}")
    for note in result.notes:
        say(note[0].upper() + note[1:])


def _print_honest(curve: Sequence[Honest], delta: float) -> None:
    """Print ε by the share of honest devices."""
    rows = [
        (
            f"{line.devices:,}",
            line.share,
            f"{shown(line.epsilon)}{' (promised)' if line.promised else ''}",
        )
        for line in curve
    ]
    title = f"ε at δ = {powers(delta)} if only some devices are honest"
    print_table(title, ("honest devices", "share", "ε"), rows, left=())
