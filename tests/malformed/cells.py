"""Cells of one type, with each cell's Python value, and tables built from them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeAlias

from dpgrain.tables.sources.column_types import LONGEST_LABEL

#: The meaning of a type. "unusable" types are never read from a table.
Meaning: TypeAlias = Literal[
    "whole", "real", "decimal", "text", "truth", "day", "time", "moment", "null", "unusable"
]
#: The value of a cell without a specified reading: engines nevertheless agree on it.
UNSTATED = object()
DAY = 24 * 60 * 60 * 10**6
# Microseconds since 1970 that every calendar here reaches; beyond, a time may be missing as well.
_REACH = 2**63 - 4 * DAY
_NO_CALENDAR = 10**8  # days


@dataclass(frozen=True)
class Cell:
    """One cell of a column.

    Args:
        raw: the cell in the column's storage type; None for a null.
        value: the cell's value: an int, a float, a :class:`~decimal.Decimal`, a text or a boolean;
            days since 1970 for dates; microseconds since 1970, truncated, for times; ±∞ for
            infinite ones; None for missing or unreadable cells.
        or_missing: True where it may be read as missing as well.

    >>> Cell(b"\\xff", None).value is None
    True
    """

    raw: Any
    value: Any = None
    or_missing: bool = False


Cells: TypeAlias = tuple[tuple[Cell, ...], dict[str, Cell]]
Column: TypeAlias = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True, eq=False)
class Kind:
    """One column type, with plain and malformed cells.

    Args:
        name: its name, also used as a column name.
        column: a function from raw cells to a column as its system has it.
        common: True for a common type, which must not be rejected if it suits.
        stated: the SQL type that ``types=`` states of a column of text; empty where none is.
        nullable: False for a type without a null.

    >>> from tests.malformed.systems import SYSTEMS
    >>> kind = SYSTEMS["Arrow"].kinds["date32"]
    >>> kind.meaning, kind.label(kind.plain[0]), kind.number(kind.plain[0])
    ('day', '2024-05-01', None)
    """

    name: str
    meaning: Meaning
    column: Callable[[Sequence[Any]], Any]
    plain: tuple[Cell, ...]
    odd: Mapping[str, Cell] = field(default_factory=dict)
    common: bool = False
    stated: str = ""
    nullable: bool = True

    @property
    def strange(self) -> dict[str, Cell]:
        """Malformed cells by their names, and a null if the type has one."""
        return {**self.odd, "null": Cell(None)} if self.nullable else dict(self.odd)

    def label(self, cell: Cell) -> str | None:
        """Return the text of a cell as a key, by definition; None if it has none."""
        value = cell.value
        if value is None or self.meaning in ("real", "time", "moment", "unusable"):
            return None
        match self.meaning:
            case "truth":
                return "true" if value else "false"
            case "day":
                return calendar_day(value)
            case "decimal":
                return f"{value:f}"
        return str(value)

    def number(self, cell: Cell) -> float | None:
        """Return the number in a cell, by the definition; None where there is none."""
        if cell.value is None or self.meaning not in ("whole", "real", "decimal", "truth"):
            return None
        if isinstance(cell.value, Decimal):
            return float(Fraction(cell.value))
        return float(cell.value)

    def day(self, cell: Cell) -> str | None:
        """Return the day of a time without a zone, or of a moment in UTC; None where there is none."""
        if cell.value is None or self.meaning not in ("time", "moment"):
            return None
        infinite = isinstance(cell.value, float)
        return calendar_day(cell.value if infinite else cell.value // DAY)


@dataclass(frozen=True, eq=False)
class System:
    """One system of types: Arrow's, pandas', a database's; tables of it are given to ``dg.read``.

    Args:
        base: the names of its types of whole numbers, text and real numbers, for the columns ``who``,
            ``item`` and ``x`` that every table has.
        raw: a function from an int, a text or a float to the raw cell of such a type.
        table: a function from columns by their names to a table of the system.
        ways: the input forms of such a table: functions from the table and an empty folder to the
            argument of ``dg.read``.
        queries: the forms that are queries, read by ``dg.read`` with rows as given.

    >>> from tests.malformed.systems import SYSTEMS
    >>> system = SYSTEMS["Arrow"]
    >>> rows = system.rows([system.kinds["date32"]], odd=False)
    >>> system.make(rows).num_rows > 8
    True
    """

    name: str
    kinds: Mapping[str, Kind]
    base: tuple[str, str, str]
    raw: Callable[[Any], Any]
    table: Callable[[Mapping[str, Any]], Any]
    ways: Mapping[str, Callable[[Any, Path], Any]]
    queries: tuple[str, ...] = ()
    _known: dict[str, tuple[tuple[Kind, ...], frozenset[tuple[str, str]]]] = field(
        default_factory=dict, init=False, repr=False
    )

    def rows(
        self,
        kinds: Sequence[Kind],
        *,
        odd: bool | None,
        but: frozenset[tuple[str, str]] = frozenset(),
    ) -> Rows:
        """Return rows of several people around the tested person's, one column per type.

        Args:
            kinds: the types, each of a column of its name.
            odd: True where that person's cells are odd, False where they are plain, None where that
                person has no row.
            but: the names of types and malformed cells replaced by plain ones, for a form that
                cannot represent them.
        """
        cells = {
            kind.name: [
                kind.plain[0] if (kind.name, name) in but else cell
                for name, cell in kind.strange.items()
            ]
            or [kind.plain[0]]
            for kind in kinds
        }
        most = max(map(len, cells.values()), default=1)
        mine = 0 if odd is None else most
        people = [*range(HALF), *[MINE] * mine, *range(HALF, 2 * HALF)]
        columns: dict[str, tuple[Kind, list[Cell]]] = {}
        for name, base, values in (
            ("who", self.base[0], people),
            ("item", self.base[1], ["ab"[place % 2] for place in range(len(people))]),
            ("x", self.base[2], [1.0 + place % 3 for place in range(len(people))]),
        ):
            columns[name] = self.kinds[base], [Cell(self.raw(value), value) for value in values]
        for kind in kinds:
            own = [kind.plain[place % len(kind.plain)] for place in range(2 * HALF)]
            hers = cells[kind.name] if odd else [kind.plain[0]] * most
            hers = [hers[place % len(hers)] for place in range(mine)]
            columns[kind.name] = kind, [*own[:HALF], *hers, *own[HALF:]]
        return Rows(columns)

    def make(self, rows: Rows) -> Any:
        """Return the table of some rows in this system."""
        made = {
            name: kind.column([cell.raw for cell in cells])
            for name, (kind, cells) in rows.columns.items()
        }
        return self.table(made)

    def held(self, way: str, folder: Path) -> tuple[tuple[Kind, ...], frozenset[tuple[str, str]]]:
        """Return the types that a form supports, and the malformed cells that it cannot represent."""
        if way not in self._known:
            self._known[way] = self._held(self.ways[way], folder)
        return self._known[way]

    def _held(
        self, give: Callable[[Any, Path], Any], folder: Path
    ) -> tuple[tuple[Kind, ...], frozenset[tuple[str, str]]]:
        def gives(kinds: Sequence[Kind], odd: bool, but: frozenset[tuple[str, str]]) -> bool:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    give(self.make(self.rows(kinds, odd=odd, but=but)), folder)
                except Exception:
                    return False
            return True

        kinds = passing([*self.kinds.values()], lambda some: gives(some, False, frozenset()))
        pairs = [(kind.name, name) for kind in kinds for name in kind.strange]

        def holds(some: Sequence[tuple[str, str]]) -> bool:
            names = {name for name, _ in some}
            own = [kind for kind in kinds if kind.name in names]
            return gives(own, True, frozenset(pairs).difference(some))

        return tuple(kinds), frozenset(pairs).difference(passing(pairs, holds))


def passing(items: Sequence[Any], works: Callable[[Sequence[Any]], bool]) -> list[Any]:
    """Return the items with which a function works, assuming that items are independent.

    >>> passing([1, 2, 3, 4, 5], lambda some: 4 not in some)
    [1, 2, 3, 5]
    """
    if not items or works(items):
        return list(items)
    half = len(items) // 2
    return [*passing(items[:half], works), *passing(items[half:], works)] if half else []


#: The number of people before the tested one, and after; and that one's number.
HALF, MINE = 6, 99


@dataclass(frozen=True)
class Rows:
    """Rows of cells.

    Args:
        columns: column → its type, and a cell for each row.

    >>> kind = Kind("bits", "whole", list, (Cell(0, 0), Cell(1, 1)))
    >>> Rows({"bits": (kind, [*kind.plain])}).types
    {}
    """

    columns: Mapping[str, tuple[Kind, list[Cell]]]

    @property
    def types(self) -> dict[str, str]:
        """The types that have to be stated of columns of text."""
        return {name: kind.stated for name, (kind, _) in self.columns.items() if kind.stated}


def calendar_day(day: Any) -> str:
    """Return the text of a day of the Gregorian calendar, in any year, as SQL writes it.

    Args:
        day: days since 1970, or ±∞.

    >>> calendar_day(0), calendar_day(-719163), calendar_day(2932897), calendar_day(math.inf)
    ('1970-01-01', '0001-12-31 (BC)', '10000-01-01', 'infinity')
    """
    if isinstance(day, float):
        return "infinity" if day > 0 else "-infinity"
    # The calendar comes again after 400 years, which have 146,097 days.
    turns, rest = divmod(day - date(2000, 1, 1).toordinal() + date(1970, 1, 1).toordinal(), 146_097)
    found = date.fromordinal(date(2000, 1, 1).toordinal() + rest)
    year = found.year + 400 * turns
    shown = f"{year if year > 0 else 1 - year:04d}-{found:%m-%d}"
    return shown if year > 0 else f"{shown} (BC)"


def instants(per_second: int) -> Cells:
    """Return plain and malformed times stored as 64-bit ticks since 1970.

    >>> plain, odd = instants(1000)
    >>> plain[0].raw, odd["before 1970"].value, odd["beyond"].value
    (1714564800000, -1000, None)
    """

    def at(ticks: int) -> Cell:
        value = ticks * 10**6 // per_second
        if abs(value) >= 2**63 - 1:
            return Cell(ticks, None)
        # Days are counted up to a few before the ends of the calendar.
        return Cell(ticks, value if abs(value) < _REACH else UNSTATED)

    noon = 1_714_564_800 * per_second
    second = per_second
    named = {
        "before 1970": -1,
        "epoch": 0,
        "last tick of a day": 1_714_608_000 * second - 1,
        "year 0": -62_167_219_200 * second,
        "year 10000": 253_402_300_800 * second,
        "far": 2**62,
        "most": 2**63 - 1,
        "nearly most": 2**63 - 2,
        "least": -(2**63) + 1,
        "nearly least": -(2**63) + 2,
        "beyond": 10**13 * second,
    }
    inside = {name: at(ticks) for name, ticks in named.items() if abs(ticks) < 2**63}
    # The ends of 64 bits are infinite times of some systems.
    inside |= {name: Cell(inside[name].raw, UNSTATED) for name in ("most", "least")}
    return (at(noon), at(noon + 86_400 * second)), inside


def days() -> Cells:
    """Return plain and malformed days stored as 32-bit days since 1970.

    >>> days()[1]["before 1970"].value
    -1
    """

    def at(day: int) -> Cell:
        return Cell(day, day, or_missing=abs(day) > _NO_CALENDAR)

    named = {
        "before 1970": -1,
        "year 0": -719_528,
        "year 10000": 2_932_897,
        "far": 10**7,
        "most": 2**31 - 1,
        "nearly most": 2**31 - 2,
        "least": -(2**31) + 1,
        "nearly least": -(2**31) + 2,
    }
    odd = {name: at(day) for name, day in named.items()}
    # The ends of 32 bits are the infinite days of some systems, and days or nothing in others.
    odd |= {
        name: Cell(odd[name].raw, UNSTATED) for name in named if "most" in name or "least" in name
    }
    return (at(19_844), at(19_845)), odd


def wholes(bits: int, *, signed: bool = True) -> Cells:
    """Return plain and odd whole numbers.

    Args:
        signed: True where one of them is for the sign.

    >>> [cell.value for cell in wholes(8)[1].values()]
    [0, -128, 127]
    """
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    named = {"zero": 0, **({"least": low} if signed else {}), "most": high}
    return (Cell(1, 1), Cell(2, 2)), {name: Cell(value, value) for name, value in named.items()}


def reals(most: float, least: float) -> Cells:
    """Return plain and odd floating-point numbers.

    Args:
        least: the least number above 0.

    >>> reals(65504.0, 2.0**-24)[1]["most"].value
    65504.0
    """
    named = {
        "NaN": math.nan,
        "infinity": math.inf,
        "-infinity": -math.inf,
        "-0": -0.0,
        "most": most,
        "least": -most,
        "tiny": least,
    }
    return (Cell(1.5, 1.5), Cell(2.0, 2.0)), {name: Cell(v, v) for name, v in named.items()}


def decimals(digits: int, places: int) -> Cells:
    """Return plain and odd decimal numbers.

    >>> decimals(4, 2)[1]["most"].value
    Decimal('99.99')
    """

    def at(scaled: int) -> Cell:
        sign, number = int(scaled < 0), tuple(map(int, str(abs(scaled))))
        value = Decimal((sign, number, -places))
        return Cell(value, value)

    most = 10**digits - 1
    named = {"zero": 0, "most": most, "least": -most, "last digit": -1}
    plain = (at(10**places), at(2 * 10**places + 1))
    return plain, {name: at(scaled) for name, scaled in named.items()}


#: Odd bytes in a column of text.
TEXTS: Mapping[str, bytes] = {
    "empty": b"",
    "NUL": b"\x00",
    "blank": b" a",
    "not UTF-8": b"\xff",
    "surrogate": b"\xed\xa0\x80",
    "cut": "é".encode()[:1],
    "quote": b"\"'",
    "line ends": b"a\r\n",
    "no letter": "\ufffe\U0010ffff".encode(),
    "number": b"007",
    "longest": b"x" * LONGEST_LABEL,
    "too long": b"x" * (LONGEST_LABEL + 1),
}


def texts(raw: Callable[[bytes], Any] = bytes) -> Cells:
    """Return plain and odd texts.

    Args:
        raw: a function from bytes to a raw cell; malformed texts that it cannot represent are
            omitted.

    >>> sorted(set(TEXTS) - set(texts(bytes.decode)[1]))
    ['cut', 'not UTF-8', 'surrogate']
    """

    def at(text: bytes) -> Cell | None:
        try:
            stored = raw(text)
        except UnicodeError:
            return None
        try:
            return Cell(stored, text.decode() if len(text) <= LONGEST_LABEL else None)
        except UnicodeError:
            return Cell(stored, None)

    result = {name: cell for name, text in TEXTS.items() if (cell := at(text)) is not None}
    return (Cell(raw(b"a"), "a"), Cell(raw(b"b"), "b")), result
