"""Public partitions as facts: the cell of a record, and the overlap of two partitions.

A partition assigns each record to a cell by one rule per column. If partitions are known as facts,
releases can be charged to a unit of another partition: a day is a part of a week, and a month
consists of at most 31 whole days.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal, TypeAlias
from zoneinfo import ZoneInfo

from dpgrain import _validate
from dpgrain._formatting import quantity
from dpgrain.errors import ParameterError
from dpgrain.scope.regions import DAY, EVERYTHING, LabelSet, Region, Side, Span
from dpgrain.scope.zones import midnight

#: Kinds of rules with a calendar.
Period: TypeAlias = Literal["day", "week", "month", "year"]
#: Kinds of rules: one cell per value; the period of a time; bins of integers; a mapping or
#: function, identified by its fingerprint; any consecutive days.
Kind: TypeAlias = Literal["label", "day", "week", "month", "year", "bins", "stated", "any"]
PERIODS: tuple[Period, ...] = ("day", "week", "month", "year")

# Maximum number of shorter periods in one period that consists of whole ones, …
_WHOLE = {("week", "day"): 7, ("month", "day"): 31, ("year", "day"): 366, ("year", "month"): 12}
# … and of periods that overlap it in part. A month of 31 days can overlap 6 weeks, a leap year 54.
_PARTS = {("month", "week"): 6, ("year", "week"): 54, ("week", "month"): 2, ("week", "year"): 2}
# Minimum days of a period.
_SHORTEST = {"day": 1, "week": 7, "month": 28, "year": 365}
# A period of another zone is shifted by up to a day and may be an hour longer: it overlaps two
# more.
_MORE_OF_ANOTHER_ZONE = 2
# Starts of the descriptions of columns in files of earlier versions.
_QUOTED_COLUMN = ("the column '", 'the column "')
# Above this number, a rule counts as unbounded in a region.
_MOST_CELLS = 1_000_000
# Maximum cells of values that are not days: missing, before all days, and after them.
_CELLS_WITHOUT_A_DAY = 3


@dataclass(frozen=True)
class Rule:
    """The rule from one column to the cell of a record."""

    column: str
    kind: Kind = "label"  # of its cells
    zone: str = ""  # of periods, such as ``"UTC"``; empty for times without a zone
    edges: tuple[int, ...] = ()  # increasing lower ends of bins, integers; one more bin is below
    mark: str = ""  # fingerprint of a mapping or function
    cells: int | None = None  # number of cells of a mapping, if it is finite
    days: int | None = None  # length of any window of consecutive days; windows overlap
    hours: int | None = None  # length of any window of consecutive hours, from any time
    read: str = ""  # declared type and date format; empty for the default

    def __post_init__(self) -> None:
        _validate.check_fields(self)
        lengths = {"days": self.days, "hours": self.hours}
        stated = {name: length for name, length in lengths.items() if length is not None}
        if len(stated) != (self.kind == "any"):
            raise ParameterError(
                "days or hours must be passed for kind 'any', and for no other kind, not "
                f"{_validate.describe(stated)}."
            )
        for name, length in stated.items():
            _validate.integer(minimum=1, **{name: length})
        if list(self.edges) != sorted(set(self.edges)) or bool(self.edges) != (self.kind == "bins"):
            raise ParameterError(
                "edges must be increasing integers for kind 'bins', and empty for other kinds, "
                f"not {list(self.edges)!r}."
            )
        if bool(self.mark) != (self.kind == "stated"):
            raise ParameterError(
                f"mark must be passed for kind 'stated', and for no other kind, not {self.mark!r}."
            )
        if self.cells is not None:
            _validate.integer(minimum=1, cells=self.cells)

    def overlap(self, promised: Rule) -> Overlap | None:
        """Return a promised rule's overlap with this rule's cells; None if unbounded."""
        if self == promised:
            return Overlap(1)
        if self.kind == promised.kind == "label":
            # The text "7.2" and the number 7 are one value or two, depending on the type.
            return None if self.read and promised.read else Overlap(1)
        if self.kind in PERIODS and promised.read not in ("", self.read):
            # Formats disagree on dates: a day in January may be one in February.
            return None
        if self.kind in PERIODS and promised.kind in PERIODS:
            return self._periods(promised)
        if self.kind in PERIODS and promised.days is not None:
            return self._any(promised.days, promised.zone)
        if self.kind in PERIODS and promised.hours is not None:
            return self._any_hours(promised.hours)
        if promised.kind == "label" and self.kind == "day" and not (self.zone or self._timed):
            # A column of dates, without its type in a promise. A day contains several times, but
            # one date.
            return Overlap(1)
        if promised.kind == "label" and self.kind in ("bins", "stated", *PERIODS):
            return Overlap(1, whole=False)
        if self.kind == promised.kind == "bins":
            return self._bins(promised)
        return None

    @property
    def _timed(self) -> bool:
        return self.read.startswith("TIMESTAMP")

    def _periods(self, promised: Rule) -> Overlap:
        pair = promised.kind, self.kind
        cells = _WHOLE.get(pair) or _PARTS.get(pair) or 1
        if self.zone != promised.zone:
            return Overlap(cells + _MORE_OF_ANOTHER_ZONE, whole=False)
        return Overlap(cells, whole=pair in _WHOLE or self.kind == promised.kind)

    def _any(self, days: int, zone: str) -> Overlap:
        """Return the overlap of windows of days with the periods of this rule."""
        shortest = _SHORTEST[self.kind]
        # Most periods overlap if one day of the window is in the first of them.
        cells = (days + shortest - 2) // shortest + 1
        # Times without a zone are local; days of times with a zone begin in UTC by default.
        if self.zone and self.zone != (zone or "UTC"):
            return Overlap(cells + _MORE_OF_ANOTHER_ZONE, whole=False)
        return Overlap(cells, whole=self.kind == "day")

    def _any_hours(self, hours: int) -> Overlap:
        """Return the overlap of windows of hours with the periods of this rule."""
        cells = -(-hours // (24 * _SHORTEST[self.kind])) + 1
        # Days are shorter when clocks are put forward.
        return Overlap(cells + (_MORE_OF_ANOTHER_ZONE if self.zone else 0), whole=False)

    def _bins(self, promised: Rule) -> Overlap:
        ends = [-math.inf, *promised.edges, math.inf]
        inside = [
            sum(low < edge < high for edge in self.edges) for low, high in itertools.pairwise(ends)
        ]
        return Overlap(max(inside) + 1, whole=set(promised.edges) <= set(self.edges))

    def cells_in(self, region: Region) -> int | None:
        """Return the maximum number of cells with records of a region; None if unbounded."""
        side = region.side(self.column)
        missing = 0
        if side is None or side.missing:
            # A column known only by name may contain dates.
            missing = _CELLS_WITHOUT_A_DAY if self.kind in ("label", *PERIODS) else 1
        number = self._cells_among(None if side is None else side.values)
        if self.cells is not None:
            number = self.cells if number is None else min(number, self.cells)
        return None if number is None or number > _MOST_CELLS else number + missing

    def _cells_among(self, values: Span | LabelSet | None) -> int | None:
        if isinstance(values, LabelSet) and not values.but:
            return len(values.labels)
        if not isinstance(values, Span) or values.low is None or values.high is None:
            return len(self.edges) + 1 if self.kind == "bins" else None
        if self.kind == "bins":
            return sum(values.low < edge < values.high for edge in self.edges) + 1
        number = values.high - values.low if values.axis == "whole" else None
        if values.axis == "date" and self.kind == "label":
            number = (values.high - values.low) // DAY
        if self._times(values):
            number = self._periods_in(values)
        if self.hours is not None:
            # A window may start anywhere, and contain a part of the region.
            return None
        if self.kind == "any":
            # A window that overlaps a single day contains all of it.
            return number if number == 1 else None
        return number

    def _times(self, values: Span) -> bool:
        """Return True if the rule divides the times of an interval into days or periods."""
        axes = ("instant",) if self.zone else ("date", "time")
        return values.axis in axes and self.kind in (*PERIODS, "any")

    def _periods_in(self, values: Span) -> int | None:
        """Count the periods that overlap an interval; None outside the supported years."""
        first, last = clock_days(values, self.zone)
        if first is None or last is None:
            return None
        match self.kind:
            case "day" | "any":
                return (last - first).days + 1
            case "week":
                return (_begin(last, "week") - _begin(first, "week")).days // 7 + 1
            case "month":
                return 12 * (last.year - first.year) + last.month - first.month + 1
        return last.year - first.year + 1

    def whole_cells(self, side: Side) -> Side | None:
        """Return the smallest side of whole cells that contains a side; None if unknown."""
        values = side.values
        if self.kind == "label" or not values:
            # Records without a value form a cell.
            return side
        if not isinstance(values, Span):
            return None
        if self.kind in PERIODS and self._times(values):
            first, last = clock_days(values, self.zone)
            low = None if first is None else self._end(first, 0)
            high = None if last is None else self._end(last, 1)
            return replace(side, values=Span(values.axis, low, high))
        if self.kind == "bins" and values.axis == "whole":
            below = [edge for edge in self.edges if values.low is not None and edge <= values.low]
            above = [edge for edge in self.edges if values.high is not None and edge >= values.high]
            low, high = max(below, default=None), min(above, default=None)
            return replace(side, values=Span("whole", low, high))
        return None

    def _end(self, met: date, which: Literal[0, 1]) -> int | None:
        """Return the start or end of the period of a day; None outside the supported years."""
        try:
            day = period_of(met, self.kind)[which]
        except OverflowError:
            return None
        return midnight(day, self.zone)

    @property
    def cell(self) -> str:
        """Text for one cell, such as "week of 'day'"."""
        noun = self.kind if self.kind in PERIODS else "cell"
        return f"{noun} of {self.column!r}"

    @property
    def brief(self) -> str:
        """Short text, with the fingerprint of a mapping or function."""
        if self.kind != "stated":
            return str(self)
        cells = "public cells" if self.cells is None else quantity(self.cells, "public cell")
        return f"{cells} #{self.mark} of {self.column!r}"

    def __str__(self) -> str:
        zone = f" ({self.zone})" if self.zone else ""
        match self.kind:
            case "label":
                return repr(self.column)
            case "any":
                length = f"{self.days} days" if self.hours is None else f"{self.hours} hours"
                return f"any {length} in a row of {self.column!r}{zone}"
            case "bins":
                return f"bins of {self.column!r} at {', '.join(map(str, self.edges))}"
            case "stated":
                return f"a stated partition ({self.mark}) of {self.column!r}"
        _, like, dates = self.read.partition(" written like ")
        return f"the {self.kind} of {self.column!r}{zone}{like}{dates}"


@dataclass(frozen=True)
class Overlap:
    """The overlap of one cell of a promised partition with the cells of another."""

    cells: int  # maximum number of overlapping cells
    whole: bool = True  # a union of whole cells, not of parts of cells

    def __mul__(self, other: Overlap) -> Overlap:
        return Overlap(self.cells * other.cells, self.whole and other.whole)


@dataclass(frozen=True)
class Partition:
    """A public partition of records into cells, by one rule for each of some columns."""

    rules: tuple[Rule, ...]  # in the order of column names; a cell combines their cells

    def __post_init__(self) -> None:
        _validate.check_fields(self)
        columns = [rule.column for rule in self.rules]
        if not columns or len(set(columns)) < len(columns):
            raise ParameterError(
                "a partition must have one rule for each of its columns, not "
                f"{_validate.describe(columns)}."
            )
        ordered = sorted(self.rules, key=lambda rule: rule.column)
        object.__setattr__(self, "rules", tuple(ordered))

    def rule(self, column: str) -> Rule | None:
        """Return the rule of a column; None if it has none."""
        return next((rule for rule in self.rules if rule.column == column), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the partition as plain JSON values, without default fields."""
        plain = asdict(Rule(""))
        rules = [
            {name: value for name, value in asdict(rule).items() if value != plain[name]}
            for rule in self.rules
        ]
        return {"rules": rules}

    def compared(self, promised: Partition, region: Region = EVERYTHING) -> Overlap | None:
        """Return how many of this partition's cells overlap a promised cell, in a region.

        The overlap is None if the number is unbounded.
        """
        result = Overlap(1)
        for rule in promised.rules:
            # A column without a rule here divides the cells of this partition.
            if self.rule(rule.column) is None and rule.cells_in(region) != 1:
                result *= Overlap(1, whole=False)
        for rule in self.rules:
            theirs = promised.rule(rule.column)
            overlap = None if theirs is None else rule.overlap(theirs)
            # A promised cell with all records of the region contains whole cells.
            whole = theirs is None or theirs.cells_in(region) == 1
            numbers = [rule.cells_in(region)]
            if overlap is not None:
                numbers, whole = [*numbers, overlap.cells], whole or overlap.whole
            least = min((number for number in numbers if number is not None), default=None)
            if least is None:
                return None
            result *= Overlap(least, whole)
        return result

    def cells_in(self, region: Region) -> int | None:
        """Return the maximum number of cells with records of a region; None if unbounded."""
        numbers = [rule.cells_in(region) for rule in self.rules]
        return None if None in numbers else math.prod(number or 1 for number in numbers)

    def whole_cells(self, region: Region) -> Region:
        """Return the smallest known region of whole cells that contains a region.

        Sides of columns without a rule are dropped, because a cell may extend beyond them.
        """
        sides = [
            rule.whole_cells(side)
            for side in region.sides
            if (rule := self.rule(side.column)) is not None
        ]
        return Region(tuple(side for side in sides if side is not None))

    @property
    def cell(self) -> str:
        """Text for one cell, for titles."""
        return " and ".join(rule.cell for rule in self.rules)

    @property
    def brief(self) -> str:
        """Short text, for the last line of a printed release."""
        return " and ".join(rule.brief for rule in self.rules)

    def __str__(self) -> str:
        return " and ".join(map(str, self.rules))


