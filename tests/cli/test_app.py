"""The program as a person runs it: separate processes, exit codes, the traceback."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import Command

PROMISE = ("--user", "person", "--epsilon", "2", "--delta", "1e-4")
OF_USERS = (*PROMISE, "--unit", "user")
NUMBERS = ("--value", "seconds", "--bounds", "0", "60")
OTHERS = ("--other", "person", "--other-bounds", "0", "300")
RUNS = {
    "histogram": (*PROMISE, "--item", "page", "--element", "page"),
    "top": (*PROMISE, "--item", "page", "--element", "page"),
    "count": OF_USERS,
    "sum": (*OF_USERS, *NUMBERS),
    "mean": (*OF_USERS, *NUMBERS),
    "variance": (*OF_USERS, *NUMBERS),
    "std": (*OF_USERS, *NUMBERS),
    "covariance": (*OF_USERS, *NUMBERS, *OTHERS),
    "correlation": (*OF_USERS, *NUMBERS, *OTHERS),
    "quantiles": (*OF_USERS, *NUMBERS),
    "elements-per-user": (*PROMISE, "--element", "page"),
}


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = np.random.default_rng(0)
    table = pa.table(
        {
            "person": generator.integers(0, 300, 2000),
            "page": pa.array([f"page {i}" for i in generator.integers(0, 8, 2000)]),
            "seconds": generator.normal(30, 20, 2000),
        }
    )
    path = tmp_path_factory.mktemp("app") / "visits.parquet"
    pq.write_table(table, path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_every_statistic_runs(name: str, visits: Path, process: Command) -> None:
    done = process(name, visits, *RUNS[name])
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert "differential privacy" in done.stdout


@pytest.mark.slow
def test_a_model_is_fitted_and_predicts(visits: Path, tmp_path: Path, process: Command) -> None:
    model, found = tmp_path / "m.json", tmp_path / "p.csv"
    done = process("fit", "linear", visits, "--target", "seconds", "--features", "person",
                   "--range", "person=0:300", *OF_USERS, "--rounds", "5",
                   "--output", model)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"Written: {model}" in done.stdout
    done = process("predict", model, visits, "--output", found)
    assert done.returncode == 0, done.stderr
    assert "2,000 rows predicted" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("guarantee", "--noise-multiplier", "4", "--delta", "1e-6"),
        ("plan", "mean", "--epsilon", "1", "--delta", "1e-6", "--n", "1000"),
        ("demo", "--help"),
    ],
    ids=lambda words: str(words[0]),
)
def test_every_other_command_runs(words: tuple[str, ...], process: Command) -> None:
    done = process(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not done.stderr


def stated(words: Sequence[str], option: str, value: str) -> list[str]:
    changed = list(words)
    if option in changed:
        place = changed.index(option)
        del changed[place : place + 2]
    return [*changed, option, value]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "code"),
    [(("--user", "nobody"), 2), (("--output", "/no/x.csv"), 2), (("--epsilon", "-1"), 2)],
)
def test_an_error_is_one_sentence(
    options: tuple[str, str], code: int, visits: Path, process: Command
) -> None:
    done = process("histogram", visits, *stated(RUNS["histogram"], *options))
    assert done.returncode == code
    assert done.stderr.startswith("Error: ")
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


@pytest.mark.slow
def test_debug_shows_the_traceback(visits: Path, process: Command) -> None:
    done = process("count", visits, *stated(OF_USERS, "--epsilon", "-1"), "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ParameterError: --epsilon must be positive and finite, not -1.0." in done.stderr


def test_unknown_word_is_reported_with_the_usage(command: Command) -> None:
    for words, sentence in (
        (("nothing",), "No such command 'nothing'"),
        (("quantile",), "No such command 'quantile'. Did you mean 'quantiles'?"),
        (("plan", "unit"), "Did you mean 'units'?"),
        (("plan", "nothing"), "No such command 'nothing'"),
        (("count",), "Missing argument 'TABLE'"),
        (("count", "x", "--nothing", "1"), "No such option: --nothing"),
        (("count", "x", "--epsilom", "1"), "No such option: --epsilom. Did you mean --epsilon?"),
        (("count", "x", "--n_users", "1"), "No such option: --n_users. Did you mean --n-users?"),
        (("quantiles", "x", "--quantile", "0.5"), "No such option: --quantile. Use --q."),
        (("count", "x", "--user-level"), "No such option: --user-level. Use --unit user."),
        (
            ("count", "x", "--unit", "usr"),
            "Invalid value for '--unit': 'usr' is not one of record, element, user. Did you mean user?",
        ),
        (
            ("fit", "Logistik", "x"),
            "is not one of logistic, linear, huber, quantile, svm, poisson. Did you mean logistic?",
        ),
        (("count", "x", "--unit", "?"), "'?' is not one of record, element, user.\n"),
        (("count", "x", "--epsilon", "1,5"), "'--epsilon': '1,5' is not a number; write 1.5."),
        (("count", "x", "--n-users=1.5"), "'--n-users': '1.5' is not an integer."),
        (("sum", "x", "--bounds", "0", "a"), "'--bounds': 'a' is not a number."),
        (("sum", "x", "--bounds", "0,5", "1,5"), "'--bounds': '0,5' is not a number; write 0.5."),
        (("count", "x", "--top", "0"), "'--top': It must be at least 1."),
    ):
        done = command(*words)
        assert done.returncode == 2
        assert sentence in done.stderr
        assert done.stderr.startswith("Usage: ")


def test_a_warning_is_one_sentence(visits: Path, command: Command) -> None:
    promise = ("--user", "person", "--unit", "user", "--epsilon", "2", "--delta", "0.5")
    done = command("count", visits, *promise, "--n-users", "300", "--noise", "gaussian")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("Warning: ")
    assert len(done.stderr.strip().splitlines()) == 1
