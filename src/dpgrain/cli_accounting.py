"""The commands that need no data: guarantee (from noise to ε) and plan (from ε to noise and error)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from dpgrain._progress import Progress
from dpgrain._wording import powers
from dpgrain.errors import ParameterError
from dpgrain.terminal import console, shown
from dpgrain.units import OWN_UNIT, RELATIONS, Element, Level, Record, Relation, Unit, User

if TYPE_CHECKING:
    from dpgrain.accounting import Event
    from dpgrain.planning.plan import ErrorPlan
    from dpgrain.planning.shuffled import Honest

Mechanism: TypeAlias = Literal["gaussian", "laplace", "pure", "zcdp"]
Sampling: TypeAlias = Literal["pairs", "users"]
Sampled: TypeAlias = Literal["full", "pairs", "users", "passes"]

_STEPS: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100)

_Epsilon: TypeAlias = Annotated[float, typer.Option(help="The promised ε, such as 1.")]
_Delta: TypeAlias = Annotated[float, typer.Option(help="The promised δ, such as 1e-6.")]
_Relation: TypeAlias = Annotated[
    Relation, typer.Option(help="Neighbours: unit removed or exchanged.")
]
_Unit: TypeAlias = Annotated[Level, typer.Option("--unit", help="What is protected.")]
_MaxElements: TypeAlias = Annotated[
    int | None, typer.Option(help="With --unit user: elements of a user that are used.", min=1)
]
_Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Dimension: TypeAlias = Annotated[int, typer.Option(help="Coordinates of a vector.", min=1)]
_Records: TypeAlias = Annotated[
    int, typer.Option(help="Independent records behind each vector; for the lower bound.", min=1)
]

_Users: TypeAlias = Annotated[int, typer.Option(help="Public number of users.", min=1)]
_EachRecords: TypeAlias = Annotated[
    int, typer.Option(help="Independent records of a user, for the errors.", min=1)
]


@dataclass(frozen=True)
class Parameters:
    """What the options say about a mechanism.

    Args:
        mechanism: which one.
        noise_multiplier: noise sd (Laplace: scale) ÷ clipping bound.
        epsilon: the ε of a pure mechanism.
        rho: the ρ of a zCDP one.
        unit: whose data are clipped, or what the pure mechanism protects.
        releases: how many such releases.
        layout: whether elements of one user fall on the same coordinates; None for the usual.
        rounds: how many rounds a sampled mechanism has.
        sampling: what is drawn in a round.
        sampling_rate: with which probability.
        passes: in how many rounds one person takes part.
    """

    mechanism: Mechanism
    noise_multiplier: float | None
    epsilon: float | None
    rho: float | None
    unit: Level
    releases: int
    layout: Literal["shared", "disjoint"] | None
    rounds: int | None
    sampling: Sampling | None
    sampling_rate: float | None
    passes: int | None

    def event(self) -> Event:
        """The mechanism as the accountant sees it.

        Raises:
            ParameterError: if options are missing, or do not go together.
        """
        self._check_values()
        if self.sampling_rate is not None or self.passes is not None:
            return self._sampled()
        for name, value in (("--sampling", self.sampling), ("--rounds", self.rounds)):
            if value is not None:
                raise ParameterError(
                    f"{name} {value} goes with --sampling-rate or --passes; without sampling give "
                    "--releases."
                )
        if self.mechanism == "pure":
            from dpgrain.accounting import ApproximateDP

            return ApproximateDP(self.epsilon or 0.0, 0.0, self.unit, count=self.releases)
        if self.mechanism == "zcdp":
            from dpgrain.accounting.events.known import ZCDP

            return ZCDP(self.rho or 0.0, self.unit, count=self.releases)
        return self._noisy_sum()

    def _check_values(self) -> None:
        """Each mechanism has one option for its size, and takes no other."""
        sizes = {
            "--noise-multiplier": (self.noise_multiplier, ("gaussian", "laplace")),
            "--epsilon": (self.epsilon, ("pure",)),
            "--rho": (self.rho, ("zcdp",)),
        }
        for name, (value, mechanisms) in sizes.items():
            if self.mechanism in mechanisms and value is None:
                raise ParameterError(
                    f"--mechanism {self.mechanism} needs {name}, such as {name} "
                    f"{'4' if name == '--noise-multiplier' else '0.1'}."
                )
            if self.mechanism not in mechanisms and value is not None:
                raise ParameterError(
                    f"{name} {value:g} does not go with --mechanism {self.mechanism}; it is for "
                    f"{' and '.join(mechanisms)}."
                )

    def _noisy_sum(self) -> Event:
        from dpgrain.accounting import Contribution, Gaussian, Laplace

        kind = Gaussian if self.mechanism == "gaussian" else Laplace
        contribution = Contribution(
            block=self.unit,
            layout=self.layout or "disjoint",
            norm="l2" if self.mechanism == "gaussian" else "l1",
        )
        return kind(self.noise_multiplier or 0.0, contribution, self.releases)

    def _sampled(self) -> Event:
        from dpgrain.accounting.events.sampled import Participation, SampledGaussian

        if self.mechanism != "gaussian":
            raise ParameterError(
                f"--mechanism {self.mechanism} cannot be sampled here; --sampling-rate and --passes "
                "are for gaussian."
            )
        noise = self.noise_multiplier or 0.0
        layout = self.layout or "shared"
        if self.passes is not None:
            if self.sampling_rate is not None:
                raise ParameterError(
                    f"Give either --sampling-rate {self.sampling_rate:g} or --passes {self.passes}."
                )
            if self.sampling is not None:
                raise ParameterError(
                    f"--sampling {self.sampling} goes with --sampling-rate; with --passes "
                    f"{self.passes} any order of people will do."
                )
            if self.rounds is not None and self.rounds < self.passes:
                raise ParameterError(
                    f"--passes {self.passes} must be at most --rounds {self.rounds}."
                )
            rounds = self.passes * self.releases
            return Participation(noise, rounds=rounds, blocks=layout, level=self.unit)
        if self.rounds is None:
            raise ParameterError("--sampling-rate needs --rounds, such as --rounds 1000.")
        assert self.sampling_rate is not None  # noqa: S101 - one of the two is given
        return SampledGaussian(
            noise,
            self.sampling_rate,
            self.rounds,
            sampling=self.sampling or "pairs",
            blocks=layout,
            level=self.unit,
            count=self.releases,
        )


@dataclass(frozen=True)
class Curve:
    """What is promised to 1, 2, 5, 10, … units of one person.

    Args:
        level: the unit.
        delta: the δ.
        units: the numbers of units.
        epsilons: relation → the ε of each number.
        user: the most elements of a user, and relation → the ε of a whole one, where asked for.
    """

    level: Level
    delta: float
    units: tuple[int, ...]
    epsilons: dict[Relation, list[float]]
    user: tuple[int, dict[Relation, float]] | None = None

    @classmethod
    def of(cls, event: Event, delta: float, level: Level, max_elements: int | None = None) -> Curve:
        """Ask an event for every number and both relations."""
        units = _STEPS
        if level == "element" and max_elements is not None:
            units = (*(k for k in _STEPS if k < max_elements), max_elements)

        with Progress(2 * len(units) + 2) as progress:

            def asked(k: int, relation: Relation, unit: Unit) -> float:
                progress.stage(f"{k} {unit.level}{'s' if k > 1 else ''}, {relation}")
                return event.epsilon(
                    delta, units=k, relation=relation, unit=unit, max_elements=max_elements
                )

            epsilons: dict[Relation, list[float]] = {
                relation: [asked(k, relation, OWN_UNIT[level]) for k in units]
                for relation in RELATIONS
            }
            user = None
            if max_elements is not None and level == "element":
                whole = {relation: asked(1, relation, User(max_elements)) for relation in RELATIONS}
                user = (max_elements, whole)
        return cls(level, delta, units, epsilons, user)

    def print(self) -> None:
        """Print the curve as a table."""
        from rich.table import Table

        table = Table(title=f"ε at δ = {powers(self.delta)}")
        table.add_column(
            "how many users" if self.level == "user" else "of one person", justify="right"
        )
        for relation in RELATIONS:
            table.add_column(relation, justify="right")
        for place, k in enumerate(self.units):
            values = [shown(self.epsilons[relation][place]) for relation in RELATIONS]
            table.add_row(f"{k} {self.level}{'s' if k > 1 else ''}", *values)
        if self.user is not None:
            most, whole = self.user
            values = [shown(whole[relation]) for relation in RELATIONS]
            table.add_row(f"a user of at most {most:,}", *values)
        console().print(table)
        if any(math.isinf(self.epsilons[relation][-1]) for relation in RELATIONS):
            console().print(
                "No promise: nothing bounds it, more than δ was spent on selecting unknown items, or "
                "Gaussian noise was asked at δ = 0; ask at a larger --delta, such as 1e-6.",
                highlight=False,
            )

    def save_plot(self, path: Path) -> None:
        """Draw the curve into a file."""
        from dpgrain.report.plots import save_epsilons

        save_epsilons(path, self.units, self.epsilons, self.level, self.delta, user=self.user)


def guarantee(
    release: Annotated[
        Path | None, typer.Argument(help="A release saved with --save, or leave out.")
    ] = None,
    mechanism: Annotated[
        Mechanism | None, typer.Option(help="What added the noise; gaussian without it.")
    ] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Noise sd ÷ clipping bound (laplace: scale ÷ l1 bound)."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="With --mechanism pure: its ε for one unit.")
    ] = None,
    rho: Annotated[
        float | None, typer.Option(help="With --mechanism zcdp: its ρ for one unit.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="The δ at which to answer.")] = None,
    unit: Annotated[Level, typer.Option(help="Whose data are clipped.")] = "element",
    releases: Annotated[int, typer.Option(help="How many such releases.", min=1)] = 1,
    sampling_rate: Annotated[
        float | None, typer.Option(help="Probability to take part in a round.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of a training run.", min=1)] = None,
    sampling: Annotated[
        Sampling | None,
        typer.Option(help="What is drawn: (user, element) pairs, the default, or whole users."),
    ] = None,
    passes: Annotated[
        int | None,
        typer.Option(help="Rounds in which one person takes part, instead of a rate.", min=1),
    ] = None,
    max_elements: Annotated[
        int | None,
        typer.Option(
            help="Also for a user of at most so many elements, who are all that exist.", min=1
        ),
    ] = None,
    shared: Annotated[
        bool | None,
        typer.Option(
            "--shared/--disjoint",
            help="Whether elements of a user may fall on the same coordinates; sampled runs: shared.",
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw it: .png, .svg or .pdf.")] = None,
) -> None:
    """Show what a release, or a mechanism, promises to 1, 2, 5, 10, … units of one person."""
    from dpgrain._files import check_writable

    if plot is not None:
        if plot.suffix.lower() not in (".png", ".svg", ".pdf"):
            raise ParameterError(f"--plot must end in .png, .svg or .pdf, not {str(plot)!r}.")
        if release is not None and plot.resolve() == release.resolve():
            raise ParameterError(f"{str(plot)!r} is the release itself; name another file.")
        check_writable(plot)
    if release is not None:
        own = (mechanism, noise_multiplier, epsilon, rho, sampling_rate, rounds, sampling, passes)
        if any(value is not None for value in own):
            raise ParameterError(
                "Give either a saved release or a mechanism, such as --noise-multiplier 4."
            )
        curve = _curve_of(release, delta, max_elements)
    else:
        layout: Literal["shared", "disjoint"] | None = None
        if shared is not None:
            layout = "shared" if shared else "disjoint"
        parameters = Parameters(
            mechanism or "gaussian",
            noise_multiplier,
            epsilon,
            rho,
            unit,
            releases,
            layout,
            rounds,
            sampling,
            sampling_rate,
            passes,
        )
        if mechanism is None and noise_multiplier is None:
            raise ParameterError("Give a saved release, or --noise-multiplier and --delta.")
        pure = parameters.mechanism in ("pure", "laplace")
        if delta is None and not pure:
            raise ParameterError(
                f"--delta must be given for --mechanism {parameters.mechanism}, such as --delta 1e-6."
            )
        curve = Curve.of(parameters.event(), delta or 0.0, unit, max_elements)
    curve.print()
    if plot is not None:
        curve.save_plot(plot)
        console().print(f"Written: {plot}", markup=False, highlight=False)


def _curve_of(release: Path, delta: float | None, max_elements: int | None) -> Curve:
    """The curve of a saved release, after its promise."""
    from dpgrain.statistics.release import Release

    promise = Release.load(release).guarantee
    console().print(str(promise), markup=False, highlight=False)
    asked = promise.delta if delta is None else delta
    return Curve.of(promise.event, asked, promise.level, max_elements)


plan = typer.Typer(
    help="Show the noise that a promise takes and the error to expect, from public numbers alone.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


def _tell(made: ErrorPlan, *, as_json: bool) -> None:
    """Print a plan: numbers of which only an order is known are said to be such."""
    if as_json:
        console().print(made.to_json(), markup=False, highlight=False)
        return
    from rich.table import Table

    # Sources below the table, numbered, so that it fits a narrow terminal.
    sources = list(dict.fromkeys(row.source for row in made.rows() if row.source))
    table = Table(title=made.title, title_justify="left")
    table.add_column("")
    table.add_column("value", justify="right")
    table.add_column("in")
    for row in made.rows():
        cited = f" \\[{sources.index(row.source) + 1}]" if row.source else ""
        table.add_row(row.name + cited, row.text, row.unit)
    out = console()
    out.print(table)
    for number, source in enumerate(sources, 1):
        out.print(f"[{number}] {source}", markup=False, highlight=False)
    for note in made.notes:
        out.print(note[0].upper() + note[1:], markup=False, highlight=False)


def _protected(level: Level, max_elements: int | None) -> Unit:
    if max_elements is not None and level != "user":
        raise ParameterError(f"--max-elements {max_elements} goes with --unit user.")
    units: dict[Level, Callable[[], Unit]] = {
        "record": Record,
        "element": Element,
        "user": lambda: User(max_elements),
    }
    return units[level]()


@plan.command(
    name="histogram",
    epilog="Example:  dpgrain plan histogram --epsilon 1 --delta 1e-6 --items 500",
)
def plan_histogram(
    epsilon: _Epsilon,
    delta: _Delta = 0.0,
    unit: _Unit = "element",
    relation: _Relation = "zero_out",
    items: Annotated[
        int | None,
        typer.Option(help="Public number of items; selected privately without it.", min=1),
    ] = None,
    max_items: Annotated[
        int, typer.Option(help="Items of one unit that take part in selecting.", min=1)
    ] = 1000,
    max_elements: _MaxElements = None,
    clip: Annotated[
        str, typer.Option(help="A bound, or 'auto': some budget goes into choosing bounds.")
    ] = "auto",
    noise: Annotated[
        Literal["gaussian", "laplace"], typer.Option(help="Law of the noise.")
    ] = "gaussian",
    shared: Annotated[
        bool,
        typer.Option("--shared", help="The cell is not told by the item: another column tells it."),
    ] = False,
    as_json: _Json = False,
) -> None:
    """Plan what `dpgrain histogram` will do: the noise of a count, and who is named."""
    from dpgrain.accounting import Selection
    from dpgrain.planning.counts import plan_counts
    from dpgrain.statistics.plan import plan_histogram as calibrated

    protected = _protected(unit, max_elements)
    release = calibrated(
        unit=protected,
        epsilon=epsilon,
        delta=delta,
        relation=relation,
        clip=clip if clip == "auto" else _number("--clip", clip),
        noise=noise,
        items=items,
        max_items=max_items,
        cell_of_item=not shared,
    )
    select = release.select if isinstance(release.select, Selection) else None
    made = plan_counts(
        release.sums, select, epsilon=epsilon, delta=delta, relation=relation, unit=protected
    )
    _tell(made, as_json=as_json)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ParameterError(f"{name} must be a number or 'auto', not {text!r}.") from None


@plan.command(
    name="mean",
    epilog="Example:  dpgrain plan mean --epsilon 1 --delta 1e-6 --n 10000 --dimension 100 "
    "--error 0.01",
)
def plan_mean(
    epsilon: _Epsilon,
    delta: _Delta,
    n: Annotated[int, typer.Option(help="Public number of vectors, one of each unit.", min=1)],
    dimension: _Dimension = 1,
    unit: _Unit = "user",
    relation: _Relation = "zero_out",
    max_elements: _MaxElements = None,
    records: _Records = 1,
    error: Annotated[
        float | None, typer.Option(help="A wanted rms error in clipping bounds: how many vectors?")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Plan a mean of clipped vectors: its error, and how far that is from the least possible."""
    from dpgrain.planning.means import plan_mean as planned

    made = planned(
        epsilon,
        delta,
        n=n,
        dimension=dimension,
        unit=_protected(unit, max_elements),
        relation=relation,
        records=records,
        error=error,
    )
    _tell(made, as_json=as_json)


