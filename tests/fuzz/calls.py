"""Malformed calls of the public API: the valid calls of docstrings, with malformed arguments.

Public names are read from the packages, and calls from their examples, so that a new public
function is called here without an extra line.
"""

from __future__ import annotations

import contextlib
import doctest
import inspect
import math
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator
from tests.fuzz.shown import SHOWN
from tests.fuzz.watch import CANARY, OwnError, left_behind, watched

from dpgrain._lazy_import import lazy_import
from dpgrain.errors import DpgrainError

if TYPE_CHECKING:
    from tests.fuzz import networks
else:
    networks = lazy_import("tests.fuzz.networks")

ROOMS = (
    "dpgrain",
    *(f"dpgrain.{room}" for room in ("accounting", "learn", "means", "noise", "optimize")),
    *(f"dpgrain.{room}" for room in ("papers", "planning", "shuffle", "datasets")),
)
NETWORKS = ("dpgrain.torch", "dpgrain.torch.losses")


class Odd:
    def __init__(self, *_: Any, **__: Any) -> None:
        """Any arguments are accepted."""


def _fails(*_: Any, **__: Any) -> Any:
    raise OwnError


def _endless() -> list[Any]:
    result: list[Any] = []
    result.append(result)
    return result


#: Malformed values, by a name that a failing example shows.
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
# Values for amounts of work: any number is valid, and many take long.
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


def _is_of_networks(name: str) -> bool:
    """Whether a public name is one of networks, which change what they are given."""
    return name.startswith(NETWORKS)


def odd_for(name: str) -> Mapping[str, Any]:
    """The malformed values for a public name, by name."""
    return {**ODD, **networks.ODD} if _is_of_networks(name) else ODD


def _shown_for(name: str) -> Mapping[str, Callable[[], object]]:
    """Calls for methods without an example, by class."""
    return networks.SHOWN if _is_of_networks(name) else SHOWN


def _is_amount(name: str, parameter: str) -> bool:
    """Whether a parameter of a public name sets an amount of work."""
    return parameter in (networks.AMOUNTS if _is_of_networks(name) else _AMOUNTS)


@dataclass(frozen=True)
class Target:
    """A callable: a public function or class, or a method of such a class.

    Args:
        name: the name of the method; empty for the public thing itself.
        code: the code that runs when it is called.
        own: the name of the parameter that is the instance; empty where there is none.
    """

    name: str
    code: CodeType | None
    parameters: tuple[inspect.Parameter, ...]
    own: str = ""


@dataclass(frozen=True)
class Example:
    """A valid call in a docstring: arguments by their parameters, of a method with its instance.

    Args:
        arguments: the arguments, which the call may have changed since.
        number: number of its earlier calls in the code.
    """

    target: Target
    arguments: Mapping[str, Any]
    shown: Callable[[], object]
    number: int

    def anew(self, whose: Any) -> Mapping[str, Any]:
        """Return the arguments before the call, by running the example up to it again."""
        recorder = _Recorder(whose, [self.target], until=self.number)
        recorder.run(self.shown)
        found = recorder.found[self.target.name]
        assert len(found) == self.number + 1, "it is called otherwise the second time"
        return found[-1].arguments


def _nothing() -> None:
    """Show nothing."""


class _Reached(KeyboardInterrupt):  # the docstring runner stops at no other error
    """The call of the example is about to begin."""


def _is_kind(value: Any) -> bool:
    """Whether a public name is an abstract type without direct instances."""
    return isinstance(value, type) and (
        inspect.isabstract(value)
        or getattr(value, "_is_protocol", False)
        or issubclass(value, BaseException)
    )


@cache
def public(rooms: tuple[str, ...] = ROOMS) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for room in rooms:
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


def _value(name: str) -> Any:
    room, _, last = name.rpartition(".")
    return getattr(import_module(room), last)


def _target(name: str, value: Any, own: str = "") -> Target | None:
    code = getattr(value, "__init__") if isinstance(value, type) else value  # noqa: B009
    code = getattr(inspect.unwrap(code), "__code__", None)
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    return Target(name, code, tuple(part for part in found if part.name != own), own)


def _methods(value: type) -> Iterator[Target]:
    """The public methods of a class that take something."""
    for name in dir(value):
        member, stored = getattr(value, name), inspect.getattr_static(value, name)
        if (name.startswith("_") and name not in _CALLED) or not inspect.isroutine(member):
            continue
        if not str(getattr(member, "__module__", "")).startswith("dpgrain"):
            continue
        own = ""
        if inspect.isfunction(member) and not isinstance(stored, staticmethod):
            own = next(iter(inspect.signature(member).parameters), "")
        target = _target(name, member, own)
        if target is not None and target.parameters:
            yield target


