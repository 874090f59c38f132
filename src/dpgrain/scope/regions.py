"""Regions: public sets of records, each a conjunction of conditions on columns.

A release of a region reads only the records inside it, so records outside have no influence on it.
Regions are public facts: they are intersected, compared and divided without any data.

A column contains labels (texts or integers), or values on an axis: integers, or days and times in
microseconds since 1970. A missing or unreadable value is a separate value, inside a side only if
``missing`` is True. Which values are unreadable depends on the type of the column, which a side
therefore states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias, get_args

from dpgrain import _validate
from dpgrain.errors import ParameterError

#: Integers; whole days; local times without a zone; times with a zone.
Axis: TypeAlias = Literal["whole", "date", "time", "instant"]

_EPOCH = datetime(1970, 1, 1)
#: Microseconds of a day.
DAY = 24 * 60 * 60 * 10**6
# Start of the year 1 and end of the year 9999, in microseconds since 1970.
_FIRST, _END = -62_135_596_800_000_000, 253_402_300_800_000_000
# Default type of a column by its axis.
_USUAL = {
    "whole": "BIGINT",
    "date": "DATE",
    "time": "TIMESTAMP",
    "instant": "TIMESTAMP WITH TIME ZONE",
    "text": "VARCHAR",
    None: "VARCHAR",
}
# Maximum number of classes of records, more than one table needs.
_MOST_ATOMS = 20_000


@dataclass(frozen=True)
class Span:
    """An interval of an axis, closed below and open above."""

    axis: Axis  # integers, or microseconds since 1970
    low: int | None = None  # smallest value inside; None if there is none
    high: int | None = None  # smallest value above; None if there is none

    def __post_init__(self) -> None:
        _validate.one_of(get_args(Axis), axis=self.axis)
        for name, end in (("low", self.low), ("high", self.high)):
            if end is not None:
                object.__setattr__(self, name, _whole_number(name, end))

    def __bool__(self) -> bool:
        return self.low is None or self.high is None or self.low < self.high

    def __contains__(self, value: int | str) -> bool:
        if isinstance(value, str):
            return False
        return (self.low is None or self.low <= value) and (self.high is None or value < self.high)

    def both(self, other: Span) -> Span:
        """Return the intersection with an interval of the same axis; it may be empty."""
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        return Span(self.axis, max(lows, default=None), min(highs, default=None))

    def around(self, other: Span) -> Span:
        """Return the smallest interval around both of the same axis."""
        lows, highs = (self.low, other.low), (self.high, other.high)
        low = None if None in lows else min(end for end in lows if end is not None)
        high = None if None in highs else max(end for end in highs if end is not None)
        return Span(self.axis, low, high)

    def minus(self, other: Span) -> tuple[Span, ...]:
        """Return the difference from an interval of the same axis, as intervals."""
        below = () if other.low is None else (self.both(Span(self.axis, None, other.low)),)
        above = () if other.high is None else (self.both(Span(self.axis, other.high, None)),)
        return tuple(filter(None, (*below, *above))) if self.both(other) else (self,)


@dataclass(frozen=True)
class LabelSet:
    """A finite set of labels, or its complement."""

    labels: tuple[int | str, ...] = ()  # texts, or integers; stored sorted and without duplicates
    but: bool = False  # all other labels

    def __post_init__(self) -> None:
        _validate.boolean(but=self.but)
        labels = {_label(label) for label in _validate.sequence(labels=self.labels)}
        ordered = sorted(labels, key=lambda label: (isinstance(label, str), label))
        object.__setattr__(self, "labels", tuple(ordered))

    def __bool__(self) -> bool:
        return self.but or bool(self.labels)

    def __contains__(self, label: int | str) -> bool:
        return (label in self.labels) != self.but

    @property
    def axis(self) -> Literal["text", "whole"] | None:
        """Type of the labels; None without labels, for any column."""
        if not self.labels:
            return None
        return "whole" if isinstance(self.labels[0], int) else "text"

    def both(self, other: LabelSet) -> LabelSet:
        """Return the labels in both sets."""
        if self.but and other.but:
            return LabelSet(self.labels + other.labels, but=True)
        one, two = (other, self) if self.but else (self, other)
        return LabelSet(tuple(label for label in one.labels if label in two))

    def minus(self, other: LabelSet) -> tuple[LabelSet, ...]:
        """Return the difference from another set, as at most one part."""
        left = self.both(LabelSet(other.labels, but=not other.but))
        return (left,) if left else ()


def _label(value: Any) -> int | str:
    """Return a label: valid text or an integer."""
    if not isinstance(value, str):
        return _whole_number("labels", value)
    if not _validate.is_utf8(value):
        raise ParameterError(
            f"labels must be valid UTF-8 text, not {_validate.describe(value)}.", name="labels"
        )
    return value


def _whole_number(name: str, value: Any) -> int:
    """Return an integer of any size, as in columns of hashes."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ParameterError(
            f"{name} must be text or integers, not {_validate.describe(value)}.", name=name
        )
    return int(value)


