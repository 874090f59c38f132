"""Nothing but noisy answers is published: the same answers on other rows make the same outcome."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from tests.claims.publishers import PROMISES, People, publishers
from tests.effort import Effort
from tests.products import covering
from tests.promises import Publisher
from tests.replay import recorded, replayed

import dpgrain as dg
from dpgrain.errors import DataError, DpgrainError
from dpgrain.ledger import LastingPromise

# Releases of each function that a sample replays.
_FEW = 4
# Options under which the number of draws or of candidates is not public; not replayed.
_APART: dict[str, dict[str, tuple[Any, ...]]] = {
    # A winsorized mean chooses among occupied bins; tests/papers/winsorized/.
    "dpgrain.mean_of_users": {"method": ("clip", "recentred", "softcore")},
    # The number of runs behind the best one is random; tests/choices/test_repeated_runs.py.
    "dpgrain.select": {"method": ("auto", "permute_and_flip", "exponential")},
    # Items are selected among existing ones; tests/claims/test_capped_units.py.
    "dpgrain.histogram": {"domain": (["a", "b", "z"],)},
    "dpgrain.top": {"domain": (["a", "b", "z"],)},
}
_PUBLIC_GROUPS = (
    "count",
    "sum",
    "mean",
    "variance",
    "std",
    "covariance",
    "correlation",
    "quantiles",
    "distribution",
)


def _people() -> dict[str, People]:
    some = People.of(0)
    few = slice(3, None)
    without = People(some.users[few], some.items[few], some.cells[few], some.X[few])
    odd = some.X.copy()
    odd[3:9] = [[np.nan, np.inf], [-np.inf, 0], [1e300, -1e300], [5e-324, 0], [-0.0, 2], [9, 9]]
    nobody = slice(0, 0)
    return {
        "neighbour": without,
        "others": People.of(7),
        "one user": replace(some, users=np.zeros_like(some.users)),
        "odd": replace(some, X=odd),
        "many": People.of(3, rows=3000, each=2),
        "nobody": People(
            some.users[nobody], some.items[nobody], some.cells[nobody], some.X[nobody]
        ),
    }


PEOPLE = _people()
FIRST = publishers(People.of(0))
OTHERS = {name: publishers(people) for name, people in PEOPLE.items()}
Change: TypeAlias = Callable[[Publisher], Publisher]
_WITHOUT = ("dpgrain.papers.release_mean", "dpgrain.mean_of_users, pure")
NAMES = [name for name in FIRST if "shuffle" not in name and name not in _WITHOUT]


def product_of(name: str) -> dict[str, Any]:
    """The options of a function with only replayed draws."""
    product = {**FIRST[name].product(PROMISES[:4]), **_APART.get(name, {})}
    if name.rpartition(".")[2] in _PUBLIC_GROUPS:
        product["domain"] = (["a", "b", "z"],)
    return product


def _shown(result: Any, folder: Path, pages: bool) -> Iterator[str]:
    yield repr(result)
    yield str(result)
    for name in ("to_arrow", "to_dict", "to_json", "summary"):
        if callable(getattr(result, name, None)):
            yield repr(getattr(result, name)())
    if pages and hasattr(result, "report"):
        yield result.report(folder / "page.html").read_text(encoding="utf-8")
    if hasattr(result, "get_params"):
        known = {name: value for name, value in vars(result).items() if name.endswith("_")}
        yield repr(sorted(known.items(), key=lambda item: item[0]))


def _outcome(
    publisher: Publisher, asked: dict[str, Any], folder: Path, *, pages: bool = False
) -> tuple[list[str], Any]:
    """The visible outcome of a release: its results or error, warnings, logs and printed text."""
    said, log = io.StringIO(), logging.StreamHandler(io.StringIO())
    logging.getLogger().addHandler(log)
    try:
        with (
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
            warnings.catch_warnings(record=True) as warned,
        ):
            warnings.simplefilter("always")
            try:
                units = {"unit": asked["unit"]} if len(publisher.units) > 1 else {}
                rest = {k: v for k, v in asked.items() if k not in ("unit", "promise")}
                seeded = {"random_state": 5}
                result = publisher.publish(**units, **asked["promise"], **rest, **seeded)
                seen = list(_shown(result, folder, pages))
            except DpgrainError as error:
                seen, result = [f"{type(error).__name__}: {error}"], None
    finally:
        logging.getLogger().removeHandler(log)
    stream: Any = log.stream
    seen += [said.getvalue(), stream.getvalue(), repr([str(each.message) for each in warned])]
    return seen, result


def _differs(
    name: str,
    asked: dict[str, Any],
    folder: Path,
    change: Change = lambda publisher: publisher,
    *,
    pages: bool = False,
    people: Iterable[str] = OTHERS,
) -> list[str] | None:
    """Return the other people with a different outcome, and the answers of the first.

    None where nothing is published.
    """
    mine = change(FIRST[name])
    with recorded() as draws:
        first, result = _outcome(mine, asked, folder, pages=pages)
    if result is None:
        return None
    differs = []
    for who in people:
        try:
            with replayed(draws):
                second, _ = _outcome(change(OTHERS[who][name]), asked, folder, pages=pages)
        except AssertionError as error:
            differs.append(f"{who}: {error}")
            continue
        differs += [
            f"{who}: {_beside(one, two)}"
            for one, two in zip(first, second, strict=False)
            if one != two
        ][:1]
    return differs


def _beside(one: str, two: str) -> str:
    """Return where two texts begin to differ."""
    place = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), 0)
    return (
        f"…{one[max(0, place - 60) : place + 60]!r} and …{two[max(0, place - 60) : place + 60]!r}"
    )


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_but_answers_is_published(name: str, effort: Effort, tmp_path: Path) -> None:
    # A full run tries combinations of four.
    tried = covering(product_of(name), 2 if effort.level else 4)
    random.Random(name).shuffle(tried)
    published, wrong = 0, {}
    for asked in tried:
        found = _differs(name, asked, tmp_path)
        if found is not None and not published:
            # Reports are slow: one release and its neighbour represent all.
            found += _differs(name, asked, tmp_path, pages=True, people=["neighbour"]) or []
        published += found is not None
        if found:
            wrong[str(asked)] = found
        if effort.level == 1 and published == _FEW:
            break
    assert not wrong
    assert published


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_ledger_notes_nothing_of_rows(name: str, tmp_path: Path) -> None:
    promise = LastingPromise.of(dg.User(), 50.0, 1e-3, pure=20.0)

    def noted(publisher: Publisher, asked: dict[str, Any]) -> Any:
        place = tmp_path / f"{len(list(tmp_path.iterdir()))}.ledger"
        with dg.Ledger.create(place, name="people", promises=[promise]) as ledger:
            _, result = _outcome(publisher, asked, tmp_path)
        # The time of a line comes from a clock, and its hash covers the time.
        lines = [entry.line.values for entry in ledger.entries[2:]]
        return [{**line, "at": "", "before": ""} for line in lines], result

    product = {**product_of(name), "unit": (dg.User(),), "relation": ("zero_out",)}
    for asked in covering(product):
        _outcome(FIRST[name], asked, tmp_path)
        with recorded() as draws:
            first, result = noted(FIRST[name], asked)
        if result is not None:
            break
    assert len(first) == 1
    for others in OTHERS.values():
        with replayed(draws):
            assert noted(others[name], asked)[0] == first


ASKED: dict[str, Any] = {
    "unit": dg.User(),
    "relation": "zero_out",
    "promise": {"epsilon": 1.0, "delta": 1e-6},
    "n_users": 50,
    "where": False,
    "clip": 3.0,
    "noise": "gaussian",
    "value": None,
    "domain": ["a", "b"],
    "by": "item",
}


def _warns(release: Any, rows: int) -> Any:
    if rows > 1000:
        warnings.warn("many rows", UserWarning, stacklevel=2)
    return release


def _logs(release: Any, rows: int) -> Any:
    logging.getLogger("a").warning(rows)
    return release


def _fails(release: Any, rows: int) -> Any:
    if rows == 0:
        raise DataError("There is nobody.")
    return release


LEAKS: dict[str, Callable[[Any, int], Any]] = {
    "a number without noise": lambda release, rows: (release, rows),
    "a text": lambda release, rows: f"{release} of {rows} rows",
    "a warning": _warns,
    "an error": _fails,
    "a log line": _logs,
    "a line that is printed": lambda release, rows: (print(rows), release)[1],
}


@dataclass(frozen=True)
class Leaking(Publisher):
    """A publisher that leaks how many rows there are."""

    leak: str = ""

    def publish(self, **asked: Any) -> Any:
        rows = len(self.query.func.__self__.users)  # type: ignore[attr-defined]
        return LEAKS[self.leak](super().publish(**asked), rows)


@pytest.mark.slow
@pytest.mark.parametrize("leak", LEAKS)
def test_leaks_are_detected(leak: str, tmp_path: Path) -> None:
    def leaking(publisher: Publisher) -> Publisher:
        return Leaking(publisher.query, publisher.options, publisher.units, leak)

    assert _differs("dpgrain.count", ASKED, tmp_path) == []
    assert _differs("dpgrain.count", ASKED, tmp_path, leaking)
