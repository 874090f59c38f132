"""Calls of everything public, made odd: valid ones are those of its docstring, with odd arguments.

Which names are public is asked of the packages, and how each is called of its example, so that a new
public function is called here without a line of its own.
"""

from __future__ import annotations

import doctest
import inspect
import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import cache
from importlib import import_module
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st
from tests.fuzz.watch import CANARY, OwnError

from dpgrain import Budget
from dpgrain.accounting import Loss

#: The packages whose names are public.
ROOMS = (
    "dpgrain",
    *(f"dpgrain.{room}" for room in ("accounting", "learn", "means", "noise", "optimize")),
    *(f"dpgrain.{room}" for room in ("papers", "planning", "shuffle", "datasets")),
)


class Odd:
    """An object of a class that nobody knows."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Whatever is passed is taken."""


def _fails(*_: Any, **__: Any) -> Any:
    raise OwnError


def _endless() -> list[Any]:
    result: list[Any] = []
    result.append(result)
    return result


#: Odd values, by a name that shows in the example that fails.
_PLAIN: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        7,
        0.5,
        3.7,
        -0.0,
        1e-320,
        1e-9,
        1e9,
        1e308,
        math.inf,
        -math.inf,
    ),
    *(2**31, 2**63, -(2**63), 2**64, 10**30, 1j, Decimal("0.5"), Fraction(1, 3), date(2025, 1, 1)),
    *("", "auto", "a", "who", "x", "\0", "\ud800", "'; --", "1", b"x", ...),
    *([], (), {}, [1], [[]], (0, 1), (1, 0), ("a", "b"), {"a": 1}, {1: [2]}, {3}),
)
ODD: dict[str, Any] = {
    **{repr(value): value for value in _PLAIN},
    "10**400": 10**400,
    "nan": math.nan,
    "a long text": "x" * 5000,
    "[nan]": [math.nan],
    "[None, 1]": [None, 1],
    "a list in itself": _endless(),
    "range(3)": range(3),
    "a class": Odd,
    "an odd object": Odd(),
    "a function": lambda *args, **kwargs: 1,
    "a function that fails": _fails,
    "np.float64(nan)": np.float64(math.nan),
    "np.float32(0.5)": np.float32(0.5),
    "np.int8(3)": np.int8(3),
    "np.array(0.5)": np.array(0.5),
    "np.array([])": np.array([]),
    "ones": np.ones(3),
    "a matrix": np.eye(2),
    "three axes": np.zeros((1, 1, 1)),
    "not a time": np.datetime64("NaT"),
    "text as objects": np.array([CANARY, None, 3.5], dtype=object),
    "many names": ["ann"] * 100,
    "ragged": [["a"], [1, 2]],
    "a series": pd.Series([math.nan, CANARY], name="who"),
    "a frame": pd.DataFrame({"a": [1, CANARY], "b": [None, math.inf]}),
    "a table": pa.table({"who": [CANARY, None], "x": [math.nan, 1.0]}),
    "no rows": pa.table({"who": pa.array([], pa.string()), "x": pa.array([], pa.float64())}),
}
# Values of what states how much work is asked for: any number is right, and many take long.
_AMOUNTS = frozenset(
    {
        *(
            "seconds",
            "draws",
            "runs",
            "size",
            "rounds",
            "dimension",
            "dim",
            "most",
            "count",
            "mean",
        ),
        *("readers", "trials", "periods", "cells", "strength", "folds", "coordinates", "k"),
    }
)
_SMALL = ("None", "True", "0", "1", "-1", "0.5", "nan", "'a'", "[1]", "2", "7")


@dataclass(frozen=True)
class Target:
    """Something that is called: a public function or class, or a method of such a class.

    Args:
        name: the name of the method; empty for the public thing itself.
        code: the code that runs when it is called.
        parameters: its parameters.
    """

    name: str
    code: CodeType | None
    parameters: tuple[inspect.Parameter, ...]


@dataclass(frozen=True)
class Example:
    """A valid call in a docstring: arguments by their parameters, of a method with its instance."""

    target: Target
    arguments: Mapping[str, Any]


def _is_kind(value: Any) -> bool:
    """Whether a public name is a kind of things, of which there are none of its own."""
    return isinstance(value, type) and (
        inspect.isabstract(value)
        or getattr(value, "_is_protocol", False)
        or issubclass(value, BaseException)
    )


