"""The program on a terminal and in a pipe: progress, colours, completion."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.test_progress import Terminal

from dpgrain.cli.printing import print_table

COUNT = ("--user", "who", "--unit", "user", "--epsilon", "1", "--delta", "1e-6", "--by", "page")
# One of the colours of a terminal, of letters or behind them.
COLOUR = re.compile(rb"\x1b\[(?:\d+;)*(?:[34][0-7]|9[0-7])(?:;\d+)*m")
#: The program, which shows at once what it is at.
PROGRAM = """
import sys
from dpgrain import _progress
from dpgrain.cli import main
_progress._PATIENCE_SECONDS = 0.0
_progress._REDRAW_SECONDS = 0.005
sys.argv = ["dpgrain", *{words!r}]
main()
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("terminal") / "rows.parquet"
    numbers = range(400_000)
    table = {"who": [f"person {n % 9000}" for n in numbers], "page": [f"p{n % 9}" for n in numbers]}
    pq.write_table(pa.table(table), path)
    return path


def program(*words: str | Path) -> str:
    return PROGRAM.format(words=tuple(map(str, words)))


@pytest.mark.slow
def test_a_terminal_shows_progress_and_colours(rows: Path, tmp_path: Path) -> None:
    terminal = Terminal(program("count", rows, *COUNT), tmp_path)
    shown = terminal.read()
    assert terminal.end() == 0, shown
    # The drawing after the first step depends on the speed of the machine.
    assert "Selecting items" in shown
    assert "estimate" in shown
    # The bar of progress is coloured, and so is an error.
    assert COLOUR.search(terminal.screen)
    wrong = Terminal(program("count", rows, *COUNT, "--by", "nothing"), tmp_path)
    assert "Error: --by 'nothing' is not a column" in wrong.read()
    assert wrong.end() == 2
    assert COLOUR.search(wrong.screen)


@pytest.mark.slow
def test_colour_is_off_when_unwanted(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    for words, code in (((), 0), (("--by", "nothing"), 2)):
        terminal = Terminal(program("count", rows, *COUNT, *words), tmp_path)
        shown = terminal.read()
        assert terminal.end() == code, shown
        assert not COLOUR.search(terminal.screen)


@pytest.mark.slow
def test_pipe_receives_plain_text(rows: Path) -> None:
    for words, code in (((), 0), (("--by", "nothing"), 2)):
        asked = [sys.executable, "-c", program("count", rows, *COUNT, *words)]
        done = subprocess.run(asked, capture_output=True, check=False)
        assert done.returncode == code, done.stderr
        assert b"\x1b" not in done.stdout + done.stderr
        assert b"Choosing" not in done.stderr


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("bin")
    path = folder / "dpgrain"
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dpgrain "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    found = ":".join(sys.path)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": found}


def _script(name: str, shell: dict[str, str]) -> str:
    asked = {**shell, "_DPGRAIN_COMPLETE": f"source_{name}"}
    return subprocess.run(
        ["dpgrain"], env=asked, capture_output=True, text=True, check=True
    ).stdout  # fmt: skip


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("bash", "complete -o default -F _dpgrain_completion dpgrain"),
        ("zsh", "compdef _dpgrain_completion dpgrain"),
        ("fish", "complete --command dpgrain"),
    ],
)
def test_each_shell_has_a_script(name: str, line: str, shell: dict[str, str]) -> None:
    assert line in _script(name, shell)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_options_and_values(shell: dict[str, str]) -> None:
    wanted = {
        "hi": ["histogram"],
        "plan u": ["units"],
        "ledger ": ["init", "promise", "renew", "show", "verify", "export", "import", "report"],
        "count x --eps": ["--epsilon"],
        "histogram x --unit ": ["record", "element", "user"],
        "mean x --noise l": ["laplace"],
        "fit l": ["logistic", "linear"],
    }
    lines = [_script("bash", shell)]
    for words in wanted:
        # The text after the last space is the word to complete, even if it is empty.
        typed = [shlex.quote(word) for word in ("dpgrain", *words.split(" "))]
        lines.append(f"COMP_WORDS=({' '.join(typed)}); COMP_CWORD={len(typed) - 1}")
        lines.append('_dpgrain_completion dpgrain; echo "${COMPREPLY[@]}"')
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(lines)],
        env=shell, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [line.split() for line in done.stdout.splitlines()] == list(wanted.values())


def test_a_pipe_receives_tables_without_wrapping(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    region = f"page {', '.join(map(str, range(60)))}"
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table("Lines", ("region",), [(region,)])
    assert region in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    print_table("Lines", ("region",), [(region,)])
    assert region not in capsys.readouterr().out
