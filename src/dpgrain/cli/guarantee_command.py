"""Command ``dpgrain guarantee``: from noise to ε, for any number of units of one person."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import dpgrain as dg
from dpgrain import accounting
from dpgrain._files import exists, guarantee_path
from dpgrain._formatting import powers
from dpgrain._lazy_import import lazy_import
from dpgrain._progress import Progress
from dpgrain.cli import options as given
from dpgrain.cli.command import command
from dpgrain.cli.document import finish, guarantee_as_json
from dpgrain.cli.options import argument, option
from dpgrain.cli.printing import check_picture, print_table, say, shown
from dpgrain.errors import ParameterError
from dpgrain.units import PLAIN_UNITS, RELATIONS, Level, Relation, Unit, User
from dpgrain.words.guarantee_text import SEED_KNOWN

if TYPE_CHECKING:
    from dpgrain.accounting import Event
    from dpgrain.publishing import risk as risks
    from dpgrain.report import plots
    from dpgrain.words import odds
else:
    odds = lazy_import("dpgrain.words.odds")
    plots, risks = lazy_import("dpgrain.report.plots"), lazy_import("dpgrain.publishing.risk")

MechanismName: TypeAlias = Literal["gaussian", "laplace", "pure", "zcdp"]

# Option, example and mechanisms of each parameter for the amount of noise.
_SIZES: dict[str, tuple[str, str, tuple[MechanismName, ...]]] = {
    "noise_multiplier": ("--noise-multiplier", "4", ("gaussian", "laplace")),
    "epsilon": ("--epsilon", "0.1", ("pure",)),
    "rho": ("--rho", "0.1", ("zcdp",)),
}
# Rate of false alarms in the table of risks.
_FALSE_ALARMS = 0.05
_UNITS_OF_ONE_PERSON: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MechanismOptions:
    """Options that describe a mechanism."""

    mechanism: Annotated[MechanismName | None, option("Noise mechanism; by default gaussian.")] = (
        None
    )
    noise_multiplier: Annotated[
        float | None, option("Noise sd ÷ clipping bound (laplace: scale ÷ l1 bound).")
    ] = None
    epsilon: Annotated[float | None, option("With --mechanism pure: ε for one unit.")] = None
    rho: Annotated[float | None, option("With --mechanism zcdp: ρ for one unit.")] = None
    unit: Annotated[Level, option("Unit of clipping.")] = "element"
    releases: Annotated[int, option("Number of such releases.", min=1)] = 1
    sampling_rate: Annotated[float | None, option("Probability of participating in a round.")] = (
        None
    )
    rounds: Annotated[int | None, option("Rounds of a training run.", min=1)] = None
    sampling: Annotated[
        Literal["pairs", "users"] | None,
        option("Sampling unit: (user, element) pairs (the default) or whole users."),
    ] = None
    passes: Annotated[
        int | None, option("Rounds in which one person participates, instead of a rate.", min=1)
    ] = None
    shared: Annotated[
        bool | None,
        option(
            "Whether a user's elements may share coordinates; sampled runs: shared.",
            "--shared/--disjoint",
        ),
    ] = None

    @property
    def name(self) -> MechanismName:
        """Name of the mechanism."""
        return self.mechanism or "gaussian"

    @property
    def is_stated(self) -> bool:
        """True if any option describes a mechanism."""
        own = (self.mechanism, self.noise_multiplier, self.epsilon, self.rho, self.shared)
        if self.releases > 1 or self.unit != "element":
            return True
        drawn = (self.sampling_rate, self.rounds, self.sampling, self.passes)
        return any(value is not None for value in (*own, *drawn))

    def event(self) -> Event:
        """Return the event for the accountant."""
        self._check_size()
        if self.passes is not None:
            return self._in_passes(self.passes)
        if self.sampling_rate is not None:
            return self._sampled(self.sampling_rate)
        for flag, value in (("--sampling", self.sampling), ("--rounds", self.rounds)):
            if value is not None:
                raise ParameterError(
                    f"{flag} {value} requires --sampling-rate or --passes; without "
                    "sampling, pass --releases."
                )
        if self.name == "pure":
            return accounting.ApproximateDP(
                self.epsilon or 0.0, 0.0, self.unit, count=self.releases
            )
        if self.name == "zcdp":
            return accounting.ZCDP(self.rho or 0.0, self.unit, count=self.releases)
        return self._noisy_sum()

    def _check_size(self) -> None:
        """Raise unless exactly the option for this mechanism's noise is passed."""
        for field, (flag, such, mechanisms) in _SIZES.items():
            value = getattr(self, field)
            if self.name in mechanisms and value is None:
                raise ParameterError(
                    f"--mechanism {self.name} requires {flag}, such as {flag} {such}."
                )
            if self.name not in mechanisms and value is not None:
                raise ParameterError(
                    f"{flag} {value:g} must not be used with --mechanism {self.name}; "
                    f"it is for {' and '.join(mechanisms)}."
                )

    def _layout(self, usual: Literal["shared", "disjoint"]) -> Literal["shared", "disjoint"]:
        if self.shared is None:
            return usual
        return "shared" if self.shared else "disjoint"

    def _noisy_sum(self) -> Event:
        kind = accounting.Gaussian if self.name == "gaussian" else accounting.Laplace
        contribution = accounting.Contribution(
            block=self.unit,
            layout=self._layout("disjoint"),
            norm="l2" if self.name == "gaussian" else "l1",
        )
        return kind(self.noise_multiplier or 0.0, contribution, self.releases)

    def _check_sampled(self) -> None:
        if self.name != "gaussian":
            raise ParameterError(
                f"--mechanism {self.name} cannot be sampled here; --sampling-rate and --passes are "
                "for gaussian."
            )

    def _in_passes(self, passes: int) -> Event:
        self._check_sampled()
        if self.sampling_rate is not None:
            raise ParameterError(
                f"Pass either --sampling-rate {self.sampling_rate:g} or --passes {passes}, "
                "not both."
            )
        if self.sampling is not None:
            raise ParameterError(
                f"--sampling {self.sampling} requires --sampling-rate; with --passes "
                f"{passes}, people may be in any order."
            )
        if self.rounds is not None and self.rounds < passes:
            raise ParameterError(f"--passes {passes} must be at most --rounds {self.rounds}.")
        return accounting.Participation(
            self.noise_multiplier or 0.0,
            rounds=passes * self.releases,
            blocks=self._layout("shared"),
            level=self.unit,
        )

    def _sampled(self, rate: float) -> Event:
        self._check_sampled()
        if self.rounds is None:
            raise ParameterError("--sampling-rate requires --rounds, such as --rounds 1000.")
        return accounting.SampledGaussian(
            self.noise_multiplier or 0.0,
            rate,
            self.rounds,
            sampling=self.sampling or "pairs",
            blocks=self._layout("shared"),
            level=self.unit,
            count=self.releases,
        )