def public() -> dict[str, Any]:
    """What is public and can be called, by the name under which it is found first."""
    found: dict[str, Any] = {}
    for room in ROOMS:
        package = import_module(room)
        for name in package.__all__:
            value = getattr(package, name)
            is_new = all(value is not other for other in found.values())
            is_called = inspect.isroutine(value) or isinstance(value, type)
            if is_called and is_new and not _is_kind(value):
                found[f"{room}.{name}"] = value
    return {
        name: value for name, value in found.items() if name not in _BASES and _targets(name, value)
    }


def _target(name: str, value: Any) -> Target | None:
    """The target of a function, a class or a method."""
    code = getattr(value, "__init__") if isinstance(value, type) else value  # noqa: B009
    code = getattr(inspect.unwrap(code), "__code__", None)
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    return Target(name, code, tuple(part for part in found if part.name != "self"))


def _targets(name: str, value: Any) -> list[Target]:
    """A public thing, and the methods by which it is used."""
    named = [] if is_made(name) else [("", value)]
    if isinstance(value, type):
        members = inspect.getmembers(value, inspect.isfunction)
        named += [
            (name, member)
            for name, member in members
            if name in _METHODS
            and value not in (Budget, Loss)
            and member.__module__.startswith("dpgrain")
        ]
    return [target for name, each in named if (target := _target(name, each)) is not None]


# Public classes whose objects functions of the library make: they are given nothing odd when they are
# made, and are used by their methods.
_MADE = frozenset(
    {
        *(
            "Audit",
            "Budget",
            "Choice",
            "Estimates",
            "FileAudit",
            "Histogram",
            "Holdings",
            "MeanOfUsers",
            "Plan",
        ),
        *("PlannedReleases", "Releases", "SharedTable", "UserTable"),
        *("accounting.Asked", "accounting.Calibration", "accounting.Loss"),
        *("learn.Accuracy", "learn.Auc", "learn.Band", "learn.Evidence", "learn.History"),
        *("learn.Intervals", "learn.Minimum", "learn.R2"),
        *("means.Candidate", "means.Method", "means.Problem", "means.Vectors"),
        *("papers.Accelerated", "papers.MeanRelease", "papers.PanPrivateRounds", "papers.Phase"),
        *(
            "papers.Program",
            "papers.Stage",
            "papers.Task",
            "papers.TypicalRecords",
            "papers.Around",
        ),
        *("papers.GradientMapping", "papers.RegularisedPhases", "optimize.RandomIterate"),
        *("planning.ErrorPlan", "planning.RecurrentPlan", "planning.Row", "planning.Schedule"),
        *("planning.UnitErrors", "planning.UnitsPlan"),
        *("shuffle.Analyzer", "shuffle.Arrivals", "shuffle.Bag", "shuffle.BlindAnalyzer"),
        *(
            "shuffle.BlindRandomizer",
            "shuffle.BlindShuffler",
            "shuffle.Dropped",
            "shuffle.Estimate",
        ),
        *("shuffle.Randomizer", "shuffle.Shares", "shuffle.Shuffler"),
    }
)
# Methods by which people use public objects; where models predict, errors are scikit-learn's.
_METHODS = frozenset(
    {
        *(
            "where",
            "derive",
            "filter",
            "per_user",
            "with_cells",
            "with_days",
            "join",
            "join_public",
        ),
        *("charge", "rehearse", "add", "renew", "left", "epsilon", "delta", "tradeoff", "profile"),
        *("largest", "pivot", "write", "save", "load", "min_people", "coarser", "fit", "query"),
        *("confidence_intervals", "randomizer", "shuffler"),
        *("analyzer", "simulate", "event_with", "guarantee_with", "receive", "estimate", "report"),
        *("take", "from_json", "of_messages", "from_bytes"),
    }
)


def is_made(name: str) -> bool:
    """Whether objects of a public class come from functions of the library alone."""
    return name.removeprefix("dpgrain.") in _MADE