def partition_name(text: str) -> str:
    """Return a partition's name, once described as "the column 'topic'"."""
    return text.removeprefix("the column ") if text.startswith(_QUOTED_COLUMN) else text


def clock_days(times: Span, zone: str) -> tuple[date | None, date | None]:
    """Return the first and last local day in an interval of times; None if unbounded.

    When clocks are put back past midnight, as in St. John's until 2011, the end of a day is
    repeated after the next day has begun.
    """
    low, high = times.low, times.high
    first = None if low is None else _time(low, zone)
    last = None if high is None else _time(high - 1, zone)
    first_day, last_day = (None if time is None else time.date() for time in (first, last))
    if low is not None and first_day is not None:
        near = low + DAY if high is None else min(low + DAY, high - 1)
        if (back := _put_back(low, near, zone)) is not None:
            first_day = min(first_day, back[1].date())
    if high is not None and last_day is not None:
        near = high - 1 - DAY if low is None else max(high - 1 - DAY, low)
        if (back := _put_back(near, high - 1, zone)) is not None:
            last_day = max(last_day, back[0].date())
    return first_day, last_day


def _time(moment: int, zone: str) -> datetime | None:
    """Return the local time of a timestamp; None outside the supported years."""
    try:
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)
        return time.astimezone(ZoneInfo(zone)) if zone else time
    except OverflowError:
        return None


def _put_back(low: int, high: int, zone: str) -> tuple[datetime, datetime] | None:
    """Return the local times before and after clocks are put back in a part of a day."""
    before, after = _time(low, zone), _time(high, zone)
    if before is None or after is None or not _offset(after) < _offset(before):
        return None
    while high - low > 1:
        time = _time(middle := (low + high) // 2, zone)
        if time is None or _offset(time) == _offset(after):
            high, after = middle, time or after
        else:
            low, before = middle, time
    return before, after


def _offset(time: datetime) -> timedelta:
    return time.utcoffset() or timedelta()


def period_of(day: date, kind: str) -> tuple[date, date]:
    """Return the first day of a day's period, and the first day after the period."""
    longest = timedelta(days={"day": 1, "week": 7, "month": 31, "year": 366}[kind])
    begin = _begin(day, kind)
    return begin, _begin(begin + longest, kind)


def _begin(day: date, kind: str) -> date:
    match kind:
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "year":
            return day.replace(month=1, day=1)
    return day
