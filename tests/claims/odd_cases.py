"""Cases of the tests of malformed tables: contents, role, input form and engine."""

from __future__ import annotations

import itertools
import math
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.malformed.cells import UNSTATED, Cell, Kind, Rows, System, passing
from tests.malformed.systems import SYSTEMS
from tests.malformed.uses import FUNCTIONS, ROLES, Outcome, Use, uses
from tests.products import covering
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg

LOCAL: list[Any] = ["duckdb", InMemory]
WAYS = [(name, way) for name, system in SYSTEMS.items() for way in system.ways]
MEANINGS = (
    "whole",
    "real",
    "decimal",
    "text",
    "truth",
    "day",
    "time",
    "moment",
    "null",
    "unusable",
)


@dataclass(frozen=True)
class Given:
    """An input form for tables, with the types that it supports."""

    system: System
    way: str

    @property
    def held(self) -> tuple[tuple[Kind, ...], frozenset[tuple[str, str]]]:
        """The supported types, and the malformed cells that the form cannot represent."""
        with TemporaryDirectory() as folder:
            return self.system.held(self.way, Path(folder))

    def rows(self, kinds: Sequence[Kind], *, odd: bool | None, stated: bool = False) -> Rows:
        """Rows of these types; with declared types only, if requested."""
        but = self.held[1]
        if stated:
            but |= {
                (kind.name, name)
                for kind in kinds
                for name, cell in kind.odd.items()
                if cell.value is UNSTATED or cell.or_missing
            }
        if "CSV" in self.way and stated:
            # A line that is not UTF-8 is left out.
            but |= {(kind.name, name) for kind in kinds for name in kind.odd if name == "not UTF-8"}
            but |= {(kind.name, name) for kind in kinds for name in ("surrogate", "cut")}
        rows = self.system.rows(kinds, odd=odd, but=but)
        return Rows(
            {
                name: (kind, [self._read(kind, cell) for cell in cells])
                for name, (kind, cells) in rows.columns.items()
            }
        )

    def _read(self, kind: Kind, cell: Cell) -> Cell:
        """The cell as this form stores it: Parquet replaces bytes that are not UTF-8."""
        told = kind.meaning == "text" and not kind.stated and isinstance(cell.raw, bytes)
        if "Parquet" not in self.way or not told or cell.value is not None or _is_text(cell.raw):
            return cell
        return Cell(cell.raw, cell.raw.decode(errors="replace").replace("\ufffd", "?"))

    def source(self, rows: Rows, folder: Path) -> Any:
        folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            # A library that builds the table may warn about its contents.
            warnings.simplefilter("ignore")
            return self.system.ways[self.way](self.system.make(rows), folder)

    def options(self, rows: Rows) -> dict[str, Any]:
        asked: dict[str, Any] = {"types": rows.types, "threads": 1}
        return {**asked, "rows": "as given"} if self.way in self.system.queries else asked

    def refused(self, kinds: Sequence[Kind], odd: bool | None, folder: Path) -> str:
        """The error of ``dg.read`` for a table of these types, or an empty string."""
        rows = self.rows(kinds, odd=odd)
        source = self.source(rows, folder)
        try:
            dg.read(source, user="who", **self.options(rows))
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    @property
    def readable(self) -> list[Kind]:
        """The types that can be read."""
        key = (self.system.name, self.way)
        if key not in _READABLE:
            with TemporaryDirectory() as folder:
                _READABLE[key] = passing(
                    list(self.held[0]), lambda some: not self.refused(some, False, Path(folder))
                )
        return _READABLE[key]


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeError:
        return False
    return True


_READABLE: dict[tuple[str, str], list[Kind]] = {}


@cache
def given(system: str, way: str) -> Given:
    return Given(SYSTEMS[system], way)


@dataclass(frozen=True)
class Case:
    """A column of a type in one use, through one engine."""

    given: Given
    kind: Kind
    use: Use
    engine: Any

    def __str__(self) -> str:
        use = f"{self.use.role} of {self.use.function}"
        return f"{self.given.way} {self.kind.name}: {use}, {self.engine}"

    def of(self, odd: bool | None, folder: Path, *, stated: bool = False) -> tuple[Outcome, Rows]:
        """The release if one person's rows are malformed, plain or absent."""
        rows = self.given.rows([self.kind], odd=odd, stated=stated)
        source = self.given.source(rows, folder / str(odd))
        return (
            self.use.of(source, self.kind, engine=self.engine, **self.given.options(rows)),
            rows,
        )


def _uses() -> Mapping[str, list[Use]]:
    found = defaultdict(list)
    for use in uses():
        found[use.role].append(use)
    return found


USES = _uses()


def cases(
    strength: int | None,
    system: str,
    way: str,
    givens: Mapping[tuple[str, str], Given] | None = None,
) -> list[Case]:
    """The cases of one way: all pairs or triples of way, role, engine and meaning, or all types.

    If not all types are tried, the types of a meaning alternate, and so do the statistics of a
    role.
    """
    mine = given(system, way) if givens is None else givens[system, way]
    kinds = defaultdict(list)
    for kind in mine.readable:
        kinds[kind.meaning].append(kind)
    turn, found = itertools.count(sum(map(ord, way))), []
    if strength is None:
        for kind, role, engine in itertools.product(mine.readable, ROLES, LOCAL):
            some = [use for use in USES[role] if use.suits(kind)]
            if some:
                found.append(Case(mine, kind, some[next(turn) % len(some)], engine))
        return found
    for case in _covered(strength):
        if case["way"] != (system, way):
            continue
        place = next(turn)
        some = [use for use in USES[case["role"]] if case["meaning"] in _meanings(use)]
        own = kinds[case["meaning"]]
        if own and some:
            found.append(Case(mine, own[place % len(own)], some[place % len(some)], case["engine"]))
    return found


def _meanings(use: Use) -> tuple[str, ...]:
    return ROLES[use.role]


@cache
def _covered(strength: int) -> list[dict[str, Any]]:
    known = {
        (system, way): {kind.meaning for kind in SYSTEMS[system].kinds.values()}
        for system, way in WAYS
    }
    options: dict[str, Sequence[Any]] = {
        "way": WAYS,
        "role": [*ROLES],
        "engine": LOCAL,
        "meaning": MEANINGS,
    }
    return covering(
        options,
        strength,
        allowed=lambda way, role, meaning, **_: meaning in ROLES[role] and meaning in known[way],
    )


def same(one: Mapping[str, float] | None, two: Mapping[str, float] | None) -> bool:
    if one is None or two is None:
        return one is two
    return one.keys() == two.keys() and all(
        one[name] == two[name] or (math.isnan(one[name]) and math.isnan(two[name])) for name in one
    )


__all__ = ["FUNCTIONS", "LOCAL", "WAYS", "Case", "Given", "cases", "given", "same"]