def _targets(name: str, value: Any) -> list[Target]:
    itself = None if is_made(name) else _target("", value)
    methods = _methods(value) if isinstance(value, type) else ()
    own, apart = name.removeprefix("dpgrain."), {**_LONG, **_WITHIN}
    within = {each for begins, names in apart.items() if own.startswith(begins) for each in names}
    used = (each for each in methods if each.name not in within)
    return [each for each in (itself, *used) if each is not None]


# Public classes that only the library constructs: they are not constructed with malformed
# arguments, but their methods are called.
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
            "Marginals",
            "MeanOfUsers",
            "Plan",
            "SumsNoise",
        ),
        *("PlannedReleases", "Releases", "SharedTable", "UserTable"),
        *("accounting.Neighbours", "accounting.Calibration", "accounting.Loss"),
        *("learn.Accuracy", "learn.Auc", "learn.Band", "learn.Evidence", "learn.History"),
        *("learn.Intervals", "learn.Minimum", "learn.R2"),
        *("means.Candidate", "means.Method", "means.Problem", "means.Vectors"),
        *("papers.Accelerated", "papers.MeanRelease", "papers.PanPrivateRounds", "papers.Phase"),
        *(
            "papers.Program",
            "papers.Stage",
            "papers.Task",
            "papers.TypicalRecords",
            "papers.SmoothedLoss",
        ),
        *("papers.GradientMapping", "papers.RegularisedPhases", "optimize.RandomIterate"),
        *(
            "planning.ErrorPlan",
            "planning.RecurrentPlan",
            "planning.PlanRow",
            "planning.QueryTable",
            "planning.ReleaseSchedule",
        ),
        *("planning.UnitErrors", "planning.UnitsPlan"),
        *("shuffle.Analyzer", "shuffle.PoissonNoise", "shuffle.Bag", "shuffle.Dropped"),
        *("shuffle.Estimate", "shuffle.Randomizer", "shuffle.Shuffler"),
    }
)


def is_made(name: str) -> bool:
    """Whether only library functions construct a public class."""
    return name.removeprefix("dpgrain.") in _MADE


# Names of methods that people call without seeing them.
_CALLED = ("__call__", "__contains__", "__getitem__")
# Methods of objects that take seconds to make.
_LONG: Mapping[str, frozenset[str]] = {
    "Audit": frozenset({"plot"}),
    "FileAudit": frozenset({"__getitem__"}),
    "torch.Training": frozenset({"plot", "report"}),
}
# Methods that the library calls on its own objects with checked arguments, by the prefix of the
# class names: events, losses, means, solvers, domains and recipes, and the interfaces of tables,
# units and guarantees.
_WITHIN: Mapping[str, frozenset[str]] = {
    "AnyDays": frozenset({"from_dict", "meetings", "records", "starts", "window_starts"}),
    "AnyHours": frozenset({"from_dict", "meetings", "records", "starts", "window_starts"}),
    "AutoClip": frozenset({"edges", "shares"}),
    "AutoRange": frozenset(
        {
            *("balanced_bounds", "choose", "clamped", "credible_counts", "is_detectable", "parts"),
            "spread",
        }
    ),
    "Budget": frozenset({"charge", "require_charged"}),
    "Elements": frozenset({"cell", "of_keys"}),
    "LastingPromise": frozenset({"from_dict", "meetings", "price", "reach", "together"}),
    "SharedTable": frozenset({"create", "of", "pairs", "per_user", "refuse", "with_expressions"}),
    "UserTable": frozenset(
        {
            *("are_keys", "date_format", "drops", "has", "is_integer", "is_month", "is_whole"),
            *("data_column", "label_key", "key_type", "keys_of"),
            *("needed", "resolve_partition", "read_as", "require", "require_key"),
            *(
                "require_new",
                "require_numbers",
                "replaced",
                "suggest",
                "label_value",
                "require_readable",
            ),
            "with_expressions",
        }
    ),
    "accounting.": frozenset(
        {
            *("best_at", "beside", "bounds", "cost", "from_curve", "is_narrower", "loss", "move"),
            *("of", "one_sided", "or_else", "passes", "ratio", "renyi_at", "sensitivity"),
            "steps",
        }
    ),
    "accounting.Loss": frozenset({"delta", "deltas", "epsilon", "tradeoff"}),
    "learn.": frozenset(
        {
            *("adopt", "config", "loss", "margins", "parameter_names"),
            *("read", "restore"),
        }
    ),
    "means.": frozenset(
        {
            *("calibrate", "choices", "clipped_sum", "expected", "find", "mapped", "multiplier"),
            "near",
            *("round_radius", "run", "scaled", "start", "vectors"),
        }
    ),
    "noise.": frozenset({"words"}),
    "optimize.": frozenset(
        {
            *("__call__", "along", "at", "curvature", "draw", "finish", "gradient", "init"),
            *("margins", "point", "project", "proximal", "proximal_slope", "slope", "step"),
            *("value", "weight"),
        }
    ),
    "papers.": frozenset(
        {
            *("__call__", "around", "batch_index", "calibrate", "calibration", "care", "draw"),
            *("excess", "finish", "first", "gradient", "init", "noise", "of", "plan", "point"),
            *("radius_for", "stage", "start", "step", "value", "weight"),
        }
    ),
    **{f"shuffle.{kind}Sum": frozenset({"estimate"}) for kind in ("Poisson", "Scalar", "Vector")},
    "Releases": frozenset({"__getitem__"}),
    "torch.PrivacyEngine": frozenset({"attach"}),
    "torch.Trainer": frozenset(
        {
            *(
                "create_optimizer",
                "floating_point_ops",
                "get_eval_dataloader",
                "get_test_dataloader",
            ),
            *("log", "num_examples", "training_step"),
        }
    ),
    "shuffle.": frozenset(
        {
            *(
                "came",
                "count",
                "counts",
                "decoded",
                "devices_of",
                "event",
                "facts_with",
                "is_counted",
            ),
            *("for_variance", "largest", "law", "messages", "of", "from_messages", "plus", "take"),
            *("combine", "fits", "from_bytes", "split", "variation", "within"),
        }
    ),
}
# The docstrings of these show their construction or call.
_SHOWN_BY = {"dpgrain.learn.Band": "dpgrain.learn.Auc"}
# Bases of public classes without direct instances.
_BASES = ("dpgrain.learn.LinearModel", "dpgrain.means.Central")
# Warnings of hypothesis about tests that share a folder, or draw slowly.
_SHARED = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)
# Examples stored per target.
_MOST = 4
# Packages that call methods of the library themselves, without an example.
_CALLERS = "transformers"