# Values of δ to try if ε is infinite for several units.
_LARGER_DELTAS = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


@dataclass(frozen=True)
class EpsilonCurve:
    """ε for numbers of units of one person, by relation."""

    level: Level
    delta: float
    units: tuple[int, ...]
    epsilons: dict[Relation, list[float]]
    user: tuple[int, dict[Relation, float]] | None = None  # most elements of a user, and their ε
    sufficient_delta: float | None = None  # larger δ with an ε for the first units without one

    @classmethod
    def create(
        cls, event: Event, delta: float, level: Level, max_elements: int | None = None
    ) -> EpsilonCurve:
        """Compute the curve of an event."""
        units = _UNITS_OF_ONE_PERSON
        if level == "element" and max_elements is not None:
            units = (*(k for k in units if k < max_elements), max_elements)

        with Progress(2 * len(units) + 2) as progress:

            def at(k: int, relation: Relation, unit: Unit) -> float:
                progress.stage(f"{k} {unit.level}{'s' if k > 1 else ''}, {relation}")
                return event.epsilon(
                    delta, units=k, relation=relation, unit=unit, max_elements=max_elements
                )

            epsilons: dict[Relation, list[float]] = {
                relation: [at(k, relation, PLAIN_UNITS[level]) for k in units]
                for relation in RELATIONS
            }
            user = None
            if max_elements is not None and level == "element":
                whole = {relation: at(1, relation, User(max_elements)) for relation in RELATIONS}
                user = (max_elements, whole)
        curve = cls(level, delta, units, epsilons, user)
        if (first := curve.first_unbounded) is None:
            return curve

        def is_bounded(larger: float) -> bool:
            values = (
                event.epsilon(
                    larger, units=units[first], relation=relation, unit=PLAIN_UNITS[level],
                    max_elements=max_elements,
                )
                for relation in RELATIONS
            )  # fmt: skip
            return all(map(math.isfinite, values))

        larger = (each for each in _LARGER_DELTAS if each > delta and is_bounded(each))
        return replace(curve, sufficient_delta=next(larger, None))

    @property
    def first_unbounded(self) -> int | None:
        """Index of the first number of units with an infinite ε."""
        rows = zip(*self.epsilons.values(), strict=True)
        return next((i for i, row in enumerate(rows) if not all(map(math.isfinite, row))), None)

    def print(self) -> None:
        """Print the curve as a table."""
        rows = [
            (
                f"{k} {self.level}{'s' if k > 1 else ''}",
                *(shown(self.epsilons[relation][place]) for relation in RELATIONS),
            )
            for place, k in enumerate(self.units)
        ]
        if self.user is not None:
            most, whole = self.user
            values = (shown(whole[relation]) for relation in RELATIONS)
            rows.append((f"a user of at most {most:,}", *values))
        first = "number of users" if self.level == "user" else "of one person"
        print_table(f"ε at δ = {powers(self.delta)}", (first, *RELATIONS), rows, left=())
        if self.first_unbounded is not None:
            say(self._why_unbounded(self.units[self.first_unbounded]))

    def _why_unbounded(self, number: int) -> str:
        """Return the reason for an infinite ε of a number of units, and the remedy."""
        units = f"{number} {self.level}{'s' if number > 1 else ''}"
        if self.sufficient_delta is None:
            return f"Nothing limits the risk of {units}: ε is infinite up to δ = 0.01."
        why = ", because each unit uses a part of δ" if number > 1 else ""
        return (
            f"This δ is too small for {units}{why}; with --delta {self.sufficient_delta:g} there "
            "is an ε."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the curve as JSON values."""
        user: dict[str, Any] | None = None
        if self.user is not None:
            most, whole = self.user
            user = {"max_elements": most, **{str(name): value for name, value in whole.items()}}
        points: list[dict[str, Any]] = [
            {"units": k, **{str(name): values[place] for name, values in self.epsilons.items()}}
            for place, k in enumerate(self.units)
        ]
        return {"unit": self.level, "delta": self.delta, "curve": points, "user": user}

    def save_plot(self, path: Path) -> None:
        """Write a picture of the curve."""
        plots.save_epsilons(path, self.units, self.epsilons, self.level, self.delta, user=self.user)


def _risks(
    event: Event, level: Level, relation: Relation, max_elements: int | None, *, private: bool
) -> list[risks.Risk]:
    """Return the risk of one unit and, for elements, of a whole user."""
    units: list[Unit] = [PLAIN_UNITS[level]]
    if level == "element":
        units.append(User(max_elements))
    return [
        risks.compute_risk(
            event,
            unit=unit,
            units=1,
            relation=relation,
            false_alarms=_FALSE_ALARMS,
            prior=0.5,
            private=private,
        )
        for unit in units
    ]


def _print_risks(listed: Sequence[risks.Risk]) -> None:
    """Print risks as a table."""
    warning = "" if listed[0].private else SEED_KNOWN
    title = (
        f"{warning}Risk from even odds, with {_FALSE_ALARMS:.0%} false alarms "
        f"({listed[0].relation})"
    )
    headings = ("", "best guess", "detection", "after an alarm", "μ", "values are")
    rows = []
    for risk in listed:
        shares = map(odds.percent_up, (risk.guess, risk.detection, risk.posterior))
        rows.append((risk.units_text, *shares, shown(risk.mu), risk.values))
    print_table(title, headings, rows)
    for risk in listed:
        if risk.guess == 1 and risk.unit == User():
            say(
                f"Nothing limits the risk of {risk.units_text}, who may have any number of elements; "
                "pass --max-elements if that number is public."
            )


@command(
    "dpgrain guarantee words.parquet",
    "dpgrain guarantee --noise-multiplier 4.2 --delta 1e-6 --unit element",
    "dpgrain guarantee --noise-multiplier 1 --sampling-rate 0.01 --rounds 1000 --delta 1e-6 "
    "--plot curve.png",
)
def guarantee(
    mechanism: MechanismOptions,
    release: Annotated[
        Path | None,
        argument("Optional: a release saved with --save, or an output of run.", "RELEASE"),
    ] = None,
    delta: Annotated[float | None, option("δ for computing ε.", metavar="δ")] = None,
    max_elements: Annotated[
        int | None, option("Also for a user, if every user has at most this many elements.", min=1)
    ] = None,
    plot: given.Plot = None,
) -> None:
    """Show the guarantee of a release or a noise mechanism.

    The tables have ε for 1, 2, 5, 10, … units of one person, and the risk of a unit and of a user.
    """
    check_picture(plot)
    saved = promise = None
    if release is None:
        curve, event = _mechanism_curve(mechanism, delta, max_elements)
    elif mechanism.is_stated:
        raise ParameterError(
            "Pass either a saved release or a mechanism, such as --noise-multiplier 4."
        )
    else:
        if exists(guarantee_path(release)):
            promise = dg.Guarantee.read_for_output(release)
        else:
            saved = dg.Release.load(release)
            promise = saved.guarantee
        at_delta = promise.delta if delta is None else delta
        event = promise.event
        curve = EpsilonCurve.create(event, at_delta, promise.level, max_elements)
    relation: Relation = "zero_out" if promise is None else promise.relation
    private = promise is None or promise.private
    listed = _risks(event, curve.level, relation, max_elements, private=private)
    if plot is not None:
        curve.save_plot(plot)
    if promise is not None:
        say(str(promise))
    if saved is not None:
        # Reports show the same hash.
        say(f"SHA-256 of groups, numbers and promise (not of the file): {saved.hash}")
    curve.print()
    _print_risks(listed)
    fields: dict[str, Any] = {}
    if promise is not None:
        fields = {**guarantee_as_json(promise), "hash": None if saved is None else saved.hash}
    finish(lambda: {**curve.to_dict(), **fields, "risk": list(map(_as_json, listed))}, plot)


def _mechanism_curve(
    mechanism: MechanismOptions, delta: float | None, max_elements: int | None
) -> tuple[EpsilonCurve, Event]:
    """Return the curve and the event of a mechanism."""
    if mechanism.mechanism is None and mechanism.noise_multiplier is None:
        raise ParameterError("Pass a saved release, or --noise-multiplier and --delta.")
    event = mechanism.event()
    if delta is None and not event.loss().is_pure:
        raise ParameterError(
            f"--delta is required for --mechanism {mechanism.name}, such as --delta 1e-6."
        )
    return EpsilonCurve.create(event, delta or 0.0, mechanism.unit, max_elements), event


def _as_json(risk: risks.Risk) -> dict[str, Any]:
    """Return a risk as JSON values; μ is null unless it is proved."""
    values = asdict(risk)
    del values["window"]  # no release has one, and the unit contains it
    mu = risk.mu if math.isfinite(risk.mu) else None
    return {**values, "unit": risk.units_text, "mu": mu}
