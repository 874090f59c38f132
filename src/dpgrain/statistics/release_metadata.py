"""Public facts of a release, from which ``words.quantities`` builds sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from dpgrain import _validate
from dpgrain._formatting import quote_user
from dpgrain.errors import ParameterError
from dpgrain.scope.partitions import partition_name
from dpgrain.statistics.statistic import HISTOGRAM, Statistic, statistic_by_name
from dpgrain.units import Level, Relation
from dpgrain.words.notes import Note

if TYPE_CHECKING:
    from dpgrain.publishing.promise import Promise
    from dpgrain.tables.blocks import UnitBlocks
    from dpgrain.tables.rows import TableRows

Each = Literal["record", "holder", "share", "user"]
#: The rows that estimates cover: records, people with records, or all enrolled people.
Over = Literal["records", "people", "everyone"]


@dataclass(frozen=True)
class Clip:
    """Clipping of contributions."""

    bound: float | None  # public; None for privately chosen bounds
    over: Literal["release", "cell", "item", "group"] = "release"  # parts with separate bounds
    takes: bool = True  # False if no contribution can exceed the bound

    def __post_init__(self) -> None:
        _validate.check_fields(self)

    @property
    def chosen(self) -> bool:
        """True for privately chosen bounds."""
        return self.bound is None


# Descriptions in files of 0.1, which have no facts.
_CHOSEN = {
    "auto (one bound for all items, chosen privately)": Clip(None),
    "auto (one bound per cell, chosen privately)": Clip(None, "cell"),
    "auto (one bound per element, chosen privately)": Clip(None, "cell"),
}
_FORMER_EACH: dict[str, Each] = {
    "1 for each record": "record",
    "1 for each unit with the item": "holder",
    "1 for each unit that holds the item": "holder",
    "1/√(items of the unit) for each unit with the item": "share",
    "1/√(items of the unit) for each unit that holds the item": "share",
    "1 for each user": "user",
}
_FORMER_NO_KEYS = "none: one number over all records"
# Unreliable estimates in files of 0.1.
_FORMER = ("above", "lost", "lost_of")


@dataclass(frozen=True)
class ReleaseMetadata:
    """Public facts of a release."""

    statistic: Statistic = HISTOGRAM
    title: str = ""
    by: tuple[str, ...] = ()  # keys; none for one number over all records
    value: str | None = None  # None if other things are counted
    each: Each = "record"  # thing that counts 1 without a numeric column
    bounds: tuple[float, ...] | None = None  # public; None if chosen privately or not needed
    found: tuple[float, ...] | None = None  # privately chosen range
    beyond: float | None = None  # 95% upper bound on the share outside of the range
    outside: float | None = None  # noisy share of numbers outside of ``bounds``
    widened: bool = False  # intervals include likely effects of clamping or clipping
    public_items: int | None = None  # number; None if items were selected
    selected: tuple[str, ...] = ()  # keys with privately selected values
    selected_groups: int | None = None  # number, if only the largest groups are released
    clip: Clip | None = None  # None if nothing is clipped
    unit: Level | None = None
    elements: str = ""  # the partition into elements; empty if there is none
    cell: str = ""  # one cell of the partition, as text
    cells: int | None = None  # number of public cells; None if unknown, or each item is a cell
    max_elements: int | None = None  # per user; None for all
    max_items: int | None = None  # per unit in a selection with counts; None for all
    relation: Relation | None = None
    epsilon: float | None = None  # requested ε
    delta: float | None = None  # requested δ
    noise: str = ""
    user: str | None = None
    n_users: int | None = None
    bound: float | None = None  # privately chosen; None if unknown, or one per cell
    clipped: float | None = None  # 95% upper limit on the share of clipped units
    counts_clipped: bool = False  # the release has limits on that share
    care: tuple[Note, ...] = ()  # warnings, each a kind and its numbers, from noisy numbers only
    processed: tuple[str, ...] = ()  # post-processing of the estimates
    told: tuple[tuple[str, str], ...] = ()  # text of files without facts
    over: Over = "records"  # a person is a row of all their records
    meanings: tuple[tuple[str, ...], ...] = ()  # derived columns of people, as defined
    months: tuple[str, ...] = ()  # keys that are first days of months in tables, JSON and Parquet
    pair: tuple[str | float, ...] = ()  # two columns, each with its public range

    def __post_init__(self) -> None:
        _validate.check_fields(self)

    @staticmethod
    def of(
        statistic: Statistic,
        table: TableRows,
        promise: Promise,
        blocks: UnitBlocks,
        noise: str,
        **facts: Any,
    ) -> ReleaseMetadata:
        """Return the public facts of a release from a table; ``facts`` are other fields."""
        known = {
            "title": table.source.title,
            "months": tuple(filter(table.is_month, facts.get("by", ()))),
            "unit": promise.level,
            "elements": blocks.named,
            "cell": "" if blocks.partition is None else blocks.partition.cell,
            "max_elements": blocks.max_elements,
            "relation": promise.relation,
            "epsilon": promise.epsilon,
            "delta": promise.delta,
            "noise": noise,
            "user": table.user,
            "n_users": table.n_users,
        }
        return ReleaseMetadata(statistic, **{**known, **facts})

    @property
    def shared(self) -> bool:
        """True if records have several owners."""
        return self.user is not None and quote_user(self.user) == self.user

    @property
    def has_user_items(self) -> bool:
        """True if each element is one user's records with one item."""
        return self.elements == repr(", ".join(self.by))

    @property
    def rows(self) -> str:
        """Noun for the rows of the table, in the plural."""
        return "records" if self.over == "records" else "people"

    @property
    def is_clipped(self) -> bool:
        """True if clipping may have an effect; unknown for files without facts."""
        if self.told:
            return "clip" in dict(self.told)
        return self.clip is not None and self.clip.takes

    @property
    def is_limited(self) -> bool:
        """True if contributions are clipped, or numbers clamped to privately chosen limits."""
        ends = self.found is not None and not self.statistic.in_order
        return self.is_clipped or ends

    @property
    def is_weighted(self) -> bool:
        """True if a unit adds a fraction to each of its items instead of a count."""
        return self.value is None and self.each == "share"

    @property
    def range_was_private(self) -> bool:
        """True if the range of the numbers was chosen privately."""
        return self.found is not None or "range of the numbers" in dict(self.told)

    @property
    def chosen(self) -> bool:
        """True if clipping bounds were chosen privately."""
        return self.clip is not None and self.clip.chosen

    # -- files --

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain JSON values."""
        facts = {**asdict(self), "statistic": self.statistic.name}
        facts["care"] = [each[1] if each[0] == "stated" else each for each in self.care]
        # Files without these facts keep their hash.
        newer = (
            "selected_groups",
            "months",
            "pair",
            "outside",
            "clipped",
            "counts_clipped",
            "widened",
        )
        for name in newer:
            if facts[name] is None or facts[name] is False or facts[name] == ():
                del facts[name]
        return facts

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> ReleaseMetadata:
        """Read facts from :meth:`to_dict`."""
        facts = {name: fact for name, fact in values.items() if name != "statistic"}
        facts = {name: fact for name, fact in facts.items() if name not in _FORMER}
        care = facts.get("care", ())
        if isinstance(care, list | tuple):
            facts["care"] = [("stated", each) if isinstance(each, str) else each for each in care]
        if isinstance(facts.get("elements"), str):
            facts["elements"] = partition_name(facts["elements"])
        metadata = _validate.read_fields(ReleaseMetadata, facts, "the metadata of a release")
        return replace(metadata, statistic=statistic_by_name(values["statistic"]))

    @staticmethod
    def from_text(words: Mapping[str, str]) -> ReleaseMetadata:
        """Read the description in an older file; its sentences are never parsed."""
        if not isinstance(words, Mapping):
            raise ParameterError(f"words must be a mapping of lines, not {type(words).__name__}.")
        counts = words.get("weight", "1 for each record")
        item = words.get("item", _FORMER_NO_KEYS)
        return ReleaseMetadata(
            statistic_by_name(words.get("statistic", HISTOGRAM.name)),
            by=() if item == _FORMER_NO_KEYS else (item,),
            value=None if counts in _FORMER_EACH else counts,
            each=_FORMER_EACH.get(counts, "record"),
            clip=_CHOSEN.get(words.get("clip", "")),
            noise=words.get("noise", ""),
            care=tuple(
                ("stated", text) for line in ("take care", "warning") for text in _one(words, line)
            ),
            processed=_one(words, "post-processing"),
            told=tuple(words.items()),
        )


def _one(words: Mapping[str, str], line: str) -> tuple[str, ...]:
    return (words[line],) if line in words else ()