class _Recorder:
    def __init__(self, value: Any, targets: Sequence[Target], until: int | None = None) -> None:
        self.value = value
        self.found: dict[str, list[Example]] = {}
        self._of: dict[CodeType, list[Target]] = defaultdict(list)
        for target in targets:
            if target.code:
                self._of[target.code].append(target)
        self._names = {target.name for target in targets if target.code}
        self._until = until
        self._shown: Callable[[], object] = _nothing
        self._is_short = False
        self._calls: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            for target in self._of.get(frame.f_code, ()):
                self._note(target, frame)

    def _note(self, target: Target, frame: FrameType) -> None:
        """Note a call of a target, if few are known."""
        if self._until is None and len(self.found.get(target.name, ())) == _MOST:
            return
        if str(frame.f_back and frame.f_back.f_globals.get("__name__")).startswith(_CALLERS):
            return
        values = inspect.getargvalues(frame)
        given = {name: values.locals[name] for name in values.args}
        if values.varargs:
            given[f"*{values.varargs}"] = values.locals[values.varargs]
        if values.keywords:
            given |= values.locals[values.keywords]
        if target.name and target.own:
            if not isinstance(given[target.own], self.value):
                return
        elif isinstance(self.value, type) and not target.name:
            if type(given.get("self")) is not self.value:
                return
            del given["self"]
        given.pop("cls", None)
        number = self._calls[target.name]
        self._calls[target.name] += 1
        example = Example(target, given, self._shown, number)
        self.found.setdefault(target.name, []).append(example)
        if number == self._until or (self._is_short and self.found.keys() == self._names):
            raise _Reached

    def run(self, example: Callable[[], object], *, is_short: bool = False) -> None:
        """Run an example.

        Args:
            is_short: True if it ends as soon as each has been called.
        """
        self._shown, self._is_short = example, is_short
        self._calls.clear()
        sys.setprofile(self)
        try:
            with contextlib.suppress(_Reached):
                example()
        finally:
            sys.setprofile(None)


def _docstring(shown: Any) -> None:
    """Run the examples of a docstring."""
    whole = dict(vars(sys.modules[shown.__module__]))
    test = doctest.DocTestParser().get_doctest(shown.__doc__ or "", whole, "", None, None)
    doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None, clear_globs=False)


@cache
def _shows(rooms: tuple[str, ...]) -> Mapping[CodeType, str]:
    """The first class that has a method, which must show it: others inherit it."""
    of: dict[CodeType, str] = {}
    known = public(rooms)
    for name in dict.fromkeys([*(name for name in SHOWN if name in known), *known]):
        for target in _targets(name, known[name]):
            if target.name and target.code:
                of.setdefault(target.code, name)
    return of


