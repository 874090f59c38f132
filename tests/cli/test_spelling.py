"""Sentences of the library in the words of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import Command

from dpgrain.cli.spelling import options, spelled, spelled_inside

KNOWN = {"n_users": "--n-users", "bounds": "--bounds", "noise": "--noise", "clip": "--clip",
         "source": "TABLE", "max_items": "--max-items"}  # fmt: skip


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    token = options.set(KNOWN)
    yield
    options.reset(token)


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ("bounds must be finite.", "--bounds must be finite."),
        ("Numbers beyond bounds are cut.", "Numbers beyond bounds are cut."),
        ("give bounds= or more ε", "give --bounds or more ε"),
        ("state a bound: clip=, or --clip.", "state a bound: --clip."),
        ("choose noise='laplace', which is less.", "choose --noise laplace, which is less."),
        ("noise and n_users go together.", "--noise and --n-users go together."),
        ("state noise='x y' in dg.read or --noise 'x y'.", "state --noise 'x y'."),
        ("state types={'a': 'DOUBLE'} in dg.read or --type a=double", "state --type a=double"),
        ("name them, in clip= or --clip", "name them, in --clip"),
        ("state noise=' '", "state --noise ' '"),
        ("""state noise="'".""", """state --noise "'"."""),
        ("source 'x' must end in .csv.", "TABLE 'x' must end in .csv."),
        ("max_elements must be there.", "max_elements must be there."),
        ("'n_users' and table.n_users() stay.", "'n_users' and table.n_users() stay."),
        (
            "n_users is not a column of the table; it has who, n_users.",
            "--n-users is not a column of the table; it has who, n_users.",
        ),
    ],
)
def test_parameters_go_by_their_options(sentence: str, said: str) -> None:
    assert spelled(sentence) == said


def test_regular_text_may_begin_with_a_common_word() -> None:
    assert spelled_inside("noise hides n_users: clip= is less") == (
        "noise hides --n-users: --clip is less"
    )


def test_a_command_speaks_of_its_options(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"who": ["a", "b"], "paid": [1.0, 2.0]}), path)
    people = (path, "--user", "who", "--unit", "user", "--delta", "1e-6", "--value", "paid")
    said = command("mean", *people, "--epsilon", "0.01").stdout
    assert "no number exceeded the noise: pass --bounds or a larger --epsilon" in said
    for words, sentence in (
        (("mean", tmp_path / "rows.txt", "--unit", "record", "--epsilon", "1", "--value", "x"),
         f"TABLE {str(tmp_path / 'rows.txt')!r} must end in .parquet, .csv or .csv.gz"),
        (("plan", "units", "--epsilon", "1", "--delta", "1e-6", "--n-users", "9", "--records", "9",
          "--skew", "0.5"), "--skew must be between 1 and 1e6, not 0.5."),
        (("top", path, "--unit", "record", "--item", "who", "--epsilon", "1", "--delta", "1e-6",
          "--method", "gumbel"), "--method gumbel requires a public domain; pass --domain."),
    ):  # fmt: skip
        assert command(*words).stderr.startswith(f"Error: {sentence}")
