"""``--json``: every command has it, prints one document and nothing else, and it is as documented."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Command
from tests.releases import cases
from typer.main import get_command

from dpgrain.cli import demo_command
from dpgrain.cli.app import app
from dpgrain.cli.document import FORMAT, print_json, running

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
COMMON = {"command", "format", "written"}
PROMISE = ("--epsilon", "2", "--delta", "1e-6")
OF_USERS = ("VISITS", "--user", "who", "--n-users", "600", *PROMISE, "--unit", "user")
NUMBERS = (*OF_USERS, "--value", "seconds", "--bounds", "0", "200")
FIT = (*OF_USERS, "--target", "age", "--features", "seconds", "--range", "seconds=0:200",
       "--rounds", "3")  # fmt: skip
LEDGER = ("LEDGER", "--unit", "user", "--epsilon", "5", "--delta", "1e-5")

# The words that each command is run with; names in capital letters are files.
RUNS: dict[str, tuple[str, ...]] = {
    "histogram": (*OF_USERS, "--item", "page", "--output", "OUT.csv"),
    "top": (*OF_USERS, "--item", "page", "--plot", "OUT.svg"),
    "count": (*OF_USERS, "--by", "topic", "--report", "OUT.html"),
    "sum": NUMBERS,
    "mean": NUMBERS,
    "variance": NUMBERS,
    "std": NUMBERS,
    "covariance": (*NUMBERS, "--other", "age", "--other-bounds", "0", "99"),
    "correlation": (*NUMBERS, "--other", "age", "--other-bounds", "0", "99"),
    "quantiles": NUMBERS,
    "mean-of-users": (
        "VISITS",
        "--user",
        "who",
        "--n-users",
        "600",
        *PROMISE,
        "--columns",
        "seconds,age",
        "--bound",
        "300",
    ),
    "distribution": (*OF_USERS, "--value", "seconds", "--at", "10,50"),
    "elements-per-user": (*OF_USERS, "--element", "topic", "--save", "OUT.parquet"),
    "marginals": (*OF_USERS, "--by", "topic", "--domain", "TOPICS"),
    "run": ("FILE",),
    "audit": ("FILE", "--units", "1", "--seconds", "20", "--plot", "OUT.svg"),
    "guarantee": ("--noise-multiplier", "4", "--delta", "1e-6"),
    "plan units": (*PROMISE, "--n-users", "9000", "--records", "9"),
    "plan recurrent": (*PROMISE, "--periods", "30", "--returns", "9"),
    "plan histogram": PROMISE,
    "plan mean": (*PROMISE, "--n", "1000"),
    "plan gradient": (*PROMISE, "--n", "1000", "--dimension", "9", "--rounds", "9"),
    "plan sco": (*PROMISE, "--n-users", "1000", "--dimension", "9"),
    "plan select": (*PROMISE, "--n-users", "1000", "--hypotheses", "9"),
    "plan shuffle": (*PROMISE, "--n-users", "1000", "--report", "OUT.html"),
    "ledger init": (*LEDGER, "--name", "visits"),
    "ledger promise": ("LEDGER", "--unit", "user", "--epsilon", "9", "--delta", "1e-5"),
    "ledger renew": ("LEDGER", "1", "--epsilon", "6", "--delta", "1e-5"),
    "ledger show": ("LEDGER",),
    "ledger verify": ("LEDGER",),
    "ledger export": ("LEDGER", "--output", "OUT.json"),
    "ledger import": ("LEDGER", "MOVED"),
    "ledger report": ("LEDGER", "--output", "OUT.html"),
    "fit": ("linear", *FIT, "--output", "OUT.json"),
    "predict": ("MODEL", "VISITS", "--output", "OUT.csv"),
    "demo": ("--folder", "OUT"),
}
# Other documents of the same commands.
VARIANTS: dict[str, tuple[str, ...]] = {
    "run --dry-run": ("FILE", "--dry-run", "--ledger", "LEDGER"),
    "run --check": ("FILE", "--check"),
    "guarantee RELEASE": ("SAVED",),
    "count --check": (*OF_USERS, "--by", "topic", "--check"),
    "fit --check": ("linear", *FIT, "--check"),
    "predict --check": ("MODEL", "VISITS", "--check"),
    "ledger export --registry": ("LEDGER", "--registry"),
}


def _commands(made: Any, above: tuple[str, ...] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in made.list_commands(None):
        one = made.get_command(None, name)
        words = (*above, name)
        found |= _commands(one, words) if hasattr(one, "list_commands") else {" ".join(words): one}
    return found


def _documented() -> dict[str, set[str]]:
    """The fields of each document, by the table of the page."""
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        name: {*re.findall(r"`(\w+)`", fields)}
        for names, fields in rows
        for name in re.findall(r"`(.+?)`", names)
    }


@pytest.fixture
def files(tmp_path: Path, command: Command) -> dict[str, Path]:
    cases.parquet(tmp_path)
    table = '[table]\nsource = "visits.parquet"\nuser = "who"\nn_users = 600\n'
    names = ["count", "mean_of_users", "fit"]
    listed = "\n".join(cases.releases(f'share = 0.3\noutput = "{n}.json"', [n]) for n in names)
    (tmp_path / "topics.txt").write_text("jobs\nnews\n", encoding="utf-8")
    return {
        "VISITS": tmp_path / "visits.parquet",
        "LEDGER": tmp_path / "visits.ledger",
        "FILE": cases.written(tmp_path, table + cases.BUDGET + listed),
        "MODEL": tmp_path / "model.json",
        "SAVED": tmp_path / "saved.parquet",
        "MOVED": tmp_path / "moved.ledger",
        "TOPICS": tmp_path / "topics.txt",
    }


def _made(files: dict[str, Path], words: tuple[str, ...], command: Command) -> None:
    visits = files["VISITS"]
    made: dict[str, tuple[str | Path, ...]] = {
        "LEDGER": ("ledger", "init", files["LEDGER"], *LEDGER[1:], "--name", "visits"),
        "MODEL": ("fit", "linear", visits, *FIT[1:], "--output", files["MODEL"]),
        "SAVED": ("count", visits, *OF_USERS[1:], "--save", files["SAVED"]),
    }
    for name in made.keys() & set(words):
        assert command(*made[name]).returncode == 0


def test_every_command_has_json() -> None:
    commands = _commands(get_command(app))
    assert set(RUNS) == set(commands)
    for words, made in commands.items():
        assert any("--json" in one.opts for one in made.params), words


@pytest.mark.slow(cases=8)
@pytest.mark.parametrize("name", [*RUNS, *VARIANTS])
def test_json_is_one_document_as_documented(
    name: str, files: dict[str, Path], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_command, "_READERS", 300)
    folder, words = files["VISITS"].parent, (RUNS | VARIANTS)[name]
    called = re.sub(r" (--\S+|[A-Z]+)$", "", name)
    if name != "ledger init":
        _made(files, words, command)
    outputs = [folder / word for word in words if word.startswith("OUT")]
    placed = [folder / word if word.startswith("OUT") else files.get(word, word) for word in words]
    done = command(*called.split(), *placed, "--json")
    # The audit does not cover the mean of users and the fit.
    assert done.returncode == (6 if name == "audit" else 0), done.stderr
    told = json.loads(done.stdout, parse_constant=pytest.fail)
    assert (told["command"], told["format"]) == (called, FORMAT)
    assert set(told) - COMMON == _documented()[name]
    made = [f"{each}.json" for each in ("count", "mean_of_users", "fit")]
    written = [folder / f"{each}{end}" for each in made for end in ("", ".guarantee.json")]
    if called == "demo":
        assert all(Path(path).exists() for path in told["written"])
    else:
        expected = outputs if name != "run" else written
        assert sorted(told["written"]) == sorted(map(str, expected))
    assert all(path.exists() for path in outputs)


def test_non_numbers_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    token = running.set("some command")
    print_json({"a": [math.inf, (1.5, math.nan)], "b": {"c": -math.inf, 3: True}}, None, Path("x"))
    running.reset(token)
    assert json.loads(capsys.readouterr().out) == {
        "command": "some command",
        "format": 2,
        "a": [None, [1.5, None]],
        "b": {"c": None, "3": True},
        "written": ["x"],
    }


def test_an_error_leaves_the_document_empty(files: dict[str, Path], command: Command) -> None:
    done = command("count", files["VISITS"], *OF_USERS[1:], "--by", "nothing", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: --by 'nothing' is not a column")
