"""For any words, a command ends with a code and one message, and leaves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.effort import Effort
from tests.fuzz import words
from tests.fuzz.watch import CANARY, Fault
from tests.fuzz.words import Ended, Line, Place

SHARE = 0.03
COMMANDS = tuple(words.commands())
# Commands that make and publish a whole table, or search for seconds; few lines of each are run.
_SLOW = ("audit", "demo")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    words.make(folder)
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LEDGER_ADDRESS", str(tmp_path / "moved.ledger"))
    return Place(made, tmp_path / "here")


def test_the_help_of_every_command_shows_a_line() -> None:
    assert [name for name, lines in words.commands().items() if not lines] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_examples_of_command_help_run(name: str, place: Place) -> None:
    for line in words.commands()[name]:
        # This needs a server; tests/ledger/test_move.py moves ledgers there.
        if any(word.startswith("postgresql://") for word in line.rest):
            continue
        ended = place.run(line)
        assert ended.code == 0, (line, ended.said)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in _SLOW])
def test_commands_end_with_one_message_for_any_words(
    name: str, effort: Effort, place: Place
) -> None:
    """A fault names the number of its line: tests.fuzz.words.line(NAME, NUMBER) is the line."""
    faults, shown = [], len(words.commands()[name])
    for number in range(shown, shown + max(round(effort.inputs * SHARE / len(COMMANDS)), 1)):
        try:
            place.run(words.line(name, number))
        except Fault as fault:
            faults.append(f"{name}, line {number}: {fault}")
    assert not faults, "\n".join(faults)


LONG = "x" * 300
COUNT = "visits.parquet --user person --by page --unit user --epsilon 1 --delta 1e-6"
FIT = " ".join(words.commands()["fit"][1].rest)
# Lines that ended in other errors, wrote something all the same, or took a wrong value for a right one.
FOUND = (
    ("ledger renew", "visits.ledger 1 --epsilon 1 --delta nan"),
    ("ledger show", "/"),
    ("guarantee", f"{LONG}.parquet"),
    ("guarantee", "."),
    ("predict", ". new.parquet --output p.csv"),
    ("plan mean", "--epsilon 1e-320 --delta 1e-6 --n 10000 --dimension 100 --error 0.01"),
    ("predict", f"{LONG}.json new.parquet --output p.csv"),
    ("count", f"{COUNT} --domain {LONG}.csv"),
    ("count", f"{COUNT} --element {LONG}.csv"),
    ("run", f"releases.toml --folder {LONG}"),
    # Published releases were charged before, and lost.
    ("count", f"{COUNT} --ledger visits.ledger --output \udcff.csv"),
    ("count", f"{COUNT} --ledger visits.ledger --report p.csv"),
    ("fit", f"{FIT} --ledger visits.ledger --report p.csv"),
    ("ledger init", "/ --name visits --unit user --epsilon 1"),
)


@pytest.mark.parametrize(("name", "rest"), FOUND)
def test_past_findings_raise_clear_errors(name: str, rest: str, place: Place) -> None:
    assert place.run(Line(tuple(name.split()), tuple(rest.split()))).code in (1, 2)


def test_a_device_is_not_replaced_by_a_file(place: Place) -> None:
    place.anew()
    os.mkfifo(pipe := place.folder / "pipe.csv")
    ended = place.run(Line(("count",), tuple(f"{COUNT} --output pipe.csv".split())))
    assert ended.code == 2
    assert pipe.is_fifo()


# -- what sees a fault --

FAULTS = {
    "ends with the code 7": Ended(7, "", ""),
    "says 0 errors": Ended(1, "", "It went wrong.\n"),
    "says 2 errors": Ended(2, "", "Error: a.\nError: b.\n"),
    "has changed new.csv": Ended(2, "new.csv", "Error: a.\n"),
    "has changed visits.ledger": Ended(1, "visits.ledger", "Error: a.\n"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_each_fault_of_a_command_is_seen(
    what: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_: object) -> Ended:
        if FAULTS[what].printed:
            Path(FAULTS[what].printed).write_text("changed")
        return FAULTS[what]

    monkeypatch.setattr(words, "run", run)
    with pytest.raises(Fault, match=what):
        place.run(Line(("count",), ()))
    # The changed data no longer exist.
    assert words.contents(place.folder) == words.contents(place.made)


def test_row_printed_by_a_command_is_detected(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Fault, match="quotes a row in what is printed"):
        words.run(["ledger", "show", CANARY])
    kept = Line(("predict",), ("model.json", "new.parquet", "--keep=person", "--output", "p.csv"))
    monkeypatch.setattr(words, "_PUBLIC", ("--none",))
    with pytest.raises(Fault, match=r"quotes a row in p\.csv"):
        place.run(kept)
