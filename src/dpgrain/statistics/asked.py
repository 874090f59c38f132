"""The facts of a request for a release, and the sentences made of them, in one place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

from dpgrain import _validate
from dpgrain._formatting import approximate_percent, powers, quantity, rounded_up
from dpgrain.errors import ParameterError
from dpgrain.statistics.statistic import HISTOGRAM, Statistic, statistic_of
from dpgrain.units import Level, Relation

Each = Literal["record", "holder", "share", "user"]
#: The rows that estimates are over: records, people who have any, or all people of the roster.
Over = Literal["records", "people", "everyone"]
# Words for what counts where there is no column of numbers.
_EACH: dict[Each, str] = {
    "record": "1 for each record",
    "holder": "1 for each unit that holds the item",
    "share": "1/√(items of the unit) for each unit that holds the item",
    "user": "1 for each user",
}
# Words for what is clipped as one, where there are no elements.
_PARTS: dict[Level | None, str] = {"record": "each record", "user": "each user's contribution"}
# First words of quantities that are numbers of things.
_COUNTED = ("records", "people", "holders", "users")
# Least share lost to clipping that is shown.
_TOLD = 1e-3
_NO_KEYS = "none: one number over all records"


@dataclass(frozen=True)
class Clip:
    """The clipping of contributions.

    Args:
        bound: the public bound; None where bounds were chosen privately.
        over: the name of the parts that have a bound of their own.
        takes: False where nothing is longer than the bound, so that clipping takes nothing.

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
        """True where bounds were chosen privately."""
        return self.bound is None

    def __str__(self) -> str:
        if self.bound is None:
            bounds = (
                "one bound for all items"
                if self.over == "release"
                else f"one bound per {self.over}"
            )
            return f"auto ({bounds}, chosen privately)"
        return f"{self.bound:,.6g}{' for each item' if self.over == 'item' else ''}"


# Sentences that stand for private choices, of which old files have no other trace.
_CHOSEN = {str(clip): clip for clip in (Clip(None), Clip(None, "cell"))}


