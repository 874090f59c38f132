"""The contents of rows appear in no text or file, however a release ends."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from tests.claims.canaries import BROKEN, FORMS, Canaries, handed_on
from tests.claims.publishers import PUBLISHERS, PURE, publishers
from tests.conftest import shown
from tests.effort import Effort
from tests.fuzz.watch import CANARY, Fault, left_behind, quotes, watched
from tests.products import covering
from tests.promises import Publisher
from tests.tables.engines.in_memory import InMemory
from tests.tables.sources.databases import database, missing

import dpgrain as dg
from dpgrain.accounting import Laplace
from dpgrain.noise import SystemSource

# How a release ends, or where it is charged; and the endings with a published result.
_ENDS = ("released", "in a ledger", "no room", "interrupted", "cannot be read")
_RELEASED = ("released", "in a ledger")
_ENGINES = ("duckdb", InMemory)
# Array functions have one input form.
_OF_ARRAYS = ("dpgrain.select", "dpgrain.mean_of_users", "dpgrain.mean_of_users, pure")
# Functions that choose without δ.
_LASTING = dg.LastingPromise.of(dg.User(), 50.0, 1e-3, pure=20.0)


@dataclass(frozen=True)
class Case:
    """One release of people's secret rows."""

    name: str
    form: str = "Arrow"
    engine: Any = "duckdb"
    ends: str = "released"

    @property
    def is_possible(self) -> bool:
        """Whether the function takes tables of the form, and the release can end so."""
        if self.ends == "in a ledger" and dg.User() not in PUBLISHERS[self.name].units:
            return False
        if self.name.count(".") != 1 or self.name in _OF_ARRAYS:
            return (self.form, self.engine) == ("Arrow", "duckdb") and self.ends != "cannot be read"
        return self.ends != "cannot be read" or self.form in BROKEN

    def publisher(self, folder: Path) -> Publisher:
        breaks = self.ends == "cannot be read"
        rows = Canaries.some(self.form, self.engine, folder, breaks=breaks)
        return publishers(rows)[self.name]

    def asked(self, publisher: Publisher) -> dict[str, Any]:
        asked: dict[str, Any] = {name: values[0] for name, values in publisher.options.items()}
        asked |= {"epsilon": 1.0, "delta": 0.0 if self.name in PURE else 1e-6}
        if len(publisher.units) == 1:
            return asked
        if self.ends != "in a ledger":
            other = {**asked, "unit": random.Random(str(self)).choice(publisher.units)}
            with contextlib.suppress(dg.ParameterError):
                publisher.query(**other)
                return other
        return {**asked, "unit": dg.User()}

    def publish(self, folder: Path) -> Any:
        """Publish under watch; None where nothing is published."""
        publisher = self.publisher(folder)

        def act() -> Any:
            with _ending(self.ends, folder):
                return publisher.publish(**self.asked(publisher))

        return watched(act)


@contextlib.contextmanager
def _ending(ends: str, folder: Path) -> Iterator[None]:
    """The ledger of a release, or the failure that ends it."""
    with contextlib.ExitStack() as stack:
        if ends == "in a ledger":
            place = folder / "people.ledger"
            stack.enter_context(dg.Ledger.create(place, name="people", promises=[_LASTING]))
        if ends == "no room":
            stack.enter_context(dg.budget(0.1, 1e-7))
        if ends == "interrupted":
            stack.enter_context(pytest.MonkeyPatch.context()).setattr(
                SystemSource, "words", _interrupt
            )
        try:
            yield
        except KeyboardInterrupt as error:
            if quotes(shown(error)):
                raise Fault("quotes a row in what an interruption shows") from None
            raise dg.DataError("Interrupted.") from None


def _interrupt(*_: Any) -> Any:
    raise KeyboardInterrupt


def cases(strength: int | None) -> list[Case]:
    """All pairs, triples or combinations of functions, forms, engines and ends."""
    options: dict[str, Any] = {"name": [*PUBLISHERS], "form": [*FORMS], "engine": _ENGINES}
    options["ends"] = _ENDS
    found = covering(options, strength, allowed=lambda **case: Case(**case).is_possible)
    return [Case(**each) for each in found]


def faults_of(case: Case, folder: Path) -> Iterator[str]:
    """Every place that shows contents of rows."""
    try:
        result = case.publish(folder)
    except Fault as fault:
        yield str(fault)
        return
    if (result is not None) != (case.ends in _RELEASED):
        yield "is refused" if result is None else "is published"
    if result is not None:
        handed = handed_on(result, folder, pages=False)
        yield from (f"stands in {what}" for what, told in handed if quotes(told))
    held = (path for path in folder.glob("people.ledger*") if quotes(path.read_bytes()))
    yield from (f"stands in {path.name}" for path in held)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files, which must contain nothing from a row."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not left_behind(folder)