@plan.command(
    name="gradient",
    epilog="Example:  dpgrain plan gradient --epsilon 2 --delta 1e-6 --n 100000 --dimension 1000 "
    "--rounds 1000 --sampling pairs --sampling-rate 0.01",
)
def plan_gradient(
    epsilon: _Epsilon,
    delta: _Delta,
    n: Annotated[
        int, typer.Option(help="Public number of clipped gradients: pairs, or users.", min=1)
    ],
    rounds: Annotated[int, typer.Option(help="Rounds of the run.", min=1)],
    dimension: _Dimension,
    sampling: Annotated[
        Sampled | None,
        typer.Option(
            help="Who takes part in a round: all, drawn ones, or passes over all; by default what "
            "--sampling-rate (pairs) or --passes says, or else all."
        ),
    ] = None,
    sampling_rate: Annotated[
        float | None, typer.Option(help="With pairs or users: the probability.")
    ] = None,
    passes: Annotated[
        int | None, typer.Option(help="With passes: rounds in which one person takes part.", min=1)
    ] = None,
    unit: _Unit = "element",
    relation: _Relation = "zero_out",
    max_elements: Annotated[
        int | None, typer.Option(help="The most elements that a user has.", min=1)
    ] = None,
    records: _Records = 1,
    as_json: _Json = False,
) -> None:
    """Plan noisy gradient descent: the noise of a step, and what it does to the risk."""
    from dpgrain.planning.descent import plan_gradient as planned

    if sampling is None:
        drawn: Sampled = "full" if passes is None else "passes"
        sampling = drawn if sampling_rate is None else "pairs"
    made = planned(
        epsilon,
        delta,
        n=n,
        rounds=rounds,
        dimension=dimension,
        sampling=sampling,
        sampling_rate=sampling_rate,
        passes=passes,
        unit=User(max_elements) if unit == "user" else OWN_UNIT[unit],
        relation=relation,
        max_elements=max_elements,
        records=records,
    )
    _tell(made, as_json=as_json)