Values: TypeAlias = Span | LabelSet
_ANY = LabelSet(but=True)


def _pieces_in_both(one: Values, two: Values) -> tuple[Values, ...]:
    """Return the disjoint parts of the intersection of sets of one column."""
    match one, two:
        case Span(), Span():
            result: tuple[Values, ...] = (one.both(two),)
        case LabelSet(), LabelSet():
            result = (one.both(two),)
        case Span(), LabelSet():
            return _pieces_in_both(two, one)
        case LabelSet(), Span():
            if one.but:
                result = _without(two, one.labels)
            else:
                result = (LabelSet(tuple(label for label in one.labels if label in two)),)
    return tuple(filter(None, result))


def _pieces_outside(one: Values, two: Values) -> tuple[Values, ...]:
    """Return the disjoint parts of the difference of sets of one column."""
    match one, two:
        case Span(), Span():
            return one.minus(two)
        case LabelSet(), LabelSet():
            return one.minus(two)
        case Span(), LabelSet():
            if two.but:
                return _pieces_in_both(one, LabelSet(two.labels))
            return _without(one, two.labels)
        case LabelSet(), Span():
            if one.but:
                rest = [
                    part
                    for span in Span(two.axis).minus(two)
                    for part in _without(span, one.labels)
                ]
                return tuple(rest)
            left = LabelSet(tuple(label for label in one.labels if label not in two))
            return (left,) if left else ()
    raise AssertionError("unreachable")  # pragma: no cover


def _without(span: Span, labels: Sequence[int | str]) -> tuple[Values, ...]:
    """Return the parts of an interval without some of its integers."""
    parts: list[Span] = [span]
    for label in labels:
        if isinstance(label, int):
            point = Span(span.axis, label, label + 1)
            parts = [left for part in parts for left in part.minus(point)]
    return tuple(parts)


@dataclass(frozen=True)
class Side:
    """The values of one column inside a region."""

    column: str  # name; for a column of cells, with its partition
    values: Values
    missing: bool = False  # records without a value are inside
    kind: str = ""  # SQL type, which determines unreadable values; empty for the default

    def __post_init__(self) -> None:
        _validate.check_fields(self)
        kind = self.kind or _USUAL[self.values.axis]
        if not self.values:
            object.__setattr__(self, "values", LabelSet())
        object.__setattr__(self, "kind", "" if kind == _USUAL[self.values.axis] else kind)

    def __bool__(self) -> bool:
        return self.missing or bool(self.values)

    @property
    def everything(self) -> bool:
        """True if all values and missing values are inside."""
        ends = isinstance(self.values, Span) and (self.values.low, self.values.high) == (None, None)
        return self.missing and (ends or self.values == _ANY)

    @property
    def read_as(self) -> str:
        """SQL type of the column."""
        return self.kind or _USUAL[self.values.axis]

    def comparable(self, other: Side) -> bool:
        """Return True if the values of both sides are distinguished in the same way.

        If one release reads a column as text and another as numbers, the same record may have "07"
        in one and 7 in the other, or a value in one and none in the other.
        """
        axes = {self.values.axis, other.values.axis} - {None}
        return len(axes) <= 1 and self.read_as == other.read_as

    def both(self, other: Side) -> tuple[Side, ...]:
        """Return disjoint parts of the intersection with a comparable side of the column."""
        parts = _pieces_in_both(self.values, other.values)
        return self._sides(parts, missing=self.missing and other.missing)

    def minus(self, other: Side) -> tuple[Side, ...]:
        """Return the disjoint parts of the difference from a comparable side of the column."""
        parts = _pieces_outside(self.values, other.values)
        return self._sides(parts, missing=self.missing and not other.missing)

    def around(self, other: Side) -> Side | None:
        """Return a side that contains both sides of the column; None for all values."""
        missing = self.missing or other.missing
        match self.values, other.values:
            case LabelSet() as one, LabelSet() as two if (
                self.comparable(other) and not one.but | two.but
            ):
                return replace(self, values=LabelSet(one.labels + two.labels), missing=missing)
            case Span() as one, Span() as two if self.comparable(other):
                return replace(self, values=one.around(two), missing=missing)
        return None

    def _sides(self, parts: Sequence[Values], *, missing: bool) -> tuple[Side, ...]:
        if missing and not parts:
            return (Side(self.column, LabelSet(), True, self.read_as),)
        return tuple(
            Side(self.column, part, missing and not i, self.read_as) for i, part in enumerate(parts)
        )

    def __str__(self) -> str:
        inside = _describe(self.values)
        more = ("or missing" if inside else "missing") if self.missing else ""
        return " ".join(filter(None, (self.column, inside, more)))

    def to_dict(self) -> dict[str, Any]:
        """Return the side as plain JSON values, without a default type."""
        if isinstance(self.values, Span):
            low, high = self.values.low, self.values.high
            values: dict[str, Any] = {"axis": self.values.axis, "low": low, "high": high}
        else:
            values = {"labels": list(self.values.labels), "but": self.values.but}
        kind = {"kind": self.kind} if self.kind else {}
        return {"column": self.column, **values, "missing": self.missing, **kind}

    @staticmethod
    def from_dict(values: Any) -> Side:
        """Read the side described by :meth:`to_dict`."""
        if not isinstance(values, dict) or "column" not in values:
            raise ParameterError("a side of a region must have the fields written by to_dict.")
        rest = ("column", "missing", "kind")
        inside = {name: v for name, v in values.items() if name not in rest}
        what = "the values of a side"
        read: Values
        if "axis" in inside:
            read = _validate.read_fields(Span, inside, what)
        else:
            read = _validate.read_fields(LabelSet, inside, what)
        missing, kind = values.get("missing", False), values.get("kind", "")
        return Side(values["column"], read, missing, kind)