@pytest.mark.slow(cases=4)
def test_row_contents_appear_in_no_text_or_file(
    effort: Effort, tmp_path: Path, temporary: Path
) -> None:
    faults = []
    for place, case in enumerate([*cases(effort.strength)][:: effort.number(2, 1)]):
        (folder := tmp_path / str(place)).mkdir()
        faults += [f"{case}: {fault}" for fault in faults_of(case, folder)]
    assert not faults, "\n".join(faults)


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("name", PUBLISHERS)
def test_row_contents_appear_in_no_report_or_plot(
    name: str, tmp_path: Path, temporary: Path
) -> None:
    result = Case(name).publish(tmp_path)
    assert not [what for what, told in handed_on(result, tmp_path, pages=True) if quotes(told)]


# -- on a cluster, and in a database --

# Maps rows and whether reading fails at the end to the arguments of dg.read.
Sources: TypeAlias = Callable[[pa.Table, bool], dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Elsewhere(Canaries):
    source_of: Sources = field(kw_only=True)

    def read(self, rows: pa.Table, **options: Any) -> dg.UserTable:
        table: dg.UserTable = dg.read(**self.source_of(rows, self.breaks), **options)
        return table


@dataclass(frozen=True)
class CaseElsewhere(Case):
    source_of: Sources = field(kw_only=True, repr=False)

    def publisher(self, folder: Path) -> Publisher:
        del folder
        breaks = self.ends == "cannot be read"
        return publishers(Elsewhere.some(breaks=breaks, source_of=self.source_of))[self.name]


@pytest.fixture(scope="module", params=["Spark", "PostgreSQL"])
def source_of(request: pytest.FixtureRequest) -> Iterator[Sources]:
    fails = "CAST(who AS BIGINT) > 0"
    if request.param == "Spark":
        spark = request.getfixturevalue("spark")

        def framed(rows: pa.Table, breaks: bool) -> dict[str, Any]:
            frame = spark.createDataFrame(rows)
            return {"source": frame.where(fails) if breaks else frame, "rows": "as given"}

        yield framed
        return
    if missing():
        pytest.skip(missing())
    with database() as server:

        def kept(rows: pa.Table, breaks: bool) -> dict[str, Any]:
            name = server.holding(rows)
            if not breaks:
                return {"source": server.address, "table": name}
            query = f"SELECT * FROM {name} WHERE {fails}"
            return {"source": server.address, "query": query, "rows": "as given"}

        yield kept


@pytest.mark.slow
@pytest.mark.parametrize("ends", _ENDS)
@pytest.mark.parametrize("name", ["dpgrain.count", "dpgrain.mean", "dpgrain.top"])
def test_row_contents_appear_in_no_spark_or_database_message(
    name: str, ends: str, source_of: Sources, tmp_path: Path, temporary: Path
) -> None:
    faults = list(faults_of(CaseElsewhere(name, ends=ends, source_of=source_of), tmp_path))
    assert not faults, "\n".join(faults)


# -- functions of the caller's that fail, and quote what they were given --


def _quoting(*given: Any, **named: Any) -> Any:
    raise ValueError(f"{CANARY}: {given} {named}")


_ROWS = pa.table({"who": [f"{CANARY} {i}" for i in range(20)], "x": [CANARY] * 20, "n": [1.0] * 20})
_PROMISE: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6}
_SECRET, _WHO = np.array([CANARY] * 20), [f"{CANARY} {i}" for i in range(20)]
FAILING: Mapping[str, Callable[[], Any]] = {
    "cells of a column": lambda: dg.count(
        dg.read(_ROWS, user="who").with_cells("cell", of="x", by=_quoting), by="cell", **_PROMISE
    ),
    "elements by a function": lambda: dg.count(
        dg.read(_ROWS, user="who"),
        by="x",
        **{**_PROMISE, "unit": dg.Element(dg.Elements.from_function(_quoting))},
    ),
    "a loss of a choice": lambda: dg.select([0, 1], _quoting, _SECRET, users=_WHO, **_PROMISE),
    "a run of which the best is kept": lambda: dg.best_of(
        lambda source: _quoting(_SECRET), event=Laplace(10.0), mean=5.0
    ),
}


@pytest.mark.parametrize("what", FAILING)
def test_failing_function_cannot_quote_rows(what: str, temporary: Path) -> None:
    watched(FAILING[what])


# -- what sees it --

LEAKS: Mapping[str, Callable[[Canaries], Any]] = {
    "repr": lambda rows: list(rows.users),
    "what it holds": lambda rows: SimpleNamespace(largest=float(rows.X[33, 0])),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_all_outputs_of_a_release_are_searched(leak: str, tmp_path: Path) -> None:
    result = LEAKS[leak](Canaries.some())
    assert any(quotes(told) for _, told in handed_on(result, tmp_path, pages=False))