def not_shown(name: str) -> list[str]:
    """The methods of a class that neither a docstring nor ``SHOWN`` calls, and no other class has."""
    found = {example.target.name for example in examples(name)}
    shows = _shows(NETWORKS if _is_of_networks(name) else ROOMS)
    return [
        target.name
        for target in _targets(name, _value(name))
        if target.code and shows.get(target.code) == name and target.name not in found
    ]


@cache
def examples(name: str) -> tuple[Example, ...]:
    """The calls of a public thing and of its methods in its docstrings."""
    value, shown = _value(name), _shown_for(name)
    targets = _targets(name, value)
    recorder, documented = _Recorder(value, targets), [value]
    documented += [getattr(value, target.name) for target in targets if target.name]
    if name in _SHOWN_BY:
        documented.append(_value(_SHOWN_BY[name]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name in shown:
            recorder.run(shown[name], is_short=_is_of_networks(name))
        for each in documented:
            recorder.run(partial(_docstring, each), is_short=_is_of_networks(name))
    is_bare = isinstance(value, type) and not inspect.isfunction(getattr(value, "__init__"))  # noqa: B009
    if is_bare and any(not target.name for target in targets):
        recorder.found[""] = [Example(Target("", None, ()), {}, _nothing, 0)]
    return tuple(example for found in recorder.found.values() for example in found)


def _as_it_was(whose: Any) -> Any:
    """A copy of a model, because a fit changes it; anything else unchanged."""
    if not isinstance(whose, BaseEstimator):
        return whose
    copy = object.__new__(type(whose))
    vars(copy).update(vars(whose))
    return copy


def _owned(value: Any) -> Any:
    """A callback, with errors marked as the caller's; anything else unchanged."""
    if not callable(value) or isinstance(value, type):
        return value

    def owned(*args: Any, **named: Any) -> Any:
        try:
            return value(*args, **named)
        except DpgrainError:
            raise
        except Exception as error:
            raise OwnError from error

    return owned


@dataclass(frozen=True)
class Call:
    """A call of something public: one of its examples, with other values of some parameters.

    Args:
        example: the number of the example.
        changed: parameter → the name of a malformed value; None if the argument is omitted.
    """

    name: str
    example: int
    changed: Mapping[str, str | None]

    def __call__(self) -> Any:
        """Make the call, and represent its result as text."""
        example, call = examples(self.name)[self.example], _value(self.name)
        given = dict(example.anew(call) if _is_of_networks(self.name) else example.arguments)
        for name, odd in self.changed.items():
            if odd is None:
                given.pop(name, None)
            else:
                given[name] = odd_for(self.name)[odd]
        if example.target.name:
            whose = _as_it_was(given.pop(example.target.own)) if example.target.own else call
            call = getattr(whose, example.target.name)
        if _is_of_networks(self.name):
            given |= {name: _owned(given[name]) for name in given if name in networks.FUNCTIONS}
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
    """Calls of a public name, and of its methods, with one to three malformed arguments."""
    shown = examples(name)
    number = draw(st.integers(0, len(shown) - 1))
    target, given = shown[number].target, shown[number].arguments
    parts = target.parameters
    names = [
        part.name for part in parts if part.kind not in (part.VAR_KEYWORD, part.VAR_POSITIONAL)
    ]
    needed = {part.name: part.default is part.empty for part in parts}
    # Arguments with the caller's own names, or passed on to others.
    more = [each for each in given if each not in needed and not each.startswith("*")]
    names += [each for each in more if each != target.own]
    changed: dict[str, str | None] = {}
    if names:
        for each in draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)):
            is_amount = _is_amount(name, each)
            odd = _SMALL if is_amount else tuple(odd_for(name))
            # One minute is the default limit of calls with a requested duration.
            lasts = is_amount and (_is_of_networks(name) or each == "seconds")
            is_needed = needed.get(each, True) or lasts
            leave_out = () if is_needed else (None,)
            changed[each] = draw(st.sampled_from((*leave_out, *odd)))
    return Call(name, number, changed)


def answers_or_refuses(
    name: str, each: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Call a public name with malformed arguments."""
    lacking = not_shown(name)
    assert not lacking, f"{name}: {lacking} are not called in docstrings; see tests/fuzz/shown.py"
    if not examples(name):
        assert is_made(name), f"{name} is not called in its docstring: give it an example"
        return
    (temporary := tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    @settings(max_examples=each, suppress_health_check=_SHARED, database=None)
    @given(st.data())
    def call(data: st.DataObject) -> None:
        watched(data.draw(calls(name)))

    call()
    assert not left_behind(temporary)


def found(name: str, method: str, parameter: str, odd: str) -> Any:
    """Make a call of a list of found ones; return its result, or None if it raises."""
    return watched(Call(name, first(name, method), {parameter: odd}))


def first(name: str, method: str) -> int:
    """The number of the first example of a public thing, or of a method."""
    return [example.target.name for example in examples(name)].index(method)