@dataclass(frozen=True)
class Asked(Mapping[str, str]):
    """The request for a release; as a mapping, the same in words, line by line.

    Args:
        statistic: the statistic that was published.
        title: the name of the table; empty where it is not shown.
        by: the keys; none for one number over all records.
        value: the column of numbers; None where something else counts.
        each: the thing that counts 1 where there is no column of numbers.
        bounds: the public range of the numbers; None where it was found privately, or is not needed.
        found: the range that was found privately.
        beyond: the share of what is counted that may lie outside of it, at the most with 95%
            confidence; None where it is not known.
        public_items: the number of public items; None where some were selected, or there are none.
        selected: the keys whose values were selected privately.
        clip: the clipping of contributions; None where nothing is clipped.
        unit: the privacy unit.
        elements: the partition into elements, in words; empty if there is none.
        max_elements: the largest number of elements of a user that count; None where all do.
        relation: the neighbouring relation.
        epsilon: the ε that was asked for.
        delta: the δ.
        noise: the law of the noise.
        user: the column of users.
        n_users: the number of enrolled users, where that is public.
        above: the estimated share of blocks above a bound that was chosen; None where it is not known.
        lost: the estimated share that clipping removes; None if it is unknown.
        lost_of: the whole of that share: the total, or the norms of blocks, where those hold several
            numbers.
        care: warnings for readers of the estimates, in sentences; they follow from noisy numbers alone.
        processed: the post-processing of the estimates.
        told: the words of a file that was written when files had no facts.
        over: the rows that estimates are over; of people, each row is made of all that one has.

    >>> from dpgrain.statistics.statistic import MEAN
    >>> asked = Asked(MEAN, value="score", bounds=(0.0, 100.0))
    >>> asked["weight"], asked["user"]
    ('score between 0 and 100', 'none')
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
    clip: Clip | None = None
    unit: Level | None = None
    elements: str = ""
    max_elements: int | None = None
    relation: Relation | None = None
    epsilon: float | None = None
    delta: float | None = None
    noise: str = ""
    user: str | None = None
    n_users: int | None = None
    above: float | None = None
    lost: float | None = None
    lost_of: Literal["total", "norms"] = "total"
    care: tuple[str, ...] = ()
    processed: tuple[str, ...] = ()
    told: tuple[tuple[str, str], ...] = ()
    over: Over = "records"

    def __post_init__(self) -> None:
        _validate.check_fields(self)

    # -- as a mapping --

    def __getitem__(self, line: str) -> str:
        return self.words[line]

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __len__(self) -> int:
        return len(self.words)

    def __str__(self) -> str:
        return "; ".join(f"{line}: {said}" for line, said in self.words.items())

    @cached_property
    def words(self) -> dict[str, str]:
        """The request in words, line by line, as saved files and pages have it."""
        said = dict(self.told) if self.told else self._first_words()
        if self.found is not None:
            low, high = self.found
            said["range of the numbers"] = f"{low:,.6g} to {high:,.6g}, chosen privately"
        if self.outside:
            said["outside of the range"] = self.outside
        if self.left_out:
            said["left out"] = self.left_out
        if self.care:
            said["take care"] = "; ".join(self.care)
        if self.processed:
            said["post-processing"] = ", ".join(self.processed)
        return said

    def _first_words(self) -> dict[str, str]:
        lines = {
            "statistic": self.statistic.name,
            "table": self.title,
            "item": self.items_in_words or _NO_KEYS,
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
    def items_in_words(self) -> str:
        """The keys, in a row; empty where there are none."""
        return ", ".join(self.by)

    @property
    def counts(self) -> str:
        """The contribution of a record."""
        if self.value is None:
            return _EACH[self.each]
        if self.bounds is None:
            return self.value
        return f"{self.value} between {self.bounds[0]:,.6g} and {self.bounds[1]:,.6g}"

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
        what = "element" if self.statistic.of_bins else "item"
        rows = f"rows without a user or {what} are dropped"
        if self.value is None:
            return rows
        if self.statistic.weighted:
            return f"{rows}; weights of 0 or less count 0"
        return f"{rows}, and rows without a finite number"

    # -- what pages ask --

    @property
    def estimand(self) -> str:
        """A description of the estimates, with the clipping of one unit's contribution."""
        per = f" per {self.items_in_words}" if self.by and not self.statistic.of_bins else ""
        what = self.statistic.estimate_of(self.value).replace("records", self.rows)
        if what.split()[0] in _COUNTED:
            what = what.replace("holders", f"{self.unit or 'unit'}s with the item")
            what = f"{'weighted ' if self.of_shares else ''}number of {what}"
        if self.statistic.ratio:
            what = f"{self.statistic.heading} {self.statistic.value_of(self.value)}"
            per += f", over {self._over}"
        if (limits := self.bounds or self.found) is not None and not self.statistic.of_parts:
            what = f"{what} between {limits[0]:,.6g} and {limits[1]:,.6g}"
        if self.max_elements is not None:
            per += f", of at most {quantity(self.max_elements, 'element')} of each user"
        return f"{what}{per}{self._capped}"

    @property
    def covers(self) -> str:
        """The quantity that intervals cover, such as "clipped total"."""
        return f"{'clipped ' if self.capped else ''}{self.unclipped}"

    @property
    def unclipped(self) -> str:
        """The same quantity without clipping of contributions."""
        weighted = "weighted " if self.of_shares else ""
        limited = self.bounds is not None or self.found is not None or self.statistic.paired
        clamped = " of clamped values" if limited and not self.statistic.of_parts else ""
        kept = "" if self.max_elements is None else " of kept elements"
        return f"{weighted}{self.statistic.covers}{clamped}{kept}"

    @property
    def rows(self) -> str:
        """The word for the rows of the table, in the plural."""
        return "records" if self.over == "records" else "people"

    @property
    def _over(self) -> str:
        """The words for the rows of the estimates."""
        if self.over == "everyone" and self.n_users is not None:
            return f"all {self.n_users:,} enrolled people, 0 for those without records"
        return "people with a record" if self.over == "people" else self.rows

    @property
    def capped(self) -> bool:
        """True where clipping may take something; of files without facts this is not known."""
        if self.told:
            return "clip" in dict(self.told)
        return self.clip is not None and self.clip.takes

    @property
    def cut(self) -> bool:
        """True where contributions are capped, or numbers end at bounds that were found."""
        ends = self.found is not None and not self.statistic.in_order
        return self.capped or ends

    @property
    def _capped(self) -> str:
        """The clipping of one unit's contribution, after a comma; empty if nothing is clipped."""
        if not self.capped:
            return ""
        if self.told:
            return f", clipped: {dict(self.told)['clip']}"
        assert self.clip is not None  # noqa: S101 - what is capped has a bound
        if self.clip.over == "item":
            return ", of the first items of each unit"
        limit, ends = self.clip.bound, self.bounds or self.found
        if limit is not None and self.statistic.signed and ends is not None:
            # Sums are clipped in units of the largest magnitude.
            limit *= max(map(abs, ends))
        per = " per cell" if self.clip.over == "cell" else ""
        bound = f"a bound chosen privately{per}" if limit is None else f"{limit:,.6g}"
        return f", {self._block} clipped at {bound}"

    @property
    def _block(self) -> str:
        """The contribution that is clipped as a whole."""
        if self.elements:
            return "each user's contribution to a cell"
        return _PARTS.get(self.unit, "each unit's contribution")

    @property
    def _parts(self) -> str:
        """The words for all that are clipped, each as one."""
        if self.elements:
            return "users' contributions to cells"
        return "records" if self.unit == "record" else f"{self.unit or 'unit'}s' contributions"

    @property
    def left_out(self) -> str:
        """The effect of clipping on all groups together; empty if it is unknown."""
        if self.above is None and self._unmeasured:
            return "the effect of clipping was not measured, because clip= was set"
        if self.above is None:
            return dict(self.told).get("left out", "")
        said = f"clipping affected {approximate_percent(self.above)} of {self._parts}"
        if self.lost is None or self.lost < _TOLD:
            return said
        whole = "their size" if self.lost_of == "norms" else "the total"
        if self.statistic.ratio and self.lost_of == "total":
            whole = "the weight of records"
        # Ratios subtract what noise may have added to the share; others report the estimate itself.
        least = "at least " if self.statistic.ratio else ""
        share = f"{least}{approximate_percent(self.lost)}"
        return f"{said} and removed {share} of {whole} (rough estimates)"

    @property
    def _unmeasured(self) -> bool:
        """True of sums that a stated bound may have made smaller, nobody knows by how much."""
        clip = self.clip
        stated = clip is not None and clip.takes and not clip.chosen and clip.over != "item"
        return stated and not (self.told or self.statistic.ratio)

    @property
    def outside(self) -> str:
        """The effect of a privately chosen range; empty if it is unknown."""
        if self.statistic.of_parts:
            # A privately chosen range only places edges; it clamps no values.
            return ""
        if self.found is None or self.beyond is None:
            return dict(self.told).get("outside of the range", "")
        ends = " or ".join(f"{end:,.6g}" for end in self.found if end)
        whose = "users' values" if self.rows == "records" else self.rows
        most = f"{rounded_up(100 * self.beyond, 2)}%"
        return (
            f"values beyond {ends} were clamped: at most {most} of {whose} (95% confidence), by an "
            "unknown amount"
        )

    @property
    def cut_off(self) -> str:
        """The effect of explicit bounds; empty if there are none.

        >>> from dpgrain.statistics.statistic import MEAN
        >>> Asked(MEAN, value="score", bounds=(0.0, 100.0)).cut_off
        'values are clamped to [0, 100]; intervals do not include the effect of this'
        """
        if self.bounds is not None:
            low, high = (f"{end:,.6g}" for end in self.bounds)
            said = f"values are clamped to [{low}, {high}]"
        elif self.statistic.paired:
            said = "values are clamped to the given bounds"
        else:
            return ""
        return f"{said}; intervals do not include the effect of this"

    @property
    def ranked(self) -> str:
        """The effect of ranking by noisy counts; empty if nothing is ranked."""
        if not self.statistic.holders:
            return ""
        # Counts that were selected by other noise are as good as any.
        passed = self.of_shares or (self.selected and self.noise == "truncated geometric")
        named, above = (" and selected", " and just above the threshold") if passed else ("", "")
        return (
            f"items are ranked{named} by their noisy counts, so counts at the top{above} tend to be "
            "overestimated; intervals do not allow for this"
        )

    @property
    def of_shares(self) -> bool:
        """True where a unit adds a share to each item that it holds, not a count."""
        return self.value is None and self.each == "share"

    @property
    def measured(self) -> str:
        """The words, one or two, for an estimate."""
        words = self.statistic.estimate_of(self.value)
        if self.rows != "records":
            words = words.replace("records", self.rows)
        return f"weighted {words}" if self.of_shares else words

    @property
    def range_was_found(self) -> bool:
        """True where the range of the numbers was found privately."""
        return "range of the numbers" in self.words

    @property
    def chosen(self) -> bool:
        """True where clipping bounds were chosen privately."""
        return self.clip is not None and self.clip.chosen

    @property
    def take_care(self) -> str:
        """The warnings for readers of the estimates; empty where there are none."""
        return self.words.get("take care", "")

    @property
    def afterwards(self) -> str:
        """The post-processing of the estimates in words; empty where there was none."""
        return ", ".join(self.processed)

    # -- files --

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain JSON values."""
        return {**asdict(self), "statistic": self.statistic.name}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Asked:
        """Read facts from :meth:`to_dict`.

        Raises:
            ParameterError: if a fact is unknown or wrong.
        """
        facts = {name: fact for name, fact in values.items() if name != "statistic"}
        asked = _validate.read_fields(Asked, facts, "what was asked")
        return replace(asked, statistic=statistic_of(values["statistic"]))

    @staticmethod
    def from_words(words: Mapping[str, str]) -> Asked:
        """Read a request of an older file, whose sentences are kept whole and never taken apart.

        Args:
            words: the sentences, line by line.

        Raises:
            ParameterError: if a line is no text.
        """
        if not isinstance(words, Mapping):
            raise ParameterError(f"words must be a mapping of lines, not {type(words).__name__}.")
        each = {said: kind for kind, said in _EACH.items()}
        counts, item = words.get("weight", _EACH["record"]), words.get("item", _NO_KEYS)
        return Asked(
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


def _one(words: Mapping[str, str], line: str) -> tuple[str, ...]:
    return (words[line],) if line in words else ()
