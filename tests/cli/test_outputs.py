"""No command writes over a file that it reads: nothing is charged, and the file is unchanged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Command
from tests.ledger import cases as ledgers
from tests.releases import cases

import dpgrain as dg

PROMISE = "--epsilon 1 --delta 1e-6"
USER = f"{PROMISE} --unit user --user who"
COUNT = f"count visits.parquet {USER} --by topic --clip 5 --ledger l"
FIT = f"fit logistic visits.parquet --user who {PROMISE} --target bought --features age "
FIT += "--classes 0,1 --n-users 600 --unit user"

# Commands that write the file named last, and the files that they read.
COMMANDS = {
    f"{COUNT} --domain topics.csv --output": ["topics.csv"],
    f"{COUNT} --domain topic=topics.csv --report": [
        "visits.parquet",
        "topics.csv",
        "l",
        "l-journal",
    ],
    f"{COUNT} --cells shelf=page:shelves.csv --save": ["visits.parquet", "shelves.csv"],
    f"histogram visits*.parquet {PROMISE} --user who --item page --unit element --element "
    "shelves.csv --ledger l --report": ["visits.parquet", "l"],
    f"histogram visits*.parquet {PROMISE} --user who --item page --unit element --element "
    "shelves.csv --output": ["shelves.csv"],
    f"mean-of-users visits.parquet {PROMISE} --user who --columns age,seconds --bound 100 --n-users "
    "600 --ledger visits.json --output": ["visits.json", "visits.parquet"],
    f"{FIT} --ledger visits.json --output": ["visits.json"],
    f"{FIT} --output new.json --report": ["visits.parquet", "new.json"],
    "predict model.json visits.parquet --output": ["visits.parquet"],
    "ledger export l --output": ["l", "l-journal"],
    "ledger report l --output": ["l"],
    "guarantee saved.png --plot": ["saved.png"],
}
FILES = {name for files in COMMANDS.values() for name in files}
FILES = FILES - {"l-journal", "new.json"} | {"model.json", "releases.toml"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    cases.parquet(folder)
    (folder / "topics.csv").write_text("topic\nt0\nt1\nt2\n")
    (folder / "shelves.csv").write_text(
        "page,shelf\n" + "".join(f"p{i},s{i % 3}\n" for i in range(9))
    )
    ledgers.made(folder / "l", user="who").close()
    ledgers.made(folder / "visits.json", user="who").close()
    fit = cases.STATED + cases.releases(
        "epsilon = 1.0\ndelta = 1e-6\noutput = 'model.json'", ["fit"]
    )
    dg.releases(cases.written(folder, fit), cases.table())
    (folder / "model.json.guarantee.json").unlink()
    release = dg.count(cases.table(), unit=dg.User(), epsilon=1.0, delta=1e-6, clip=5.0)
    release.save(folder / "saved.png")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        (tmp_path / name).write_bytes((made / name).read_bytes())
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def as_it_is(path: Path) -> Path:
    return path


def roundabout(path: Path) -> Path:
    return path.parent / ".." / path.parent.name / path.name


def linked(path: Path) -> Path:
    link = path.with_name(f"link{path.suffix}")
    link.symlink_to(path)
    return link


def linked_hard(path: Path) -> Path:
    """Another name of the file; a ledger has only one name, and a missing file has none."""
    link = path.with_name(f"hard{path.suffix}")
    if path.exists() and path.name != "l":
        link.hardlink_to(path)
        return link
    return path


NAMES = [as_it_is, roundabout, linked, linked_hard]
PAIRS = [
    (words, read, name)
    for words, files in COMMANDS.items()
    for read in files
    # Each command goes through the same gate, which knows files by all their names.
    for name in (NAMES if "topic=" in words or "predict" in words else NAMES[:1])
]


@pytest.mark.parametrize(("words", "read", "name"), PAIRS)
def test_command_does_not_overwrite_its_input(
    words: str, read: str, name: Callable[[Path], Path], folder: Path, command: Command
) -> None:
    output = name(folder / read)
    before = contents(folder)
    done = command(*words.split(), output)
    assert done.returncode == 2, done.stderr
    assert "is already used in this command; choose another file." in done.stderr
    assert contents(folder) == before


RUN = """
[table]
source = "visits*.parquet"
user = "who"
n_users = 600
[table.cells.shelf]
of = "page"
by = "shelves.csv"
[budget]
element = "topics.csv"
[release.pages]
statistic = "histogram"
item = "page"
domain = "pages.csv"
max_elements = 3
epsilon = 0.5
delta = 1e-7
output = "{output}"
"""


READ = ("visits.parquet", "shelves.csv", "topics.csv", "pages.csv", "releases.toml", "l")


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    ("written", "read"),
    # Outputs are tables, and the page of a report may have any name.
    [*(("output", name) for name in READ[:4]), *(("report", name) for name in READ)],
)
def test_run_does_not_overwrite_its_input(
    written: str, read: str, again: bool, folder: Path, command: Command
) -> None:
    (folder / "topics.csv").write_text((folder / "shelves.csv").read_text())
    (folder / "pages.csv").write_text("p1\np2\n")
    text = RUN.format(output=read if written == "output" else "new.csv")
    if written == "report":
        text = f'report = "{read}"\n{text}'
    (folder / "releases.toml").write_text(text)
    before = contents(folder)
    words = ["--again"] if again else []
    done = command("run", "releases.toml", "--ledger", "l", *words)
    assert done.returncode == 2, done.stderr
    assert "is already used in this command; choose another file." in done.stderr
    assert contents(folder) == before


def test_run_in_an_open_ledger_does_not_overwrite_it(folder: Path) -> None:
    text = cases.STATED + cases.releases("epsilon = 0.1\ndelta = 1e-9", ["count"])
    path = cases.written(folder, 'report = "l"\n' + text)
    with dg.Ledger(folder / "l") as ledger:
        plan = dg.plan_releases(path, cases.table())
        before = (folder / "l").read_bytes()
        with pytest.raises(dg.ParameterError, match="is already used in this command"):
            plan.run(again=True)
        assert (folder / "l").read_bytes() == before
        assert len(ledger.entries) == 2