@plan.command(
    name="sco",
    epilog="Example:  dpgrain plan sco --epsilon 1 --delta 1e-6 --n-users 10000 --records 50 "
    "--dimension 100",
)
def plan_sco(
    epsilon: _Epsilon,
    delta: _Delta,
    n_users: _Users,
    dimension: _Dimension,
    records: _EachRecords = 1,
    distance: Annotated[
        float, typer.Option(help="R: how far the first point is from the best one at most.")
    ] = 1.0,
    lipschitz: Annotated[
        float, typer.Option(help="G: the most that a loss grows per distance.")
    ] = 1.0,
    strength: Annotated[
        float | None, typer.Option(help="μ, where losses are strongly convex.")
    ] = None,
    relation: _Relation = "zero_out",
    as_json: _Json = False,
) -> None:
    """Plan a fit of convex losses: its excess risk, and how far that is from the least possible."""
    from dpgrain.planning.descent import plan_sco as planned

    made = planned(
        epsilon,
        delta,
        n_users=n_users,
        dimension=dimension,
        records=records,
        distance=distance,
        lipschitz=lipschitz,
        strength=strength,
        relation=relation,
    )
    _tell(made, as_json=as_json)


@plan.command(
    name="select",
    epilog="Example:  dpgrain plan select --epsilon 1 --n-users 10000 --records 50 --hypotheses 100",
)
def plan_select(
    epsilon: _Epsilon,
    n_users: _Users,
    hypotheses: Annotated[int, typer.Option(help="How many there are to choose from.", min=2)],
    delta: _Delta = 0.0,
    records: _EachRecords = 1,
    bound: Annotated[float, typer.Option(help="B: losses lie in [0, B].")] = 1.0,
    relation: _Relation = "zero_out",
    as_json: _Json = False,
) -> None:
    """Plan a choice among hypotheses: its excess risk, and how far that is from the least possible."""
    from dpgrain.planning.choices import plan_select as planned

    made = planned(
        epsilon,
        delta,
        n_users=n_users,
        hypotheses=hypotheses,
        records=records,
        bound=bound,
        relation=relation,
    )
    _tell(made, as_json=as_json)


