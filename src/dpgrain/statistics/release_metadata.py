"""Public facts of a release, and the sentences built from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from dpgrain import _validate
from dpgrain._formatting import approximate_percent, powers, quantity, quote_user, rounded_up
from dpgrain.errors import ParameterError
from dpgrain.statistics.statistic import HISTOGRAM, VALUE, Statistic, statistic_of
from dpgrain.units import Level, Relation

if TYPE_CHECKING:
    from dpgrain.publishing.promise import Promise
    from dpgrain.tables.blocks import UnitBlocks
    from dpgrain.tables.rows import TableRows

Each = Literal["record", "holder", "share", "user"]
#: The rows that estimates cover: records, people with records, or all enrolled people.
Over = Literal["records", "people", "everyone"]
# Contribution of a record without a numeric column.
_EACH: dict[Each, str] = {
    "record": "1 for each record",
    "holder": "1 for each unit with the item",
    "share": "1/√(items of the unit) for each unit with the item",
    "user": "1 for each user",
}
# First words of counted quantities.
_COUNTED = ("records", "people", "users", "elements", "units")
# Privately chosen limits of these sizes are rounded to integers.
_AS_INTEGERS = (100.0, 1e9)
# Clipped norms of a contribution, by noise distribution.
_NORMS = {"gaussian": "l2 norm", "laplace": "l1 norm"}
# Descriptions in files of 0.1.
_FORMER_EACH: dict[str, Each] = {
    "1 for each unit that holds the item": "holder",
    "1/√(items of the unit) for each unit that holds the item": "share",
}
# Parts with separate bounds.
_PARTS = {"cell": "cell", "item": "item"}
_NO_KEYS = "none: one number over all records"


@dataclass(frozen=True)
class Clip:
    """Clipping of contributions.

    Args:
        bound: the public bound; None for privately chosen bounds.
        over: the parts with separate bounds.
        takes: False if no contribution can exceed the bound.

    >>> str(Clip(2.0)), str(Clip(None, "cell"))
    ('2', 'auto (one bound per cell, chosen privately)')
    """

    bound: float | None
    over: Literal["release", "cell", "item"] = "release"
    takes: bool = True

    def __post_init__(self) -> None:
        _validate.check_fields(self)

    @property
    def chosen(self) -> bool:
        """True for privately chosen bounds."""
        return self.bound is None

    def __str__(self) -> str:
        if self.bound is None:
            bounds = (
                "one bound for all items"
                if self.over == "release"
                else f"one bound per {_PARTS[self.over]}"
            )
            return f"auto ({bounds}, chosen privately)"
        return f"{self.bound:,.6g}{' for each item' if self.over == 'item' else ''}"


# Descriptions of private choices in files of 0.1, which have no facts.
_CHOSEN = {str(clip): clip for clip in (Clip(None), Clip(None, "cell"))}
_CHOSEN["auto (one bound per element, chosen privately)"] = Clip(None, "cell")
# Unreliable estimates in files of 0.1.
_FORMER = ("above", "lost", "lost_of")


@dataclass(frozen=True)
class ReleaseMetadata(Mapping[str, str]):
    """Public facts of a release; as a mapping, its description line by line.

    Args:
        statistic: published statistic.
        title: name of the table; empty if not shown.
        by: keys; none for one number over all records.
        value: numeric column; None if other things are counted.
        each: thing that counts 1 without a numeric column.
        bounds: public range of the numbers; None if chosen privately or not needed.
        found: privately chosen range.
        beyond: 95% upper bound on the share outside of it; None if unknown.
        public_items: number of public items; None if items were selected, or there are none.
        selected: keys with privately selected values.
        selected_groups: number of selected groups, if the release contains only the largest of them.
        clip: clipping of contributions; None if nothing is clipped.
        unit: privacy unit.
        elements: description of the partition into elements; empty if there is none.
        cell: text for one cell of the partition; empty if there is none, or it is unknown.
        cells: number of public cells of items; None if it is unknown, or each item is a cell.
        max_elements: maximum number of elements of a user; None for all.
        max_items: maximum number of items of a unit in a selection with counts; None for all.
        relation: neighbouring relation.
        epsilon: requested ε.
        delta: requested δ.
        noise: noise distribution.
        user: column of user ids.
        n_users: public number of enrolled users.
        bound: privately chosen clipping bound; None if it is unknown, or each cell has one.
        above: rough estimate of the share of blocks above privately chosen bounds; None if
            unknown.
        care: warnings for readers, as sentences; computed from noisy numbers only.
        processed: post-processing of the estimates.
        told: description in a file of a version without facts.
        over: rows that estimates cover; a person is a row of all their records.
        meanings: columns of people, each with the words for its values.

    >>> from dpgrain.statistics.statistic import MEAN
    >>> metadata = ReleaseMetadata(MEAN, value="score", bounds=(0.0, 100.0))
    >>> metadata["weight"], metadata["user"]
    ('score clamped to [0, 100]', 'none')
    """

    statistic: Statistic = HISTOGRAM
    title: str = ""
    by: tuple[str, ...] = ()
    value: str | None = None
    each: Each = "record"
    bounds: tuple[float, ...] | None = None
    found: tuple[float, ...] | None = None
    beyond: float | None = None
    public_items: int | None = None
    selected: tuple[str, ...] = ()
    selected_groups: int | None = None
    clip: Clip | None = None
    unit: Level | None = None
    elements: str = ""
    cell: str = ""
    cells: int | None = None
    max_elements: int | None = None
    max_items: int | None = None
    relation: Relation | None = None
    epsilon: float | None = None
    delta: float | None = None
    noise: str = ""
    user: str | None = None
    n_users: int | None = None
    bound: float | None = None
    above: float | None = None
    care: tuple[str, ...] = ()
    processed: tuple[str, ...] = ()
    told: tuple[tuple[str, str], ...] = ()
    over: Over = "records"
    meanings: tuple[tuple[str, str], ...] = ()

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

    # -- as a mapping --

    def __getitem__(self, line: str) -> str:
        return self.words[line]

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __len__(self) -> int:
        return len(self.words)

    def __str__(self) -> str:
        return "; ".join(f"{line}: {text}" for line, text in self.words.items())

    @cached_property
    def words(self) -> dict[str, str]:
        """Description line by line, as in saved files and reports."""
        words = dict(self.told) if self.told else self._first_words()
        if self.found is not None:
            low, high = self.found
            words["range of the numbers"] = f"{low:,.6g} to {high:,.6g}, chosen privately"
        if self.clamping_effect:
            words["outside of the range"] = self.clamping_effect
        if self.clipping_effect:
            words["left out"] = self.clipping_effect
        if self.care:
            words["take care"] = "; ".join(self.care)
        if self.processed:
            words["post-processing"] = ", ".join(self.processed)
        return words

    def _first_words(self) -> dict[str, str]:
        lines = {
            "statistic": self.statistic.name,
            "table": self.title,
            "item": self.keys_text or _NO_KEYS,
            "domain": self._domain,
            "weight": self.counts,
            "bad values": self._bad_values,
            "user": self.user or "none",
            "n_users": "not given" if self.n_users is None else f"{self.n_users:,}",
            "unit": self.unit or "",
            "elements": self.elements or "none",
            "relation": self.relation or "",
            "epsilon": "" if self.epsilon is None else rounded_up(self.epsilon, 6),
            "delta": "" if self.delta is None else powers(self.delta),
            "clip": "" if self.clip is None else str(self.clip),
            "noise": self.noise,
        }
        return {line: words for line, words in lines.items() if words}

    @property
    def keys_text(self) -> str:
        """Keys as text; empty without keys."""
        return ", ".join(self.by)

    @property
    def counts(self) -> str:
        """Contribution of a record."""
        if self.value is None:
            return _EACH[self.each]
        if self.bounds is None:
            return self.value
        return f"{self.value} {_clamped(self.bounds)}"

    @property
    def _domain(self) -> str:
        if self.public_items is not None:
            return quantity(self.public_items, "public item")
        if not self.selected:
            return ""
        some = len(self.selected) < len(self.by)
        named = f"{', '.join(self.selected)} " if some else ""
        return f"{named}selected privately{', the rest public' if some else ''}"

    @property
    def _bad_values(self) -> str:
        if self.statistic.stacked:
            user = "" if self.user is None else f"without a value in {quote_user(self.user)} or "
            return f"rows {user}with an unknown value in any of the columns are dropped"
        user = [] if self.user is None or self._shared else [quote_user(self.user)]
        columns = [*user, *map(repr, self.by)]
        missing = [f"a value in {' or '.join(columns)}"] if columns else []
        if self.value is not None and not self.statistic.weighted:
            number = "both columns" if self.statistic.paired else repr(self.value)
            missing.append(f"a finite number in {number}")
        rows = f"rows without {' or '.join(missing)} are dropped" if missing else ""
        if self._shared and self.user is not None:
            neither = "rows with neither " + self.user.replace("' and '", "' nor '")
            also = f", or without {' or '.join(missing)}," if missing else ""
            rows = f"{neither}{also} are dropped"
        weighted = self.statistic.weighted and self.value is not None
        return f"{rows}; missing weights and weights below 0 count 0" if weighted else rows

    # -- sentences --

    @property
    def estimand(self) -> str:
        """Description of the estimates, with the clipping of one unit's contribution."""
        if self.is_weighted:
            whose = self.unit or "unit"
            return (
                f"score per {self.keys_text} for ranking, not a number of people: each {whose} adds "
                f"1/√k to each of k items, which are all of its items or {self._first_items}"
            )
        if self.statistic.of_bins:
            return (
                f"number of users by how many values of {self.keys_text}, and how many records, "
                "each has"
            )
        keys = ", ".join(map(self._with_meaning, self.by))
        per = f" per {keys}" if self.by else ""
        value = None if self.value is None else self._with_meaning(self.value)
        words = self.statistic.estimate_of(None if value is None else VALUE)
        what = words.replace("records", self.rows).replace(VALUE, value or "")
        if self.statistic.holders:
            per, what = "", f"{self._holders} with each {keys}"
        if what.split()[0] in _COUNTED:
            what = f"{self._number} of {what}"
        if self.statistic.stepped:
            what = f"share of {self.rows} with {value} at or above each value"
            per += "" if self.over == "records" else f", over {self._over}"
        elif self.statistic.ratio:
            what = f"{self.statistic.heading} {self.statistic.value_of(value)}"
            per += f", over {self._over}"
        if (limits := self.bounds or self.found) is not None and not self.statistic.of_parts:
            low, high = map(format_limit, limits)
            clamping = f"clamped to [{low}, {high}] (limits chosen privately)"
            what = f"{what} {_clamped(limits) if self.bounds else clamping}"
        if self.max_elements is not None:
            first = _first(self.max_elements, "")
            per += f", from at most {self._element_limit} per user ({first}; others are dropped)"
        return f"{what}{per}{self._clipping}"

    def _with_meaning(self, column: str) -> str:
        """Return a column, with the words for its values if it describes people."""
        meaning = dict(self.meanings).get(column)
        return column if meaning is None else f"{column} ({meaning})"

    @property
    def _shared(self) -> bool:
        """True if records have several owners."""
        return self.user is not None and quote_user(self.user) == self.user

    @property
    def _first_items(self) -> str:
        """Items of a unit that a selection counts."""
        return "the first items" if self.max_items is None else _first(self.max_items, "item")

    @property
    def _number(self) -> str:
        """Word for an estimated count."""
        return "clipped count" if self.is_clipped else "number"

    @property
    def _holders(self) -> str:
        """Noun for the units that are counted once per item."""
        # If records are protected, each pair of a user and an item still counts once.
        pairs = self.unit == "record" or (self.unit == "element" and self._of_own_items)
        return "users" if pairs and self.user else f"{self.unit or 'unit'}s"

    @property
    def _element_limit(self) -> str:
        """Elements of a user that are not dropped."""
        assert self.max_elements is not None  # noqa: S101 - asked for only then
        if self._of_own_items:
            return f"{quantity(self.max_elements, 'value')} of {self.keys_text}"
        noun, of, column = self.cell.partition(" of ")
        return f"{quantity(self.max_elements, noun or 'cell')}{of}{column}"

    @property
    def _of_own_items(self) -> bool:
        """True if each element is one user's records with one item."""
        return self.elements == f"the column {', '.join(self.by)!r}"

    @property
    def covers(self) -> str:
        """Quantity that intervals cover, such as "clipped total"."""
        return f"{'clipped ' if self.is_clipped else ''}{self.unclipped}"

    @property
    def unclipped(self) -> str:
        """The same quantity without clipping of contributions."""
        if self.is_weighted:
            return "score"
        limited = self.bounds is not None or self.range_was_private or self.statistic.paired
        clamped = " of clamped values" if limited and not self.statistic.of_parts else ""
        limit = "" if self.max_elements is None else " of kept elements"
        return f"{self.statistic.covers}{clamped}{limit}"

    @property
    def rows(self) -> str:
        """Noun for the rows of the table, in the plural."""
        return "records" if self.over == "records" else "people"

    @property
    def _over(self) -> str:
        """Description of the rows that estimates cover."""
        if self.over == "everyone" and self.n_users is not None:
            return f"all {self.n_users:,} enrolled people, 0 for those without records"
        return "people with a record" if self.over == "people" else self.rows

    @property
    def is_clipped(self) -> bool:
        """True if clipping may have an effect; unknown for files without facts."""
        if self.told:
            return "clip" in dict(self.told)
        return self.clip is not None and self.clip.takes

    @property
    def is_limited(self) -> bool:
        """True if contributions are clipped, or numbers are clamped to privately chosen limits."""
        ends = self.found is not None and not self.statistic.in_order
        return self.is_clipped or ends

    @property
    def _clipping(self) -> str:
        """Clipping of one unit's contribution, after a comma; empty if nothing is clipped."""
        if not self.is_clipped:
            return ""
        if self.told:
            return f", clipped: {dict(self.told)['clip']}"
        assert self.clip is not None  # noqa: S101 - clipped contributions have a bound
        if self.clip.over == "item":
            return f", counting only {self._first_items} of each {self.unit or 'unit'}"
        limit, ends = self.clip.bound, self.bounds or self.found
        if limit is None and self.bound is None:
            per = f" per {self._cell}" if self.clip.over == "cell" else ""
            return f"{self._scaled(f'a bound{per}')}, chosen privately"
        if limit is None:
            assert self.bound is not None  # noqa: S101 - see above
            return f"{self._scaled(self._limit(self.bound))}, chosen privately"
        if self.statistic.signed and ends is not None:
            # Sums are clipped in units of the largest magnitude.
            limit *= max(map(abs, ends))
        return self._scaled(self._limit(limit))

    def _scaled(self, limit: str) -> str:
        """Describe the clipping of one unit's contribution to a limit, after a comma."""
        if self._shared:
            # A record's weight below 1 requires an owner with more than the limit.
            return (
                ", each record counted once for all its users, or less where needed to clip "
                f"{self._block} to at most {limit}"
            )
        together = " together" * ("contributions" in self._block)
        return f", {self._block} clipped (scaled down{together}) to at most {limit}"

    def _limit(self, bound: float) -> str:
        """Bound as text, with its unit for counts, and the norm that it limits."""
        norm, size = self._joint_norm, format_limit(bound) if self.chosen else f"{bound:,.6g}"
        if self.statistic.ratio and not self.statistic.ranked:
            # The contribution of a record has an l1 norm of 1.
            of_one = f"{norm} {size} (a record has up to 1)"
            return f"{size} {self.rows}" if norm == "l1 norm" else of_one
        if norm and (norm != "l1 norm" or not self._groups or self.statistic.ratio):
            roots = self.each == "holder" and norm == "l2 norm"
            parts = self.statistic.signed and not self._groups
            return (
                f"{norm} {size}{f' (√k for k {self._groups})' * roots}"
                f"{' (of positive and negative parts)' * parts}"
            )
        if self._counts_rows and not self.statistic.ratio:
            size += (
                f" {self.rows if bound != 1 else 'record' if self.over == 'records' else 'person'}"
            )
        return f"{size} in total ({norm})" if norm else size

    @property
    def _counts_rows(self) -> bool:
        """True if each row adds 1."""
        return self.value is None and self.each == "record"

    @property
    def clipping_examples(self) -> str:
        """Contributions with the largest l2 norm over several groups; empty for other norms."""
        bound = None if self.clip is None or self.told else self.clip.bound
        joint = self._groups and self._joint_norm == "l2 norm" and self._counts_rows
        if bound is None or not joint or not self.is_clipped or self.statistic.ratio:
            return ""
        return (
            f"l2 norm {bound:,.6g} means, for example, {bound:,.6g} {self.rows} in one "
            f"{self._groups[:-1]}, or {bound / 2:,.6g} in each of 4"
        )

    @property
    def _joint_norm(self) -> str:
        """Norm that a bound limits, if a contribution consists of several numbers."""
        if self.statistic.stacked:
            return "joint norm"
        ends = self.bounds or self.found
        two_signs = self.statistic.signed and ends is not None and ends[0] < 0 < ends[1]
        if not (self._groups or self.statistic.ratio or two_signs):
            return ""
        return _NORMS.get(self.noise, "norm")

    @property
    def _groups(self) -> str:
        """Groups of one contribution, in the plural; empty for a contribution to one group."""
        if self.unit == "record" or (self.elements and self._of_own_items):
            return ""
        if self.by:
            return f"{self.statistic.noun}s"
        return "bins" if self.statistic.of_parts else ""

    @property
    def _cell(self) -> str:
        """Noun for a cell of the partition: a key, a period or a cell."""
        noun = self.keys_text if self._of_own_items else self.cell.partition(" of ")[0]
        return noun or "cell"

    @property
    def _place(self) -> str:
        """Cell of a contribution to an element; empty without elements."""
        if self._of_own_items:
            return f" to each {self.keys_text}"
        if self.cells is not None and self.cells > 1:
            noun, of, column = (self.cell or "cell").partition(" of ")
            return f" in one of {self.cells:,} public {noun}s{of}{column}"
        return f" in one {self.cell or 'cell'}" if self.elements else ""

    @property
    def _contribution(self) -> str:
        """Contribution that is clipped as a whole."""
        if self.unit == "record":
            return "each record"
        return f"each {'user' if self.unit else 'unit'}'s contribution{self._place}"

    @property
    def _block(self) -> str:
        """Contribution that is clipped as a whole, with its groups."""
        if not self._groups:
            return self._contribution
        whose = "user" if self.unit else "unit"
        number = "" if self.public_items is None or self.elements else f"{self.public_items:,} "
        return f"each {whose}'s contributions to all {number}{self._groups}{self._place}"

    @property
    def clipping_effect(self) -> str:
        """Effect of clipping on all groups together; empty if nothing is clipped."""
        if self.told:
            return dict(self.told).get("left out", "")
        if not self.is_clipped or (self.clip is not None and self.clip.over == "item"):
            return ""
        if self.above is None:
            return "the effect of clipping was not estimated"
        parts = f"users' contributions to one {self._cell}" if self.elements else f"{self.unit}s"
        return f"a rough estimate: {approximate_percent(self.above)} of {parts} were clipped"

    @property
    def clamping_effect(self) -> str:
        """Effect of a privately chosen range; empty if unknown."""
        if self.statistic.of_parts:
            # A privately chosen range only places edges; it clamps no values.
            return ""
        if self.found is None or self.beyond is None:
            return dict(self.told).get("outside of the range", "")
        low, high = map(format_limit, self.found)
        values = "values" if self.value is None else f"values of {self.value}"
        most = f"at most {rounded_up(100 * self.beyond, 2)}% of all {values}"
        confidence = "95% confidence"
        if self.unit in ("user", "element"):
            each, of = (
                (f" and {self._cell}s", f" in one {self._cell}") if self.elements else ("", "")
            )
            limit = "" if self.max_elements is None else ", among the kept elements"
            most = f"on average over users{each}{limit}, {most} of one user{of}"
            # Each unit's counts of bins are scaled to norm 1: their sum is 1 for the l1 norm only.
            confidence += "; users with varied values weigh more" * (self.noise == "gaussian")
        return (
            f"{most} were outside [{low}, {high}] ({confidence}) and clamped, by an unknown amount"
        )

    @property
    def bounds_effect(self) -> str:
        """Effect of explicit bounds; empty if there are none.

        >>> from dpgrain.statistics.statistic import MEAN
        >>> ReleaseMetadata(MEAN, value="score", bounds=(0.0, 100.0)).bounds_effect
        'values are clamped to [0, 100]; intervals do not include the effect of this'
        """
        if self.bounds is not None:
            text = f"values are {_clamped(self.bounds)}"
        elif self.statistic.paired:
            text = "values are clamped to the given bounds"
        else:
            return ""
        return f"{text}; intervals do not include the effect of this"

    @property
    def ranking_effect(self) -> str:
        """Effect of ranking by noisy counts; empty without ranking."""
        if not self.statistic.holders:
            return ""
        # The noise of a separate selection does not bias the counts.
        passed = self.is_weighted or (self.selected and self.noise == "truncated geometric")
        named, above = (" and selected", " and just above the threshold") if passed else ("", "")
        counts = "scores" if self.is_weighted else "counts"
        return (
            f"items are ranked{named} by their noisy {counts}, so {counts} at the top{above} tend to "
            "be overestimated; intervals do not allow for this"
        )

    @property
    def is_weighted(self) -> bool:
        """True if a unit adds a fraction to each of its items instead of a count."""
        return self.value is None and self.each == "share"

    @property
    def quantity(self) -> str:
        """Name of an estimate, in one or two words."""
        words = self.statistic.estimate_of(self.value)
        if self.rows != "records":
            words = words.replace("records", self.rows)
        return f"weighted {words}" if self.is_weighted else words

    @property
    def range_was_private(self) -> bool:
        """True if the range of the numbers was chosen privately."""
        return "range of the numbers" in self.words

    @property
    def chosen(self) -> bool:
        """True if clipping bounds were chosen privately."""
        return self.clip is not None and self.clip.chosen

    @property
    def warnings(self) -> str:
        """Warnings for readers of the estimates; empty if there are none."""
        return self.words.get("take care", "")

    @property
    def post_processing(self) -> str:
        """Post-processing of the estimates as text; empty if there was none."""
        return ", ".join(self.processed)

    # -- files --

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain JSON values."""
        facts = {**asdict(self), "statistic": self.statistic.name}
        if self.selected_groups is None:
            # Files without this fact keep their hash.
            del facts["selected_groups"]
        return facts

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> ReleaseMetadata:
        """Read facts from :meth:`to_dict`.

        Raises:
            ParameterError: if a fact is unknown or wrong.
        """
        facts = {name: fact for name, fact in values.items() if name != "statistic"}
        if "lost" in facts:
            facts = {name: fact for name, fact in facts.items() if name not in _FORMER}
        metadata = _validate.read_fields(ReleaseMetadata, facts, "the metadata of a release")
        return replace(metadata, statistic=statistic_of(values["statistic"]))

    @staticmethod
    def from_words(words: Mapping[str, str]) -> ReleaseMetadata:
        """Read the description in an older file, whose sentences are stored but never parsed.

        Raises:
            ParameterError: if a line is not text.
        """
        if not isinstance(words, Mapping):
            raise ParameterError(f"words must be a mapping of lines, not {type(words).__name__}.")
        each = {text: kind for kind, text in _EACH.items()} | _FORMER_EACH
        counts, item = words.get("weight", _EACH["record"]), words.get("item", _NO_KEYS)
        return ReleaseMetadata(
            statistic_of(words.get("statistic", HISTOGRAM.name)),
            by=() if item == _NO_KEYS else (item,),
            value=None if counts in each else counts,
            each=each.get(counts, "record"),
            clip=_CHOSEN.get(words.get("clip", "")),
            noise=words.get("noise", ""),
            care=_one(words, "take care"),
            processed=_one(words, "post-processing"),
            told=tuple(words.items()),
        )


def _clamped(limits: tuple[float, ...]) -> str:
    return f"clamped to [{limits[0]:,.6g}, {limits[1]:,.6g}]"


def format_limit(limit: float) -> str:
    """Return a privately chosen limit with three digits, or as an integer.

    >>> format_limit(0.0696492), format_limit(138.831), format_limit(1e20)
    ('0.0696', '139', '1e+20')
    """
    low, high = _AS_INTEGERS
    return f"{limit:,.0f}" if low <= abs(limit) < high else f"{limit:.3g}"


def _first(number: int, noun: str) -> str:
    which = "the first " + (
        noun if number == 1 else quantity(number, noun) if noun else f"{number:,}"
    )
    return f"{which.strip()} in a fixed public order"


def _one(words: Mapping[str, str], line: str) -> tuple[str, ...]:
    return (words[line],) if line in words else ()
