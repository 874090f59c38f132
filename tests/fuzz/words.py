"""Malformed command lines: the lines of each command's help, with other words and files.

Commands and their valid lines are read from the program, so that a new command is run here without
an extra line.
"""

from __future__ import annotations

import contextlib
import io
import random
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.fuzz.watch import CANARY, NUMBER, Fault, quotes, watched
from typer.main import get_command

import dpgrain as dg
from dpgrain import learn
from dpgrain.cli import main
from dpgrain.cli.app import app

_TABLES = ("visits", "sales", "scores", "speeches", "days", "new")
_USERS = ("person", "who", "customer", "student", "speaker")
_WORDS = ("page", "topic", "word", "region", "country", "week")
_NUMBERS = ("score", "hours", "paid", "amount", "pages", "minutes", "steps", "sleep", "pulse")
_PEOPLE, _EACH = 24, 3
_RELEASES = """
[table]
source = "visits.parquet"
user = "person"
n_users = 24

[budget]
unit = "user"
epsilon = 0.5
delta = 1e-6

[release.pages]
statistic = "count"
by = "page"
domain = ["a", "b"]
share = 1.0
output = "pages.csv"
"""
# In the examples of help: placeholders for known values, and slow options.
_INSTEAD = {
    "ledger init visits.ledger": "ledger init new.ledger",
    "--plan releases.toml": "--plan january.toml",
    "--keep person ": "",
    "--seconds 60": "--seconds 0.01",
    "--target bought": "--target bought --classes 0,1",
    "9a41…": "{hash}",
    "=pages.txt": "=areas.txt",
    "=topics.txt": "=areas.txt",
}
ODD = (
    *("", " ", "-", "--", "---", "-1", "-0", "0", "1", "2", "7", "0.5", "1e-9", "1e-320", "1e400"),
    *("nan", "inf", "-inf", "9" * 400, "1_000", "１", "0x10", "true", "None", "auto", "a", "A"),
    *("é", "\udcff", "\n", "a\nb", "\x1b[31m", "[bold]x[/bold]", "[/]", "%s"),
    *("{0}", "{", "$HOME", "~", "*", "?", "[a-", "*.parquet", "../new.csv", ".", "..", "/", "//"),
    *(
        "x" * 5000,
        "x" * 300 + ".csv",
        "x" * 300 + ".parquet",
        "x/" * 3000 + "x.json",
        "no/such/folder/x.csv",
        "none.parquet",
        "x.csv",
        "x.json",
        "x.html",
        "x.png",
    ),
    *("x.txt", "x", "a=b", "=", "a=", "=b", "a=b=c", "a:b", "a,b", ",", ",,", "1,2", "0..1", ".."),
    *("person", "page", "page=a", "amount", "amount=0..1", "week=", "amount=double", "page=double"),
    *("2025-13-45", "2026-01", "day", "env:HOME", "env:NO_SUCH_VARIABLE", "env:", "user", "record"),
    *(
        "'",
        '"',
        "'; DROP TABLE source; --",
        "amount / 0",
        "amount +",
        "total(amount)",
        "((((",
        "{}",
    ),
)
FILES = (
    *("empty.csv", "cut.parquet", "damaged.parquet", "bytes.csv", "list.json", "deep.toml"),
    *("a folder", "link.parquet", "visits.parquet", "visits.ledger", "model.json"),
    *("words.parquet", "releases.toml", "areas.csv", "areas.txt"),
)
# Prefixes of options for public names, or for per-row output.
_PUBLIC = ("--domain", "--element", "--cells", "--join-public", "--keep")
_SECRET = (*_TABLES, "link.parquet", "bytes.csv", "cut.parquet", "damaged.parquet")
# Files that are read to their end only after the charge; the last line is malformed.
_STAYS = re.compile(r"^Line \d+ of the ledger '.*' stays charged: ", re.MULTILINE)
# Exit codes that docs/command-line.md lists.
_CODES = (0, 1, 2, 3, 4, 5)
_ERRORS = (1, 2, 3, 5)


