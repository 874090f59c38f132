"""Parameters read from source equal the function's: names, types and defaults."""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from numpy import ndarray

import dpgrain as dg
from dpgrain import learn, statistics
from dpgrain.learn.estimator_names import ESTIMATORS
from dpgrain.optimize import Solver
from dpgrain.publishing.parameters import docstring, parameters_of

DOORS: dict[tuple[str, str], Any] = {
    **{(home, name): getattr(dg, name) for name, home in statistics.OFFERED.items()},
    ("dpgrain.means.user_mean", "mean_of_users"): dg.mean_of_users,
    ("dpgrain.choices.select", "select"): dg.select,
    **{("dpgrain.learn.estimators", name): getattr(learn, name) for name in ESTIMATORS.values()},
}


def known(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        return frozenset(map(known, get_args(hint)))
    if get_args(hint) and get_origin(hint) not in (ndarray, Solver):
        return (get_origin(hint), *map(known, get_args(hint)))
    if isinstance(hint, list):
        return tuple(map(known, hint))
    hint = get_origin(hint) or hint
    name = hint.__name__ if isinstance(hint, type) else hint
    return "ndarray" if name == "NDArray" else name


@pytest.mark.parametrize(("home", "name"), DOORS)
def test_source_shows_the_parameters_of_a_function(home: str, name: str) -> None:
    read, hints = parameters_of(home, name), get_type_hints(DOORS[home, name])
    taken = inspect.signature(DOORS[home, name]).parameters
    assert list(read) == list(taken)
    for each, one in taken.items():
        assert known(read[each].hint) == known(hints[each]), each
        assert read[each].default == one.default or each == "algorithm", each
        assert read[each].text, each


def test_method_is_read_without_its_positional_names() -> None:
    pairs = parameters_of("dpgrain.tables.table", "UserTable.join")["pairs"]
    assert list(parameters_of("dpgrain.tables.table", "UserTable.join")) == ["columns", "pairs"]
    assert (pairs.hint, pairs.default, pairs.required) == (int, 1, False)
    assert pairs.help.startswith("The maximum number of a person's rows in the other table")


def test_docstring_belongs_to_the_function() -> None:
    first = docstring("dpgrain.statistics.moments", "mean").partition("\n")[0]
    assert first == (dg.mean.__doc__ or "").partition("\n")[0]


def test_nothing_is_imported(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "costly.py").write_text(
        "raise SystemExit\nfrom typing import Literal\nSIZE = 3\nWord = Literal['a', 'b']\n"
        "def of(x: Word, size: int = SIZE, *, other: Unknown | None = None): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    made = parameters_of("costly", "of")
    assert get_args(made["x"].hint) == ("a", "b")
    assert made["size"].default == 3
    assert made["x"].required
    assert "costly" not in sys.modules