@dataclass(frozen=True)
class Region:
    """A public set of records with values inside all sides; ``Region()`` contains all."""

    sides: tuple[Side, ...] = ()  # at most one per column, in the order of names

    def __post_init__(self) -> None:
        _validate.check_fields(self)
        columns = [side.column for side in self.sides]
        if len(set(columns)) < len(columns):
            raise ParameterError(
                f"a region must have one side for each column, not {_validate.describe(columns)}."
            )
        for side in self.sides:
            if not side:
                raise ParameterError(
                    f"the region is empty: it contains no value of {side.column!r}; pass a "
                    "region that records can be in."
                )
        limiting = [side for side in self.sides if not side.everything]
        ordered = sorted(limiting, key=lambda side: side.column)
        object.__setattr__(self, "sides", tuple(ordered))

    @property
    def everything(self) -> bool:
        """True if every record is in the region."""
        return not self.sides

    def side(self, column: str) -> Side | None:
        """Return the side of a column; None if every value is inside."""
        return next((side for side in self.sides if side.column == column), None)

    def only(self, columns: Sequence[str]) -> Region:
        """Return the larger region with only the sides of these columns."""
        return Region(tuple(side for side in self.sides if side.column in columns))

    def comparable(self, other: Region) -> bool:
        """Return True if both have comparable sides in their common columns."""
        pairs = ((side, other.side(side.column)) for side in self.sides)
        return all(two is None or one.comparable(two) for one, two in pairs)

    def both(self, other: Region) -> tuple[Region, ...]:
        """Return the disjoint parts of the intersection with a comparable region.

        Several parts occur only if an interval lacks single labels, which ``where`` cannot express.
        """
        result: list[tuple[Side, ...]] = [()]
        for column in dict.fromkeys(side.column for side in self.sides + other.sides):
            sides = [side for side in (self.side(column), other.side(column)) if side is not None]
            parts = sides[0].both(sides[1]) if len(sides) == 2 else sides
            result = [(*begun, part) for begun in result for part in parts]
        return tuple(map(Region, result))

    def minus(self, other: Region) -> tuple[Region, ...]:
        """Return the disjoint parts of the difference from a comparable region."""
        if not self.both(other):
            return (self,)
        parts: list[Region] = []
        inside = [self]
        for side in other.sides:
            parts += [part for whole in inside for part in whole._with(side, inside=False)]
            inside = [part for whole in inside for part in whole._with(side, inside=True)]
        return tuple(parts)

    def _with(self, side: Side, *, inside: bool) -> list[Region]:
        """Return the parts inside or outside a side."""
        whole = Side(side.column, _whole(side.values), True, side.read_as)
        own = self.side(side.column) or whole
        parts = own.both(side) if inside else own.minus(side)
        rest = tuple(each for each in self.sides if each.column != side.column)
        return [Region((*rest, part)) for part in parts]

    def meets(self, other: Region) -> bool:
        """Return False only if certainly no record is in both regions."""
        for side in self.sides:
            theirs = other.side(side.column)
            if theirs is not None and side.comparable(theirs) and not side.both(theirs):
                return False
        return True

    def within(self, other: Region) -> bool:
        """Return True only if certainly every record of this region is in the other."""
        for theirs in other.sides:
            side = self.side(theirs.column)
            if side is None or not side.comparable(theirs) or side.minus(theirs):
                return False
        return True

    def around(self, other: Region) -> Region:
        """Return a region with one side per column that contains both regions."""
        result = []
        for side in self.sides:
            theirs = other.side(side.column)
            if theirs is not None and (whole := side.around(theirs)) is not None:
                result.append(whole)
        return Region(tuple(result))

    def __str__(self) -> str:
        return ", ".join(map(str, self.sides)) or "everything"

    def to_dict(self) -> dict[str, Any]:
        """Return the region as plain JSON values."""
        return {"sides": [side.to_dict() for side in self.sides]}


