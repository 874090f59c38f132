"""Commands ``dpgrain plan``: from ε to noise and error, without data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from dpgrain import accounting, planning, statistics
from dpgrain._files import check_outputs
from dpgrain._formatting import powers
from dpgrain._lazy_import import lazy_import
from dpgrain.cli import options as given
from dpgrain.cli.command import CommandGroup, command
from dpgrain.cli.document import print_json
from dpgrain.cli.options import clip_of, level_of, option
from dpgrain.cli.printing import check_picture, print_table, say, shown, written
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

_Dimension: TypeAlias = Annotated[int, option("Dimension of a vector.", min=1)]
_Records: TypeAlias = Annotated[
    int, option("Independent records per vector, for the lower bound.", min=1)
]
_Users: TypeAlias = Annotated[int, option("Public number of users.", min=1)]
_RecordsOfUser: TypeAlias = Annotated[
    int, option("Independent records per user, for the errors.", min=1)
]
_Sampling: TypeAlias = Literal["full", "pairs", "users", "passes"]


def _protected(level: Level, max_elements: int | None) -> Unit:
    level_of(level, None, max_elements)
    return User(max_elements) if level == "user" else PLAIN_UNITS[level]


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Options of every plan with Gaussian noise."""

    epsilon: given.Epsilon[float]
    delta: given.Delta[float]
    relation: given.Neighbours = "zero_out"


@dataclass(frozen=True, kw_only=True)
class PurePlanOptions(PlanOptions):
    """Options of every plan in which δ may be 0."""

    delta: given.Delta[float] = 0.0


@dataclass(frozen=True, kw_only=True)
class _Units(PlanOptions):
    """Parameters of `plan_units`."""

    n_users: _Users
    records: Annotated[float, option("Mean number of records per user.")]
    elements: Annotated[float, option("Mean number of cells with records per user.")] = 1.0
    cells: Annotated[int, option("Public number of cells.", min=1)] = 1
    skew: Annotated[float, option("Mean ÷ median number of records per user.")] = 2.5


@command(
    "dpgrain plan units --epsilon 1 --delta 1e-6 --n-users 10000 --records 90 --elements 5 --cells 40"
)
def units(
    own: _Units,
    plot: Annotated[Path | None, option("Also draw the errors over ε: .png, .svg or .pdf.")] = None,
    as_json: given.Json = False,
) -> None:
    """Compare records, elements and users as the unit: the error of a count, and the protection."""
    check_picture(plot)
    result = planning.plan_units(**vars(own))
    if plot is not None:
        plots.save_units(result, plot)
    if as_json:
        print_json(result.to_dict(), plot)
        return
    first, *rows = result.rows()
    print_table(result.title, first, rows, title_justify="left")
    for note in result.notes:
        say(note)
    written(plot)


@dataclass(frozen=True, kw_only=True)
class _Recurrent:
    """Parameters of `plan_recurrent`."""

    epsilon: given.Epsilon[float]
    delta: given.Delta[float]
    periods: Annotated[int, option("Public number of periods, such as days.", min=1)]
    returns: Annotated[int, option("Number of periods in which a person has records.", min=1)]
    every: Annotated[list[int] | None, option("Periods of a window; by default 1, 7 and all.")] = (
        None
    )
    counting: Annotated[
        Literal["people", "visits"],
        option("Whether a person counts once per release, or once per period of it."),
    ] = "people"
    within: Annotated[
        int | None, option("Also plan a promise for every window of N periods.", min=1)
    ] = None


@command("dpgrain plan recurrent --epsilon 1 --delta 1e-6 --periods 365 --returns 30 --within 30")
def recurrent(own: _Recurrent, as_json: given.Json = False) -> None:
    """Compare daily, weekly and running-total releases for a returning person."""
    result = planning.plan_recurrent(**vars(own))
    if as_json:
        print_json(result.to_dict())
        return
    say(result.title)
    for heading, rows in result.tables():
        print_table(heading, result.columns, rows, title_justify="left")
    for note in result.notes:
        say(note)


@command("dpgrain plan histogram --epsilon 1 --delta 1e-6 --items 500")
def histogram(
    promise: PurePlanOptions,
    unit: given.Protected = "element",
    items: Annotated[
        int | None,
        option("Public number of items; if omitted, items are selected privately.", min=1),
    ] = None,
    max_items: given.MaxItems = 1000,
    max_elements: given.MaxElements = None,
    clip: Annotated[
        str, option("A bound, or 'auto', which spends some budget on choosing bounds.")
    ] = "auto",
    noise: given.Noise = "gaussian",
    shared: Annotated[
        bool,
        option("The cell is in another column, and does not follow from the item.", "--shared"),
    ] = False,
    as_json: given.Json = False,
) -> None:
    """Plan a `dpgrain histogram`: the noise of a count, and which items are selected."""
    protected = _protected(unit, max_elements)
    release = statistics.plan_histogram(
        **vars(promise),
        unit=protected,
        clip=clip_of(clip),
        noise=noise,
        items=items,
        max_items=max_items,
        cell_of_item=not shared,
    )
    select = release.select if isinstance(release.select, accounting.Selection) else None
    _print(planning.plan_counts(release.sums, select, **vars(promise), unit=protected), as_json)


