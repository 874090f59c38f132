"""Commands ``dpgrain ledger``: create, show, verify and export a ledger."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import dpgrain as dg
from dpgrain._files import atomic_write, check_outputs
from dpgrain._formatting import percent, powers, quantity, rounded_up
from dpgrain._lazy_import import lazy_import
from dpgrain.cli import options as given
from dpgrain.cli.command import CommandGroup, command
from dpgrain.cli.document import finish
from dpgrain.cli.options import argument, option
from dpgrain.cli.printing import print_table, say
from dpgrain.errors import ParameterError
from dpgrain.units import PLAIN_UNITS, Element, Level, Unit
from dpgrain.words.guarantee_text import PROVENANCE

if TYPE_CHECKING:
    from dpgrain.ledger import deployment_registry as registries
    from dpgrain.ledger import entries
    from dpgrain.scope import partitions
    from dpgrain.words import ledger_text as words
else:
    registries = lazy_import("dpgrain.ledger.deployment_registry")
    partitions = lazy_import("dpgrain.scope.partitions")
    words = lazy_import("dpgrain.words.ledger_text")

ledger = CommandGroup(
    "Keep account of releases and budgets.",
    __name__,
    ("init", "promise", "renew", "show", "verify", "export", "import_", "report"),
)

_PERIODS: tuple[Literal["day", "week", "month", "year"], ...] = ("day", "week", "month", "year")
_ASSUMED = (
    "This ledger assumes (and cannot enforce) that: all releases about these people are "
    "charged to it; each person has one id; columns with the same name have the same meaning "
    "in every table, and the columns of elements have one type; a record only contains data "
    "about its own day or cell; the file is never replaced by an older copy, and nothing is "
    "charged to a restored backup."
)

_RENEWED = (
    "Units and regions that were published before have this budget again. A release file with a "
    "charged region is refused without --again, but one with changed text is charged and published."
)

Place: TypeAlias = Annotated[
    str, argument("Ledger file, or address of a PostgreSQL database.", "LEDGER")
]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BudgetOptions:
    """Options for the budget of a promise."""

    epsilon: given.Epsilon[float]
    delta: given.Delta[float] = 0.0
    pure: Annotated[
        float | None, option("Part of ε reserved for releases without Gaussian noise.")
    ] = None
    leak: Annotated[
        float | None, option("Part of δ for selecting names; by default 51%, or 10% with --plan.")
    ] = None
    plan: Annotated[
        list[Path] | None,
        option(
            "Release file to plan now; dpgrain run publishes it once without charging it.",
            metavar="FILE …",
        ),
    ] = None

    @property
    def parts(self) -> dict[str, Any]:
        """Reserved parts of the budget, as parameters of promises."""
        files = map(dg.plan_releases, self.plan or ())
        planned = [guarantee for file in files for guarantee in file.guarantees]
        return {"pure": self.pure, "leak": self.leak, "plan": planned}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PromiseOptions(BudgetOptions):
    """Options for the budget and the unit of a promise."""

    unit: given.ProtectedOrElement = None
    element: Annotated[
        list[str] | None,
        option("Column of cells, or COLUMN=day (week, month, year).", metavar="COLUMN …"),
    ] = None
    any_days: Annotated[
        int | None, option("Protect a person's records within every window of N days.", min=1)
    ] = None
    any_hours: Annotated[
        int | None, option("Protect a person's records within every window of N hours.", min=1)
    ] = None
    day: Annotated[
        str | None,
        option("With --any-days and --any-hours: column of dates or timestamps.", metavar="COLUMN"),
    ] = None
    zone: Annotated[str, option("Time zone in which days begin, such as Europe/Paris.")] = ""
    relation: given.Neighbours = "zero_out"

    def promise(self) -> dg.LastingPromise:
        """Return the promise."""
        return dg.LastingPromise.of(
            self._unit(),
            self.epsilon,
            self.delta,
            relation=self.relation,
            window=self._window(),
            **self.parts,
        )

    def _window(self) -> dg.AnyDays | dg.AnyHours | None:
        """Return the protected window, if there is one."""
        if (self.any_days is not None) + (self.any_hours is not None) != (self.day is not None):
            raise ParameterError(
                "--any-days (or --any-hours) and --day must be passed together, such as "
                "--any-days 30 --day visited, or --any-hours 720 --day at."
            )
        if self.any_days is not None and self.day is not None:
            return dg.AnyDays(self.any_days, self.day, self.zone)
        if self.any_hours is not None and self.day is not None:
            return dg.AnyHours(self.any_hours, self.day)
        return None

    def _unit(self) -> Unit:
        level: Level = given.level_of(self.unit, ",".join(self.element or ()) or None, None)
        if (level == "element") != bool(self.element):
            raise ParameterError(
                f"--element COLUMN is for --unit element, not for --unit {level}."
                if self.element
                else "Pass --element, such as --element day."
            )
        if not self.element:
            return PLAIN_UNITS[level]
        return Element(partitions.Partition(tuple(map(self._rule, self.element))))

    def _rule(self, text: str) -> Any:
        """Return the cells of a column, or of its days, weeks, months or years."""
        column, _, last = text.rpartition("=")
        period = next((one for one in _PERIODS if one == last and column), None)
        return (
            partitions.Rule(text) if period is None else partitions.Rule(column, period, self.zone)
        )


@command(
    "dpgrain ledger init visits.ledger --name visits --user who --unit element --element day "
    "--epsilon 1 --delta 1e-6",
    "dpgrain ledger init visits.ledger --name visits --unit user --any-days 30 --day day "
    "--epsilon 3 --delta 1e-6",
    "dpgrain ledger init visits.ledger --name visits --unit user --epsilon 2 --delta 1e-6 "
    "--plan releases.toml",
)
def init(
    place: Place,
    promised: PromiseOptions,
    name: Annotated[str, option("Name of the people in the records.")],
    user: given.User = None,
) -> None:
    """Create a ledger with a first promise."""
    opened = dg.Ledger.create(place, name=name, promises=[promised.promise()], user=user or "")
    _print(opened)


@command("dpgrain ledger promise visits.ledger --unit user --epsilon 10 --delta 1e-6")
def promise(place: Place, promised: PromiseOptions) -> None:
    """Add a promise to an uncharged ledger; every release must fit all promises."""
    opened = dg.Ledger(place)
    opened.add(promised.promise())
    _print(opened)


@command("dpgrain ledger renew visits.ledger 1 --epsilon 1 --delta 1e-6")
def renew(
    place: Place,
    number: Annotated[int, argument("Line of the promise, as printed by `ledger show`.", "LINE")],
    strength: BudgetOptions,
) -> None:
    """Renew a promise; the old budget counts as fully spent, and the new one is added to it.

    Choose the new budget without using results; otherwise the total ε and δ do not hold.
    """
    opened = dg.Ledger(place)
    earlier = opened.promises.get(number)
    if earlier is None:
        raise ParameterError(f"NUMBER must be the line of a promise in force, not {number}.")
    entry = opened.renew(
        number, earlier.renewed(strength.epsilon, strength.delta, **strength.parts)
    )
    _print(opened)
    say(f"Line {entry.number} {opened.renewal_text(entry.number)}")
    say(_RENEWED, style="yellow")


@command("dpgrain ledger show visits.ledger")
def show(
    place: Place,
    expected: Annotated[
        str | None, option("Hash from a receipt, which the ledger must contain.", metavar="HASH")
    ] = None,
    top: Annotated[int, option("Number of last lines to print.", "--top", min=1)] = 20,
) -> None:
    """Show the promises of a ledger, the remaining budget and the last lines."""
    opened = dg.Ledger(place, expected=expected)
    _print(opened)
    lines = opened.entries
    for entry in lines:
        if entry.renews is not None:
            say(f"Line {entry.number} {opened.renewal_text(entry.number)}")
    _print_lines([entry for entry in lines if entry.guarantees], top)
    if seeded := words.seed_note(lines):
        say(seeded, style="yellow")
    say(f"Last line: {lines[-1].receipt}. {_moved(opened)}".rstrip())
    say(_ASSUMED)


@command("dpgrain ledger verify visits.ledger --expected 9a41…")
def verify(
    place: Place,
    expected: Annotated[
        str | None, option("Hash from a receipt, which the ledger must contain.", metavar="HASH")
    ] = None,
) -> None:
    """Check that no line is changed or missing, and that the accounts follow from the lines."""
    opened = dg.Ledger(place, expected=expected)
    receipt, seeded = opened.verify(), words.seed_note(opened.entries)
    text = f"The hash chain is intact. Last line: {receipt}. {_moved(opened)}".rstrip()
    text = f"{text} {seeded}".rstrip()
    say(text)
    fields = {"verified": True, "receipt": asdict(receipt), "seeded_lines": _seeded(opened)}
    finish(lambda: {**fields, "sentence": text})


@command(
    "dpgrain ledger export visits.ledger --output visits.json",
    "dpgrain ledger export visits.ledger --registry --decided-by 'City health office' "
    "--output visits.yaml",
)
def export(
    place: Place,
    output: Annotated[Path | None, option("File to write (.json; with --registry .yaml).")] = None,
    registry: Annotated[
        bool,
        option(
            "Write an entry for the public registry of deployments (YAML), without lines.",
            "--registry",
        ),
    ] = False,
    decided_by: Annotated[str, option("With --registry: name of the data curator.")] = "",
) -> None:
    """Write the promises and all lines of a ledger as JSON, or an entry for the public registry."""
    if decided_by and not registry:
        raise ParameterError("--decided-by requires --registry.")
    check_outputs([output])
    opened = dg.Ledger(place)
    if registry:
        fields = registries.registry_entry(opened, decided_by=decided_by)
        text = registries.registry_yaml(opened, decided_by=decided_by)
    else:
        fields = {**_described(opened), "lines": [entry.to_dict() for entry in opened.entries]}
        text = json.dumps(fields, ensure_ascii=False, indent=1)
    if output is not None:
        with atomic_write(output) as part:
            part.write_text(text, encoding="utf-8")
    else:
        say(text.removesuffix("\n"))
    finish(lambda: fields, output)


@command(
    "dpgrain ledger import visits.ledger env:LEDGER_ADDRESS",
    "dpgrain ledger import postgresql://nightly@db/ledgers visits.ledger",
)
def import_(
    source: Annotated[str, argument("The ledger to move: a file or an address.", "SOURCE")],
    place: Annotated[str, argument("The empty file or database to move it to.", "LEDGER")],
) -> None:
    """Move a ledger from a file to PostgreSQL, or back; the source accepts no charges afterwards.

    Repeat an interrupted import with the same places.
    """
    _print(dg.Ledger(source).move(place))


@command("dpgrain ledger report visits.ledger --output visits.html")
def report(
    place: Place,
    output: Annotated[Path, option("File to write (.html).")],
) -> None:
    """Write an HTML page for a privacy officer: promises, remaining budget, releases over time."""
    check_outputs([output])
    dg.Ledger(place).report(output)
    finish(dict, output)


def _described(opened: dg.Ledger) -> dict[str, Any]:
    """Return the promises of a ledger and their remaining budget as JSON values."""
    promised = [
        {
            "line": number,
            **one.to_dict(),
            "left": opened.left(number),
            "total": opened.total(number).to_dict(),
        }
        for number, one in opened.promises.items()
    ]
    return {
        "id": opened.id,
        "name": opened.name,
        "promises": promised,
        "seeded_lines": _seeded(opened),
        "assumed": _ASSUMED,
        "receipt": asdict(opened.entries[-1].receipt),
    }


def _seeded(opened: dg.Ledger) -> list[int]:
    """Return the numbers of lines with seeded releases."""
    return [entry.number for entry in opened.entries if not entry.private]


def _moved(opened: dg.Ledger) -> str:
    """Return where a closed ledger was moved to; empty if it is open."""
    moved = opened.moved_to
    return "" if moved is None else f"It was moved to {moved!r} and accepts no charges here."


def _print(opened: dg.Ledger) -> None:
    """Print the promises of a ledger and their remaining budget."""
    finish(lambda: _described(opened))
    say(f"The ledger {opened.name!r}, id {opened.id}.")
    if moved := _moved(opened):
        say(moved, style="yellow")
    rows = [
        (str(one), str(number), percent(opened.left(number), up=False))
        for number, one in opened.promises.items()
    ]
    print_table("Promises", ("guarantee", "line", "minimum remaining"), rows)
    for number in opened.promises:
        there = opened.fullest(number)
        where = "" if there.everything else f": {there}"
        say(f"Promise on line {number} (fullest account{where}): {opened.remaining_text(number)}")


def _epsilon(guarantee: dg.Guarantee) -> str:
    """Return the ε of a release at its own δ."""
    epsilon = rounded_up(guarantee.epsilon())
    return f"{epsilon} at δ = {powers(guarantee.delta)}" if guarantee.delta else epsilon


def _print_lines(lines: list[entries.LedgerEntry], top: int) -> None:
    """Print the last lines with releases, latest first."""
    if not lines:
        say("Nothing was charged yet.")
        return
    title = f"Last {min(top, len(lines))} of {quantity(len(lines), 'line')} with releases"
    rows = []
    for entry in reversed(lines[-top:]):
        regions = dict.fromkeys(str(one.scope) for one in entry.guarantees)
        epsilons = ", ".join(map(_epsilon, entry.guarantees))
        count = str(len(entry.guarantees))
        seeded = "" if entry.private else f" ({words.SEEDED})"
        rows.append(("; ".join(regions), str(entry.number), entry.at, count, epsilons + seeded))
    print_table(title, ("region", "line", "at", "releases", "ε of each release"), rows)
    given = [
        str(entry.number)
        for entry in lines[-top:]
        if any(one.provenance == "as given" for one in entry.guarantees)
    ]
    if given:
        noun = "line" if len(given) == 1 else "lines"
        say(f"Rows of {noun} {', '.join(given)} are {PROVENANCE['as given']}.")