@plan.command(
    name="shuffle",
    epilog="Example:  dpgrain plan shuffle --users 1000 --dim 100 --bound 1 --epsilon 1 --delta 1e-6",
)
def plan_shuffle(
    epsilon: _Epsilon,
    delta: _Delta,
    users: Annotated[int, typer.Option(help="Devices of a batch, one of each user.", min=1)],
    dim: Annotated[int, typer.Option(help="Coordinates of a vector.", min=1)] = 1,
    bound: Annotated[float, typer.Option(help="The l2 norm of a vector at most.")] = 1.0,
    relation: _Relation = "replace",
    rounds: Annotated[
        int, typer.Option(help="Rounds in which the same users take part.", min=1)
    ] = 1,
    honest: Annotated[
        float,
        typer.Option(help="Share of the devices that report and follow the protocol, at least."),
    ] = 1.0,
    noise: Annotated[
        Literal["binomial", "poisson"],
        typer.Option(
            help="What devices add; poisson takes about a quarter of the one-bit messages."
        ),
    ] = "binomial",
    blind: Annotated[
        bool, typer.Option("--blind", help="The shuffler only mixes, and need not be able to read.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(help="Also explain it on one HTML page, in this file.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Plan a sum without a curator, through a shuffler: what is sent, and how exact it will be."""
    from dpgrain._files import check_writable
    from dpgrain.planning.shuffled import deployment, honest_curve
    from dpgrain.planning.shuffled import plan_shuffle as planned

    if report is not None:
        check_writable(report)
    protocol = planned(
        users=users,
        dim=dim,
        epsilon=epsilon,
        delta=delta,
        bound=bound,
        relation=relation,
        rounds=rounds,
        honest=honest,
        noise=noise,
        blind=blind,
    )
    made, curve = deployment(protocol), honest_curve(protocol)
    if report is not None:
        protocol.report(report)
    if as_json:
        told = {**made.to_dict(), "honest": [line.to_dict() for line in curve]}
        console().print(json.dumps(told, ensure_ascii=False), markup=False, highlight=False)
        return
    _tell(made, as_json=False)
    _tell_honest(curve, delta)
    if report is not None:
        console().print(f"Written: {report}", markup=False, highlight=False)


def _tell_honest(curve: Sequence[Honest], delta: float) -> None:
    """Print ε over the share of honest devices."""
    from rich.table import Table

    table = Table(title=f"ε at δ = {powers(delta)} if only some devices are honest")
    table.add_column("honest devices", justify="right")
    table.add_column("share", justify="right")
    table.add_column("ε", justify="right")
    for line in curve:
        epsilon = f"{shown(line.epsilon)}{' (promised)' if line.promised else ''}"
        table.add_row(f"{line.devices:,}", line.share, epsilon)
    console().print(table)