@command("dpgrain plan mean --epsilon 1 --delta 1e-6 --n 10000 --dimension 100 --error 0.01")
def mean(
    promise: PlanOptions,
    n: Annotated[int, option("Public number of vectors, one per unit.", min=1)],
    dimension: _Dimension = 1,
    unit: given.Protected = "user",
    max_elements: given.MaxElements = None,
    records: _Records = 1,
    error: Annotated[
        float | None, option("Target rms error in clipping bounds; plans the number of vectors.")
    ] = None,
    as_json: given.Json = False,
) -> None:
    """Plan a mean of clipped vectors: its error, compared with the lower bound."""
    result = planning.plan_mean(
        **vars(promise),
        n=n,
        dimension=dimension,
        unit=_protected(unit, max_elements),
        records=records,
        error=error,
    )
    _print(result, as_json)


@dataclass(frozen=True, kw_only=True)
class _Gradients(PlanOptions):
    """Parameters of `plan_gradient`."""

    n: Annotated[int, option("Public number of clipped gradients: pairs or users.", min=1)]
    rounds: Annotated[int, option("Rounds of the run.", min=1)]
    dimension: _Dimension
    sampling_rate: Annotated[float | None, option("With pairs or users: sampling probability.")] = (
        None
    )
    passes: Annotated[
        int | None, option("With passes: rounds in which one person participates.", min=1)
    ] = None
    max_elements: Annotated[int | None, option("Maximum number of elements per user.", min=1)] = (
        None
    )
    records: _Records = 1


@command(
    "dpgrain plan gradient --epsilon 2 --delta 1e-6 --n 100000 --dimension 1000 --rounds 1000 "
    "--sampling pairs --sampling-rate 0.01"
)
def gradient(
    own: _Gradients,
    sampling: Annotated[
        _Sampling | None,
        option(
            "Participants of a round: all, a sample, or passes over all; by default "
            "set by --sampling-rate (pairs) or --passes, else all."
        ),
    ] = None,
    unit: given.Protected = "element",
    as_json: given.Json = False,
) -> None:
    """Plan noisy gradient descent: the noise of a step, and its effect on the risk."""
    if sampling is None:
        drawn: _Sampling = "full" if own.passes is None else "passes"
        sampling = drawn if own.sampling_rate is None else "pairs"
    protected = User(own.max_elements) if unit == "user" else PLAIN_UNITS[unit]
    _print(planning.plan_gradient(**vars(own), sampling=sampling, unit=protected), as_json)


@dataclass(frozen=True, kw_only=True)
class _ConvexLosses(PlanOptions):
    """Parameters of `plan_sco`."""

    n_users: _Users
    dimension: _Dimension
    records: _RecordsOfUser = 1
    distance: Annotated[
        float, option("R: maximum distance of the first point from the best one.")
    ] = 1.0
    lipschitz: Annotated[float, option("G: Lipschitz constant of the losses.")] = 1.0
    strength: Annotated[float | None, option("μ: strong convexity of the losses, if any.")] = None


@command("dpgrain plan sco --epsilon 1 --delta 1e-6 --n-users 10000 --records 50 --dimension 100")
def sco(own: _ConvexLosses, as_json: given.Json = False) -> None:
    """Plan a fit of convex losses: its excess risk, compared with the lower bound."""
    _print(planning.plan_sco(**vars(own)), as_json)


@dataclass(frozen=True, kw_only=True)
class _Selection(PurePlanOptions):
    """Parameters of `plan_select`."""

    n_users: _Users
    hypotheses: Annotated[int, option("Number of hypotheses.", min=2)]
    records: _RecordsOfUser = 1
    bound: Annotated[float, option("B: losses are in [0, B].")] = 1.0


@command("dpgrain plan select --epsilon 1 --n-users 10000 --records 50 --hypotheses 100")
def select(own: _Selection, as_json: given.Json = False) -> None:
    """Plan a choice among hypotheses: its excess risk, compared with the lower bound."""
    _print(planning.plan_select(**vars(own)), as_json)


@dataclass(frozen=True, kw_only=True)
class _Shuffled(PlanOptions):
    """Parameters of `plan_shuffle`."""

    relation: given.Neighbours = "replace"
    users: Annotated[int, option("Devices of a batch, one per user.", "--n-users", min=1)]
    dim: Annotated[int, option("Dimension of a vector.", "--dimension", min=1)] = 1
    bound: Annotated[float, option("Maximum l2 norm of a vector.")] = 1.0
    rounds: Annotated[int, option("Rounds in which the same users participate.", min=1)] = 1
    honest: Annotated[
        float, option("Minimum share of devices that report and follow the protocol.")
    ] = 1.0
    noise: Annotated[
        Literal["binomial", "poisson"],
        option("Noise of the devices; poisson needs about a quarter of the one-bit messages."),
    ] = "binomial"


@command("dpgrain plan shuffle --n-users 1000 --dimension 100 --epsilon 1 --delta 1e-6")
def shuffle(
    own: _Shuffled,
    report: Annotated[
        Path | None, option("Also write an HTML page that explains the plan.")
    ] = None,
    as_json: given.Json = False,
) -> None:
    """Plan a sum through a shuffler, without a curator: the messages and the error."""
    if report is not None:
        check_outputs([report])
    protocol = shuffled.plan_shuffle(**vars(own))
    result, curve = shuffled.deployment(protocol), shuffled.honest_curve(protocol)
    if report is not None:
        protocol.report(report)
    if as_json:
        fields = {**result.to_dict(), "honest": [line.to_dict() for line in curve]}
        print_json(fields, report)
        return
    _print(result, as_json=False)
    _print_honest(curve, own.delta)
    written(report)


def _print(result: ErrorPlan, as_json: bool) -> None:
    """Print a plan as a table with its sources and notes."""
    if as_json:
        print_json(result.to_dict())
        return
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