# Whose docstrings show how these are made, or called.
_SHOWN_BY = {"dpgrain.learn.Band": "dpgrain.learn.Auc"}
# Bases of public classes, of which there are no instances of their own.
_BASES = ("dpgrain.learn.LinearModel", "dpgrain.means.Central")
# Examples of one target that are kept.
_MOST = 4


class _Recorder:
    """Notes the arguments of calls while the examples of docstrings run."""

    def __init__(self, value: Any, targets: Sequence[Target]) -> None:
        self.value = value
        self.found: dict[str, list[Example]] = {}
        self._of = {target.code: target for target in reversed(targets) if target.code}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        target = self._of.get(frame.f_code) if event == "call" else None
        if target is None or len(self.found.get(target.name, ())) == _MOST:
            return
        values = inspect.getargvalues(frame)
        given = {name: values.locals[name] for name in values.args}
        if values.varargs:
            given[f"*{values.varargs}"] = values.locals[values.varargs]
        if values.keywords:
            given |= values.locals[values.keywords]
        if isinstance(self.value, type):
            own = given.get("self")
            if target.name and not isinstance(own, self.value):
                return
            if not target.name:
                if type(own) is not self.value:
                    return
                del given["self"]
        self.found.setdefault(target.name, []).append(Example(target, given))

    def run(self, shown: Any) -> None:
        """Run the examples of a docstring."""
        whole = dict(vars(sys.modules[shown.__module__]))
        test = doctest.DocTestParser().get_doctest(shown.__doc__ or "", whole, "", None, None)
        sys.setprofile(self)
        try:
            doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None, clear_globs=False)
        finally:
            sys.setprofile(None)


@cache
def examples(name: str) -> tuple[Example, ...]:
    """The calls of a public thing and of its methods in its docstrings."""
    value = public()[name]
    targets = _targets(name, value)
    recorder, shown = _Recorder(value, targets), [value]
    shown += [getattr(value, target.name) for target in targets if target.name]
    if name in _SHOWN_BY:
        shown.append(public()[_SHOWN_BY[name]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each in shown:
            recorder.run(each)
    is_bare = isinstance(value, type) and not inspect.isfunction(getattr(value, "__init__"))  # noqa: B009
    if is_bare and any(not target.name for target in targets):
        # Nothing is given to what is made of nothing.
        recorder.found[""] = [Example(Target("", None, ()), {})]
    return tuple(example for found in recorder.found.values() for example in found)


@dataclass(frozen=True)
class Call:
    """A call of something public: one of its examples, with other values of some parameters.

    Args:
        name: its name.
        example: the number of the example.
        changed: parameter → the name of an odd value; None where the argument is left out.
    """

    name: str
    example: int
    changed: Mapping[str, str | None]

    def __call__(self) -> Any:
        """Make the call, and let what comes out say what it is."""
        example = examples(self.name)[self.example]
        given = dict(example.arguments)
        for name, odd in self.changed.items():
            if odd is None:
                given.pop(name, None)
            else:
                given[name] = ODD[odd]
        call = public()[self.name]
        if example.target.name:
            call = getattr(given.pop("self"), example.target.name)
        more = [given.pop(name) for name in list(given) if name.startswith("*")]
        rest = [each for part in more if isinstance(part, list | tuple) for each in part]
        ahead = [
            given.pop(part.name)
            for part in example.target.parameters
            if part.name in given
            and (
                part.kind is part.POSITIONAL_ONLY
                or (rest and part.kind is part.POSITIONAL_OR_KEYWORD)
            )
        ]
        result = call(*ahead, *rest, **given)
        return repr(result), str(result), result


@st.composite
def calls(draw: st.DrawFn, name: str) -> Call:
    """Calls of something public, and of its methods, with one to three odd arguments."""
    shown = examples(name)
    number = draw(st.integers(0, len(shown) - 1))
    parts = shown[number].target.parameters
    names = [
        part.name for part in parts if part.kind not in (part.VAR_KEYWORD, part.VAR_POSITIONAL)
    ]
    needed = {part.name: part.default is part.empty for part in parts}
    changed: dict[str, str | None] = {}
    if names:
        for each in draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)):
            odd = _SMALL if each in _AMOUNTS else tuple(ODD)
            leave_out = () if needed[each] else (None,)
            changed[each] = draw(st.sampled_from((*leave_out, *odd)))
    return Call(name, number, changed)