def _table() -> pa.Table:
    number = np.arange(_PEOPLE * _EACH)
    rng = np.random.default_rng(5)
    secret = number == 7
    columns: dict[str, Any] = {name: [f"{CANARY}-{i // _EACH}" for i in number] for name in _USERS}
    for place, name in enumerate(_WORDS):
        plain = np.array(["a", "b", "c"])[(number + number // (place + 2)) % 3]
        columns[name] = [f"{CANARY} {i}" if secret[i] else plain[i] for i in number]
    for name in _NUMBERS:
        columns[name] = np.where(secret, float(NUMBER), rng.uniform(0, 50, number.size).round(2))
    columns["device"] = np.where(secret, CANARY, np.array(["phone", "tablet"])[number % 2])
    columns["bought"] = number % 2
    columns["day"] = pa.array(20_454 + number % 31, pa.int32()).cast(pa.date32())
    return pa.table(columns)


def make(folder: Path) -> None:
    """Write what the examples of help read, and odd files, into an empty folder."""
    rows = _table()
    for name in _TABLES:
        pq.write_table(rows, folder / f"{name}.parquet")
    whole = (folder / "visits.parquet").read_bytes()
    (folder / "releases.toml").write_text(_RELEASES, encoding="utf-8")
    january = _RELEASES.replace("\n[budget]", '\n[table.where]\nday = "2026-01"\n\n[budget]')
    (folder / "january.toml").write_text(january, encoding="utf-8")
    promise = dg.LastingPromise.of(dg.User(), 5.0, 1e-5)
    dg.Ledger.create(folder / "visits.ledger", name="visits", promises=[promise]).close()
    table = dg.read(folder / "speeches.parquet", user="speaker", n_users=_PEOPLE)
    asked: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6}
    dg.histogram(table, "word", domain=["a", "b"], clip=1.0, **asked).save(folder / "words.parquet")
    few: dict[str, Any] = {"rounds": 2, "epsilon": 1.0, "delta": 1e-6, "n_users": _PEOPLE}
    X = rows.select(["pages", "minutes"]).to_pandas().clip(0, 50)
    y, users = rows.column("bought").to_numpy(), np.arange(len(X)) // _EACH
    model = learn.LogisticRegression(classes=[0, 1], **few).fit(X, y, users=users)
    model.save(folder / "model.json")
    odd = {
        "empty.csv": b"",
        "cut.parquet": whole[: len(whole) // 2],
        "damaged.parquet": whole[:4] + bytes(len(whole) // 3) + whole[4 + len(whole) // 3 :],
        "bytes.csv": b"person,page\n\xff\xfe,\x00\n" + CANARY.encode() + b',"\n',
        "list.json": b"[" * 3000,
        "deep.toml": b"a = " + b"[" * 3000,
        "areas.csv": b"page,area\na,north\nb,south\n",
        "areas.txt": b"a\nb\n",
    }
    for name, data in odd.items():
        (folder / name).write_bytes(data)
    (folder / "a folder").mkdir()
    (folder / "link.parquet").symlink_to("visits.parquet")


@dataclass(frozen=True)
class Line:
    """A command line without the name of the program."""

    command: tuple[str, ...]
    rest: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.command, *self.rest)


def _commands(made: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The words of all commands, and each as the parser of options knows it."""
    for name in made.list_commands(None):
        one = made.get_command(None, name)
        words = (*above, name)
        yield from _commands(one, words) if hasattr(one, "list_commands") else [(words, one)]


@cache
def commands() -> Mapping[str, tuple[Line, ...]]:
    """The command lines that the help of each command shows, by the command's words."""
    found: dict[str, tuple[Line, ...]] = {}
    for words, made in _commands(get_command(app)):
        lines = []
        for text in (made.epilog or "").splitlines():
            for known, other in _INSTEAD.items():
                text = text.replace(known, other)
            shown = tuple(shlex.split(text)[1:])
            assert shown[: len(words)] == words, f"an example of {words} is of another command"
            lines.append(Line(words, shown[len(words) :]))
        found[" ".join(words)] = tuple(lines)
    return found


@cache
def options(command: str) -> tuple[str, ...]:
    made: Any = dict(_commands(get_command(app)))[tuple(command.split(" "))]
    return tuple(name for one in made.params for name in one.opts if name.startswith("--"))


def line(command: str, number: int) -> Line:
    """The malformed line of a number; the first numbers are the lines of help."""
    shown = commands()[command]
    if number < len(shown):
        return shown[number]
    draw = random.Random(f"{command} {number}")
    valid = draw.choice(shown)
    rest = list(valid.rest)
    for _ in range(draw.choice((1, 1, 1, 1, 1, 2, 3))):
        _damage(rest, draw, command)
    return valid if _is_public(rest) else Line(valid.command, tuple(rest))


def _is_public(rest: Sequence[str]) -> bool:
    """Whether a line passes secret rows as public, so that they may be shown."""
    pairs = zip(rest, [*rest[1:], ""], strict=False)
    said = [word.partition("=")[2] or after for word, after in pairs if word.startswith(_PUBLIC)]
    return any(name in text for text in said for name in (*_SECRET, "*", "?"))


def _damage(rest: list[str], draw: random.Random, command: str) -> None:
    place = draw.randrange(len(rest) + 1)
    odd = draw.choice(ODD if draw.random() < 0.7 else FILES)
    match draw.randrange(10):
        case 0 | 1 | 2 | 3 if rest:
            # The value of an option, or an argument.
            values = [i for i, word in enumerate(rest) if not word.startswith("--")]
            rest[draw.choice(values) if values else 0] = odd
        case 4 | 5:
            name = draw.choice(options(command) or ("--json",))
            rest[place:place] = draw.choice(([name, odd], [name], [f"{name}={odd}"]))
        case 6 if rest:
            del rest[place - 1]
        case 7 if rest:
            rest.insert(place, rest[draw.randrange(len(rest))])
        case 8 if rest:
            other = draw.randrange(len(rest))
            rest[place - 1], rest[other] = rest[other], rest[place - 1]
        case _:
            rest.insert(place, odd)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    printed: str
    said: str


def run(words: Sequence[str]) -> Ended:
    def act() -> Ended:
        printed, said = io.StringIO(), io.StringIO()
        with (
            patch.object(sys, "argv", ["dpgrain", *words]),
            patch.object(sys, "excepthook", sys.excepthook),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(said),
        ):
            code = 0
            try:
                main()
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        print(printed.getvalue(), said.getvalue())
        return Ended(code, printed.getvalue(), said.getvalue())

    ended: Ended = watched(act)
    return ended


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@dataclass(frozen=True)
class Place:
    """A folder in which commands run in sequence, starting from the same contents."""

    made: Path
    folder: Path

    def anew(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.made, self.folder, symlinks=True)

    def run(self, line: Line) -> Ended:
        """Run a command, and check its output and files.

        Raises:
            Fault: if it ends in anything but a listed code, an error in anything but one sentence, or
                has written or charged something and ends in an error.
        """
        if not self.folder.exists():
            self.anew()
        before = contents(self.folder)
        known = dg.Ledger(self.folder / "visits.ledger").entries[-1].receipt.hash
        with contextlib.chdir(self.folder):
            ended = run([word.replace("{hash}", known) for word in line.words])
        after = contents(self.folder)
        if before != after:
            self.anew()
        if ended.code not in _CODES:
            raise Fault(f"ends with the code {ended.code}")
        names = {name for name, _ in before.items() ^ after.items()}
        if ended.code in _ERRORS:
            _in_a_sentence(ended)
            stays = ended.code == 5 and _STAYS.search(ended.said)
            if names and not (stays and names == {"visits.ledger"}):
                raise Fault(f"ends with an error, and has changed {', '.join(sorted(names))}")
        elif not any(word.startswith(_PUBLIC) for word in line.rest):
            quoting = sorted(name for name in names if quotes(after.get(name) or b""))
            if quoting:
                raise Fault(f"quotes a row in {', '.join(quoting)}")
        return ended


def _in_a_sentence(ended: Ended) -> None:
    """Raise unless an error is a single sentence."""
    errors = re.findall(r"^Error: (.*)$", ended.said, re.MULTILINE)
    if len(errors) != 1 or "Traceback" in ended.said:
        raise Fault(f"says {len(errors)} errors with the code {ended.code}")
