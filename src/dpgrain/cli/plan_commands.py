"""Commands ``dpgrain plan``: from ε to noise and error, without data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import dpgrain as dg
from dpgrain import planning
from dpgrain import shuffle as sums
from dpgrain._files import check_outputs
from dpgrain._formatting import powers
from dpgrain._lazy_import import lazy_import
from dpgrain.cli import options as given
from dpgrain.cli.command import Command, CommandGroup, command
from dpgrain.cli.document import finish
from dpgrain.cli.options import ParameterOption, level_of, option
from dpgrain.cli.parameter_options import options_of
from dpgrain.cli.printing import check_picture, plain, print_table, say, shown
from dpgrain.publishing.parameters import Parameter, parameters_of
from dpgrain.units import PLAIN_UNITS, Element, Level, Unit, User

if TYPE_CHECKING:
    from dpgrain.planning import shuffle_plans
    from dpgrain.planning.plan_tables import PlanTable
    from dpgrain.planning.shuffle_plans import Honest
    from dpgrain.report import plots
else:
    plots = lazy_import("dpgrain.report.plots")
    shuffle_plans = lazy_import("dpgrain.planning.shuffle_plans")

plan = CommandGroup(
    "Show expected errors, computed only from public numbers.",
    __name__,
    ("units", "recurrent", "histogram", "mean", "gradient", "sco", "select", "shuffle"),
)


# Parameters of the plan of a histogram that are not offered.
_ELSEWHERE = {"plan_histogram": ("cells", "cell_of_item", "own_items", "weighted")}


def _options(module: str, name: str) -> list[ParameterOption]:
    """Return the options of a planning function; a unit has a level and a number of elements."""
    known = parameters_of(f"dpgrain.{module}", name)
    if "unit" in known:
        most = "with --unit user: maximum number of a user's elements."
        known["unit"] = replace(known["unit"], hint=Level, default=None)
        known["max_elements"] = Parameter("max_elements", int | None, None, most)
    return options_of(one for one in known.values() if one.name not in _ELSEWHERE.get(name, ()))


def _protected(level: Level | None, max_elements: int | None) -> Unit | None:
    """Return the unit of both options; None if both are omitted."""
    if max_elements is not None:
        level_of(level or "user", None, max_elements)
        return User(max_elements)
    return None if level is None else PLAIN_UNITS[level]


def _planned(module: str, name: str, summary: str, example: str) -> Command:
    """Return the command of a planning function."""

    def run(stated: dict[str, Any]) -> None:
        unit = _protected(stated.pop("unit", None), stated.pop("max_elements", None))
        if unit is not None:
            stated["unit"] = unit
        result = getattr(planning, name)(**stated)
        _print(result)
        finish(result.to_dict)

    options = partial(_options, f"planning.{module}", name)
    run.__annotations__["stated"] = Annotated[dict[str, Any], options]
    run.__doc__ = summary
    word = name.removeprefix("plan_")
    return Command(run, word, (f"dpgrain plan {word} {example}",))


recurrent = _planned(
    "continual",
    "plan_recurrent",
    "Compare daily, weekly and running-total releases for a returning person.",
    "--epsilon 1 --delta 1e-6 --periods 365 --returns 30 --within 30",
)
mean = _planned(
    "mean_error",
    "plan_mean",
    "Plan a mean of clipped vectors: its error, compared with the lower bound.",
    "--epsilon 1 --delta 1e-6 --n 10000 --dimension 100 --error 0.01",
)
gradient = _planned(
    "descent_error",
    "plan_gradient",
    "Plan noisy gradient descent: the noise of a step, and its effect on the risk.",
    "--epsilon 2 --delta 1e-6 --n 100000 --dimension 1000 --rounds 1000 --sampling-rate 0.01",
)
sco = _planned(
    "descent_error",
    "plan_sco",
    "Plan a fit of convex losses: its excess risk, compared with the lower bound.",
    "--epsilon 1 --delta 1e-6 --n-users 10000 --records 50 --dimension 100",
)
select = _planned(
    "choice_error",
    "plan_select",
    "Plan a choice among hypotheses: its excess risk, compared with the lower bound.",
    "--epsilon 1 --n-users 10000 --records 50 --hypotheses 100",
)


@command(
    "dpgrain plan units --epsilon 1 --delta 1e-6 --n-users 10000 --records 90 --elements 5 "
    "--cells 40",
)
def units(
    stated: Annotated[dict[str, Any], partial(_options, "planning.count_error", "plan_units")],
    plot: Annotated[Path | None, option("Also draw the errors over ε: .png, .svg or .pdf.")] = None,
) -> None:
    """Compare records, elements and users as the unit: the error of a count, and the protection."""
    check_picture(plot)
    result = planning.plan_units(**stated)
    if plot is not None:
        plots.save_units(result, plot)
    _print(result)
    finish(result.to_dict, plot)


@command("dpgrain plan histogram --epsilon 1 --delta 1e-6 --items 500")
def histogram(
    stated: Annotated[dict[str, Any], partial(_options, "statistics.plan", "plan_histogram")],
    shared: Annotated[
        bool,
        option("The cell is in another column, and does not follow from the item.", "--shared"),
    ] = False,
) -> None:
    """Plan a `dpgrain histogram`: the noise of a count, and which items are selected."""
    unit = _protected(stated.pop("unit", None), stated.pop("max_elements", None)) or Element()
    release = dg.plan_histogram(**stated, unit=unit, cell_of_item=not shared)
    result = planning.plan_counts(release)
    _print(result)
    finish(result.to_dict)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Shuffled:
    """Parameters of a shuffled sum."""

    epsilon: given.Epsilon[float]
    delta: given.Delta[float]
    relation: given.Neighbours = "replace"
    n_users: Annotated[int, option("Devices of a batch, one per user.", min=1)]
    dim: Annotated[int, option("Dimension of a vector.", "--dimension", min=1)] = 1
    l2_bound: Annotated[float, option("Maximum l2 norm of a vector.", "--bound")] = 1.0
    rounds: Annotated[int, option("Rounds in which the same users participate.", min=1)] = 1
    honest_fraction: Annotated[
        float, option("Minimum share of devices that report and follow the protocol.", "--honest")
    ] = 1.0


@command("dpgrain plan shuffle --n-users 1000 --dimension 100 --epsilon 1 --delta 1e-6")
def shuffle(
    own: _Shuffled,
    noise: Annotated[
        Literal["binomial", "poisson"],
        option("Noise of the devices; poisson needs about a quarter of the one-bit messages."),
    ] = "binomial",
    report: Annotated[
        Path | None, option("Also write an HTML page that explains the plan.")
    ] = None,
) -> None:
    """Plan a sum through a shuffler, without a curator: the messages and the error."""
    if report is not None:
        check_outputs([report])
    protocol = (sums.VectorSum if noise == "binomial" else sums.PoissonSum)(**vars(own))
    result, curve = shuffle_plans.deployment(protocol), shuffle_plans.honest_curve(protocol)
    if report is not None:
        protocol.report(report)
    _print(result)
    _print_honest(curve, own.delta)
    finish(lambda: {**result.to_dict(), "honest": [line.to_dict() for line in curve]}, report)


def _print(plan: PlanTable) -> None:
    """Print a plan with its tables and notes."""
    numbers = isinstance(plan, planning.ErrorPlan)
    for place, (heading, rows) in enumerate(plan.tables()):
        if heading and not place:
            say(plan.title)
        print_table(
            heading or plan.title,
            plan.columns,
            [[plain(cell) for cell in row] for row in rows],
            left=(0, 2) if numbers else (0,),
            title_justify="left",
        )
    for note in plan.notes:
        say(note)


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