def _whole(values: Values) -> Values:
    return Span(values.axis) if isinstance(values, Span) else _ANY


#: The region of all records.
EVERYTHING = Region()


def atoms(regions: Sequence[Region]) -> dict[Region, frozenset[int]]:
    """Return the disjoint classes of records of regions, with the regions' indices."""
    result: dict[Region, frozenset[int]] = {}
    for place, region in enumerate(comparable_regions(regions)):
        rest = [region]
        split: dict[Region, frozenset[int]] = {}
        for atom, within in result.items():
            if not rest or not atom.meets(region):
                split[atom] = within
                continue
            split |= dict.fromkeys(atom.both(region), within | {place})
            split |= dict.fromkeys(atom.minus(region), within)
            rest = [part for left in rest for part in left.minus(atom)]
        result = split | dict.fromkeys(rest, frozenset({place}))
        if len(result) > _MOST_ATOMS:
            raise ParameterError(
                f"the regions must split records into at most {_MOST_ATOMS:,} classes; "
                "publish by fewer columns."
            )
    return result


def comparable_regions(regions: Sequence[Region]) -> list[Region]:
    """Return the regions without the sides of columns with several types or axes."""
    ways: dict[str, set[tuple[str | None, str]]] = {}
    for region in regions:
        for side in region.sides:
            ways.setdefault(side.column, set()).add((side.values.axis, side.read_as))
    plain = [
        column
        for column, result in ways.items()
        if len({axis for axis, _ in result} - {None}) <= 1
        and len({kind for _, kind in result}) == 1
    ]
    return [region.only(plain) for region in regions]


def days(first: str, last: str) -> Span:
    """Return the interval of dates from the first to the last day, inclusive."""
    ends = [microseconds(datetime.fromisoformat(day)) for day in (first, last)]
    return Span("date", ends[0], ends[1] + DAY)


def microseconds(moment: datetime) -> int:
    """Return the microseconds since 1970 of a time, in UTC if it has a zone."""
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _describe(values: Values) -> str:
    if isinstance(values, LabelSet):
        listed = " or ".join(map(str, values.labels))
        return f"not {listed}" if values.but else listed
    first, last = _describe_ends(values)
    zone = " (UTC)" if values.axis == "instant" and (first or last) else ""
    if first == last:
        return f"{first}{zone}" if first else ""
    return " ".join(filter(None, (first and f"from {first}", last and f"to {last}"))) + zone


def _describe_ends(span: Span) -> tuple[str, str]:
    """Return the text of the first and last value: dates for whole days, else times."""
    ends = [end for end in (span.low, span.high) if end is not None]
    daily = span.axis != "whole" and all(end % DAY == 0 for end in ends)

    def text(value: int) -> str:
        if span.axis == "whole":
            return str(value)
        time = _EPOCH + timedelta(microseconds=min(max(value, _FIRST), _END - 1))
        return time.date().isoformat() if daily else time.isoformat(" ")

    first = "" if span.low is None else text(span.low)
    return first, "" if span.high is None else text(span.high - (DAY if daily else 1))
