"""Queries are stored without rows, read back for rows, and published with the same result."""

from __future__ import annotations

import ast
import copy
import json
import math
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date, datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.claims.canaries import Canaries
from tests.claims.golden import compare, observe
from tests.claims.publishers import PUBLISHERS, PURE, People, publishers
from tests.fuzz.watch import CANARY, quotes
from tests.promises import Publisher
from tests.refusals import refuses
from tests.rooms import SOURCE

import dpgrain as dg
from dpgrain import learn, papers, shuffle
from dpgrain.optimize import Ball, Constant, Huber, Last, Sgd
from dpgrain.publishing.call import Call
from dpgrain.words.plan_text import budget_text

PROMISE: Mapping[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6}
VISITS = dg.read(pa.table({"who": [1, 2, 2], "page": ["a", "b", "a"]}), user="who")
STORED = [name for name in PUBLISHERS if name != "dpgrain.select"]
ENDS = (0, -1)
# Paths of these functions with their own class of query.
MORE = ("bins", "truncated", "tuned")
CASES = [*product(STORED, ENDS), *product(MORE, ENDS[:1])]
# … except for impossible combinations.
EXCEPT: Mapping[str, Mapping[str, Any]] = {
    "dpgrain.count": {"unit": dg.Element("item"), "estimate_clipping": False},
    "dpgrain.sum": {"unit": dg.Element("item"), "estimate_clipping": False},
    "dpgrain.histogram": {"clip": 3.0, "unit": dg.User(), "estimate_clipping": False},
    "dpgrain.top": {"domain": None, "method": "gaussian", "unit": dg.User()},
    "dpgrain.learn.minimise": {"sampling_rate": None, "unit": dg.User()},
    "dpgrain.mean_of_users": {"method": "recentred"},
    "dpgrain.mean_of_users, pure": {"radius": 0.5},
    "estimators": {"sampling_rate": None, "unit": dg.User()},
}


def more(people: People) -> dict[str, Publisher]:
    top, histogram = partial(people.table, dg.top, "item"), partial(people.table, dg.histogram, "x")
    fit = partial(people.fit, "LogisticRegression", rounds=2)
    return {
        "bins": Publisher(histogram, {"edges": ([-1.0, 0.0, 1.0],), "n_users": (None,)}),
        "truncated": Publisher(top, {"method": ("truncated",), "n_users": (None,)}),
        "tuned": Publisher(fit, {"tune": ({"clip": [0.1, 1.0]},), "n_users": (50,)}),
    }


def ask(
    name: str, people: People, end: int = 0, seed: int | None = None
) -> tuple[dg.Query[Any], Mapping[str, Any]]:
    publisher = {**publishers(people), **more(people)}[name]
    options = {option: values[end] for option, values in publisher.options.items()}
    if len(publisher.units) > 1:
        options["unit"] = publisher.units[1 if end else 2]
    options |= EXCEPT.get(name, {}) if end else {}
    # At this ε, items are selected.
    options |= {"epsilon": 4.0, "random_state": seed}
    options |= {} if name in PURE else {"delta": 1e-6}
    calls = []
    with pytest.MonkeyPatch.context() as patch:
        of = Call.create

        def spy(function: str, arguments: Mapping[str, Any]) -> Call | None:
            calls.append(arguments)
            return of(function, arguments)

        patch.setattr(Call, "create", staticmethod(spy))
        query: dg.Query[Any] = publisher.query(**options)
    return query, calls[0]


@pytest.mark.parametrize(("name", "end"), CASES)
def test_a_query_read_back_gives_the_same_release(name: str, end: int, tmp_path: Path) -> None:
    people = Canaries(**vars(People.of(0)), form="Parquet", folder=tmp_path)
    query, _ = ask(name, people, end, seed=7)
    text = json.dumps(query.to_dict(), allow_nan=False)
    # The file is opened again.
    _, arguments = ask(name, people, end)
    inputs = {each: arguments[each] for each in json.loads(text)["inputs"]}
    again = dg.Query.from_dict(json.loads(text), inputs=inputs)
    assert again == query
    assert hash(again) == hash(query)
    assert json.dumps(again.to_dict()) == text
    assert repr(again) == repr(query)
    compare(observe(lambda: dg.publish(again)), observe(lambda: dg.publish(query)), 1e-12)


def test_every_class_of_queries_is_stored_and_read_back() -> None:
    """A choice has a loss of the caller, and a training run a loop: they cannot be stored."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py"))
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    bases = {
        node.name: {ast.unparse(each).partition("[")[0] for each in node.bases} for node in nodes
    }
    known = {"Query"}
    while found := {name for name, own in bases.items() if own & known} - known:
        known |= found
    concrete = {name for name in known if not any(name in own for own in bases.values())}
    stored = {type(ask(name, People.of(0), end)[0]).__name__ for name, end in CASES}
    assert concrete - stored == {"SelectQuery", "RunQuery"}


@pytest.mark.parametrize("name", PUBLISHERS)
def test_no_row_or_path_is_in_a_stored_query(name: str, tmp_path: Path) -> None:
    folder = tmp_path / f"{CANARY} password"
    folder.mkdir()
    query, _ = ask(name, Canaries.some("Parquet", "duckdb", folder))
    assert not quotes(repr(query))
    if name == "dpgrain.select":
        return
    assert not quotes(json.dumps(query.to_dict()))
    assert not quotes(pickle.dumps(query))
    release: Any = dg.publish(query)
    kept = getattr(release, "query_", None) or release.query
    assert not quotes(pickle.dumps(release))
    assert kept["query"] == query.to_dict()["query"]
    assert kept["inputs"] == query.to_dict()["inputs"]


def test_devices_of_a_simulation_are_inputs() -> None:
    """A mask with an entry for each user is not a parameter."""
    protocol = shuffle.VectorSum(
        n_users=200, dim=1, l2_bound=1.0, epsilon=1.0, delta=1e-6, honest_fraction=0.8
    )
    lost, values = np.arange(200) == 7, np.zeros((200, 1))
    query = protocol.query(values, dropped=lost)
    stored = query.to_dict()
    assert stored["inputs"] == {"values": {"columns": 1}, "dropped": {}}
    assert dg.Query.from_dict(stored, {"values": values, "dropped": lost}) == query
    assert protocol.query(values, dropped=1).to_dict()["parameters"]["dropped"] == 1


def test_the_address_of_a_database_is_not_stored() -> None:
    """The schema of a table does not contain its source."""
    secret = f"postgresql://me:{CANARY}@host/visits"

    class Source(type(VISITS.source)):  # type: ignore[misc]
        address = secret

        def __repr__(self) -> str:
            return secret

    source = copy.copy(VISITS.source)
    object.__setattr__(source, "__class__", Source)
    table = VISITS.replaced(source=source)
    assert CANARY in repr(table.source)
    query = dg.count.query(table, **PROMISE)
    shown = (repr(query), json.dumps(query.to_dict()), pickle.dumps(query))
    assert not [each for each in shown if quotes(each)]


@pytest.mark.parametrize("name", ["column_names", "columns", "name", "dtype", "shape"])
def test_schema_contains_no_columns_or_rows_with_reserved_names(name: str) -> None:
    """Frames and series show columns and labels of rows as attributes."""
    frame = pd.DataFrame({name: [CANARY, CANARY], "b": [1.0, 2.0]})
    series = pd.Series([CANARY, CANARY], index=[name, "b"])
    record = np.array([(CANARY, 1.0)], [(name, object), ("b", float)]).view(np.recarray)
    calls = [Call.create("dpgrain.mean_of_users", {"X": each}) for each in (frame, series, record)]
    assert [call and call.inputs["X"] for call in calls] == [{"columns": [name, "b"]}, {}, {}]


def _loss(candidate: float, rows: Any) -> Any:
    return rows - candidate


class _Own(Huber):
    """A loss of the caller."""


UNSTORED: Mapping[str, tuple[str, Callable[[], dg.Query[Any]]]] = {
    "a loss": ("loss", lambda: dg.select.query([0.0], _loss, np.zeros(3), epsilon=1.0)),
    "a partition": (
        "unit",
        lambda: dg.count.query(VISITS, by="page", **{**PROMISE, "unit": dg.Element(str.upper)}),
    ),
    "a path": (
        "unit",
        lambda: dg.count.query(
            VISITS, by="page", **{**PROMISE, "unit": dg.Element(Path("cells.csv"))}
        ),
    ),
    "a generator": (
        "random_state",
        lambda: dg.count.query(VISITS, random_state=np.random.default_rng(1), **PROMISE),
    ),
    "a huge seed": (
        "random_state",
        lambda: dg.count.query(VISITS, random_state=10**5000, **PROMISE),
    ),
    "a type of the caller": (
        "loss",
        lambda: learn.minimise.query(
            _Own(1.0), np.zeros((3, 1)), np.zeros(3), [0.0], solver=_steps(), epsilon=1.0
        ),
    ),
    "a column of rows": (
        "domain",
        lambda: dg.count.query(VISITS, by="page", domain=pd.Series(["a"]), **PROMISE),
    ),
}


def _steps() -> Any:
    return Sgd(Constant(0.1), Ball(2.0), Last())


@pytest.mark.parametrize("what", UNSTORED)
def test_callables_and_objects_of_the_caller_are_not_stored(what: str, tmp_path: Path) -> None:
    (tmp_path / "cells.csv").write_text("page,cell\na,x\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        query = UNSTORED[what][1]()
    for store in (dg.Query.to_dict, pickle.dumps):
        with refuses(UNSTORED[what][0], "to be stored"):
            store(query)
    assert f"{UNSTORED[what][0]}=<" in repr(query)
    assert query == copy.deepcopy(query)
    assert isinstance(dg.publish(query), dg.Choice | dg.Histogram | learn.Minimum)


def stored(**changed: Any) -> dict[str, Any]:
    return {**dg.count.query(VISITS, **PROMISE).to_dict(), **changed}


def with_parameter(**changed: Any) -> dict[str, Any]:
    return stored(parameters={**stored()["parameters"], **changed})


WRONG: Mapping[str, tuple[str, str, Any]] = {
    "another format": ("values", "dpgrain = 1", stored(dpgrain=2)),
    "another field": ("values", "the fields", stored(more=1)),
    "no mapping": ("values", "mapping", [1]),
    "a module": ("query", "antigravity", stored(query="antigravity.fly")),
    "a function that opens rows": ("query", "dpgrain.read", stored(query="dpgrain.read")),
    "a training": ("query", "train", stored(query="dpgrain.torch.train")),
    "a private function": ("query", "query_of", stored(query="dpgrain.releases.query_of")),
    "a method": ("query", "query", stored(query="dpgrain.count.query")),
    "no name": ("query", "[]", stored(query=[])),
    "a parameter": ("parameters", "fast", with_parameter(fast=True)),
    "rows as a parameter": ("parameters", "table", with_parameter(table=[1, 2])),
    "a type of another module": ("parameters", "count", with_parameter(clip={"antigravity.F": {}})),
    "another type": ("parameters", "count", with_parameter(clip={"dpgrain.Fact": {"kind": "x"}})),
    "a malformed value": ("parameters", "count", with_parameter(clip={"mapping": [[1], []]})),
    "an invalid value": ("epsilon", "-1", with_parameter(epsilon=-1)),
    "a missing parameter": ("parameters", "unit", stored(parameters={"epsilon": 1.0})),
    "no inputs": ("inputs", "user", stored(inputs={})),
    "another schema": ("inputs", "who", stored(inputs={"table": {"user": "x"}})),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_unknown_names_and_values_are_rejected(what: str) -> None:
    name, word, values = WRONG[what]
    with refuses(name, word):
        dg.Query.from_dict(values, inputs={"table": VISITS})
    assert "antigravity" not in sys.modules


def test_other_inputs_are_rejected() -> None:
    values = stored()
    for inputs in (
        {},
        {"rows": VISITS},
        {"table": VISITS.where(page=["a"])},
        {"table": pa.table({})},
    ):
        with refuses("inputs"):
            dg.Query.from_dict(values, inputs=inputs)
    derived = VISITS.derive(long="length(page) > 2").filter("page != 'b'")
    cells = VISITS.with_cells("letter", of="page", by={"a": "x"})
    for table in (derived, cells, VISITS.per_user(visits="count()")):
        own = dg.count.query(table, **PROMISE)
        assert dg.Query.from_dict(own.to_dict(), inputs={"table": table}) == own
        with refuses("inputs"):
            dg.Query.from_dict(own.to_dict(), inputs={"table": VISITS})
    for by in ({"a": "y"}, dg.Elements.from_mapping({"a": "x"}, missing="drop")):
        own = dg.count.query(VISITS.with_cells("letter", of="page", by=by), **PROMISE)
        assert own != dg.count.query(cells, **PROMISE)
        with refuses("inputs"):
            dg.Query.from_dict(own.to_dict(), inputs={"table": cells})


def test_an_edited_partition_has_another_name() -> None:
    """A name with an old fingerprint would show that the same cells are protected."""
    unit = dg.Element(dg.Elements.from_mapping({"a": "x", "b": "y"}))
    query = dg.count.query(VISITS, by="page", domain=["a"], **{**PROMISE, "unit": unit})
    values, inputs = query.to_dict(), {"table": VISITS}
    again = dg.Query.from_dict(values, inputs=inputs)
    assert again.plan.guarantee.partition == query.plan.guarantee.partition
    values["parameters"]["unit"]["dpgrain.Element"]["by"]["dpgrain.Elements"]["mapping"] = {
        "mapping": [["a", "b"], ["x", "x"]]
    }
    edited = dg.Query.from_dict(values, inputs=inputs)
    assert edited.plan.guarantee.partition != query.plan.guarantee.partition


def test_pickled_query_has_no_rows_until_bound() -> None:
    query = dg.count.query(VISITS, random_state=1, **PROMISE)
    again = pickle.loads(pickle.dumps(query))
    with refuses("query", "Query.from_dict"):
        dg.publish(again)
    bound = dg.Query.from_dict(again, inputs={"table": VISITS})
    assert dg.publish(bound).value == dg.publish(query).value
    assert copy.copy(query) is copy.deepcopy(query) is query


def test_queries_are_equal_by_parameters_and_schemas() -> None:
    query = dg.count.query(VISITS, **PROMISE)
    other = dg.read(pa.table({"who": [9], "page": ["z"]}), user="who")
    assert query == dg.count.query(other, clip="auto", progress=False, **PROMISE)
    assert query != dg.count.query(VISITS, clip=2.0, **PROMISE)
    assert query != dg.count.query(other.where(page=["z"]), **PROMISE)
    assert query != dg.sum.query(VISITS.derive(one="1 + 0"), "one", **PROMISE)
    assert query != "query"
    for users in ((1, 2), [1, 2], np.ones(2), pa.array([1, 2])):
        fewer, more = (
            papers.typical_records.query(each, epsilon=1.0) for each in (users[:1], users)
        )
        assert fewer == more


PARAMETERS: Mapping[str, Any] = {
    "numbers": [1, -0.5, True, None, "größe", 10**30],
    "infinities": [math.inf, -math.inf],
    "tuples": [(0.0, 1.0), ((),)],
    "keys that are not text": {1: 2.0, (1, 2): "a", None: {}},
    "dates": [date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5)],
    "units": [dg.Record(), dg.User(3, by={"a": 1}), dg.Element("page")],
    "partitions": [dg.Elements.from_mapping({1: "x", 2: None}, missing="drop")],
    "bounds": [dg.AutoClip(share=0.3), dg.AutoRange()],
    "solvers": [_steps(), papers.UserLevelSgd(papers.Known(distance=1.0, lipschitz=1.0))],
}


@pytest.mark.parametrize("what", PARAMETERS)
def test_values_of_parameters_are_read_back(what: str) -> None:
    from dpgrain.publishing.call import _decoded, _encoded

    value = PARAMETERS[what]
    again = _decoded(json.loads(json.dumps(_encoded(value), allow_nan=False)))
    assert again == value
    assert repr(again) == repr(value)


def test_numpy_values_are_read_back_as_plain_ones() -> None:
    from dpgrain.publishing.call import _decoded, _encoded

    again = _decoded(_encoded([np.float32(0.5), np.int8(3), np.array([[1.5, 2.0]])]))
    assert again[:2] == [0.5, 3]
    assert again[2].tolist() == [[1.5, 2.0]]
    week = dg.Elements.from_period("week", missing="drop")
    assert _decoded(_encoded(week)).name == week.name
    assert _decoded(_encoded(week)).cell("2026-01-07") == "2026-01-05"


def test_changing_a_list_later_does_not_change_the_query() -> None:
    domain = ["a"]
    query = dg.count.query(VISITS, by="page", domain=domain, **PROMISE)
    domain.append("b")
    assert query.to_dict()["parameters"]["domain"] == ["a"]
    query.to_dict()["parameters"]["domain"].append("b")
    assert query.to_dict()["parameters"]["domain"] == ["a"]


def test_another_promise_is_stored_with_the_query() -> None:
    query = dg.count.query(VISITS, **PROMISE)
    half = query.with_promise(replace(query.promise, delta=0.0))
    assert half.to_dict()["parameters"]["delta"] == 0.0
    with dg.budget(1.0, 1e-6):
        shared = dg.count.query(VISITS, unit=dg.User(), share=0.5)
        release = dg.publish(shared)
    assert release.query == {**shared.to_dict(), "parameters": _unseeded(shared)}
    assert release.query["parameters"]["share"] == 0.5
    typical = papers.typical_records.query([1, 2, 2], epsilon=1.0)
    assert typical.with_promise(typical.promise).to_dict()["parameters"].get("delta") is None


def test_a_release_keeps_the_budget_shares_of_its_parts(tmp_path: Path) -> None:
    query = dg.mean.query(VISITS.derive(x="who * 2"), "x", by="page", domain=["a"], **PROMISE)
    release = dg.publish(query)
    assert release.shares == query.plan.shares
    assert list(release.shares) == ["range", "values outside", "bounds", "sums"]
    again = dg.Release.load(release.save(tmp_path / "means.parquet"))
    assert again.shares == release.shares
    used = budget_text(release.shares)
    assert "Budget       Range " in release.explain()
    assert f"How the budget is used: {used}." in release.report(tmp_path / "a.html").read_text()
    # A single part uses all of the budget, and post-processing has no plan.
    one = dg.count(VISITS, clip=1.0, **PROMISE)
    assert one.shares == {"sums": 1.0}
    for unknown in (one, release.largest(1)):
        assert "Budget  " not in unknown.explain()
    model = learn.LinearRegression(rounds=2, sampling="full", **PROMISE).fit(
        np.zeros((4, 1)), np.zeros(4), users=[1, 2, 3, 4]
    )
    assert list(model.shares_) == ["rounds", "norm histogram", "number of users"]
    assert "Budget       Rounds 87%, norm histogram 10%, number of users 3%." in model.explain()


def _unseeded(query: dg.Query[Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in query.to_dict()["parameters"].items()
        if name != "random_state"
    }


def test_a_release_keeps_its_query_without_the_seed(tmp_path: Path) -> None:
    query = dg.count.query(VISITS, by="page", random_state=86_421, **PROMISE)
    release = dg.publish(query)
    assert release.query == {**query.to_dict(), "parameters": _unseeded(query)}
    again = dg.Release.load(release.save(tmp_path / "visits.parquet"))
    assert again.query == release.query
    assert b"86421" not in (tmp_path / "visits.parquet").read_bytes()
    assert again.hash == release.hash
    bound = dg.Query.from_dict(release.query, inputs={"table": VISITS})
    assert bound == dg.count.query(VISITS, by="page", **PROMISE)
    # Calls with functions have no stored query.
    chosen = dg.select([0.0], _loss, np.zeros(3), epsilon=1.0)
    assert chosen.query is None
    assert dg.count(VISITS, by="page", domain=pd.Series(["a"]), **PROMISE).query is None


def test_a_model_keeps_its_query_without_the_seed() -> None:
    X = np.linspace(-1, 1, 40)[:, None]
    model = learn.LinearRegression(epsilon=5.0, rounds=2, random_state=1).fit(X, X[:, 0])
    bound = dg.Query.from_dict(model.query_, inputs={"X": X, "y": X[:, 0]})
    assert "random_state" not in model.query_["parameters"]
    assert bound == learn.LinearRegression(epsilon=5.0, rounds=2).query(X, X[:, 0])

    class Own(learn.LinearRegression):
        """A model of the caller."""

    with refuses("this query"):
        Own(epsilon=5.0).query(X, X[:, 0]).to_dict()


def test_table_with_another_date_format_is_rejected() -> None:
    rows = pa.table({"who": ["ann"], "day": ["31.12.2025"]})
    types = {"day": "DATE"}
    table = dg.read(rows, user="who", types=types, dates="31.12.2025")
    query = dg.count.query(table, unit=dg.User(), clip=1.0, epsilon=1.0)
    values = query.to_dict()
    assert dg.Query.from_dict(values, inputs={"table": table}) == query
    with refuses("inputs", "text"):
        dg.Query.from_dict(values, inputs={"table": dg.read(rows, user="who", types=types)})


def test_a_rejected_input_shows_only_the_difference() -> None:
    values = dg.count.query(VISITS, **PROMISE).to_dict()
    other = dg.read(pa.table({"who": [1], "page": [2]}), user="who", n_users=7)
    with pytest.raises(dg.ParameterError) as error:
        dg.Query.from_dict(values, inputs={"table": other})
    assert str(error.value) == (
        "inputs must have the stored schema: table.n_users must be None, not 7; table.columns.page "
        "must be 'VARCHAR', not 'BIGINT'."
    )
    with refuses("inputs", "table must be omitted"):
        dg.Query.from_dict({**values, "inputs": {}}, inputs={"table": VISITS})


def test_a_file_with_another_encoding_is_not_accepted(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_bytes("who,page\n1,ä\n".encode("latin-1"))
    latin, utf = (dg.read(path, user="who", encoding=encoding) for encoding in ("latin-1", "utf-8"))
    values = dg.count.query(latin, **PROMISE).to_dict()
    people = dg.count.query(latin.per_user(visits="count()"), **PROMISE).to_dict()
    assert dg.Query.from_dict(values, inputs={"table": latin}).to_dict() == values
    with refuses("inputs", "encoding"):
        dg.Query.from_dict(values, inputs={"table": utf})
    with refuses("inputs", "encoding"):
        dg.Query.from_dict(people, inputs={"table": utf.per_user(visits="count()")})


def test_a_join_with_another_public_table_is_not_accepted() -> None:
    one, other = (
        VISITS.join_public(dg.read(pa.table({"page": ["a", "b"], "topic": topics})), on="page")
        for topics in (["x", "y"], ["x", "z"])
    )
    values = dg.count.query(one, **PROMISE).to_dict()
    assert dg.Query.from_dict(values, inputs={"table": one}).to_dict() == values
    with refuses("inputs", "derivation"):
        dg.Query.from_dict(values, inputs={"table": other})


@pytest.mark.parametrize("levels", [101, 3000, 100_000])
def test_deeply_nested_parameters_are_rejected_by_name(levels: int) -> None:
    deep: Any = []
    for _ in range(levels):
        deep = [deep]
    values = dg.count.query(VISITS, by="page", **PROMISE).to_dict()
    stored = {**values, "parameters": {**values["parameters"], "domain": deep}}
    with refuses("domain", "at most 100 nested lists"):
        dg.Query.from_dict(stored, inputs={"table": VISITS})
    with refuses("inputs", "at most 100 nested lists"):
        dg.Query.from_dict({**values, "inputs": {"table": deep}}, inputs={"table": VISITS})


def test_a_query_with_deeply_nested_parameters_is_not_stored() -> None:
    deep: Any = []
    for _ in range(200):
        deep = {"a": deep}
    call = Call.create("dpgrain.count", {"domain": deep})
    assert call is not None
    with refuses("domain", "more than 100 nested lists"):
        call.to_dict()


@pytest.mark.parametrize(
    ("ask", "name", "example"),
    [
        (lambda: dg.count(VISITS, epsilon=1.0), "unit", "unit=dg.User()"),  # type: ignore[call-arg]
        (lambda: dg.count.query(VISITS), "unit", "unit=dg.User()"),  # type: ignore[call-arg]
        (lambda: dg.covariance(VISITS, "a", "b", **PROMISE), "bounds", "other_bounds=(0, 100)"),
        (lambda: dg.marginals(VISITS, **PROMISE), "by", "by=['region', 'age']"),
    ],
)
def test_a_missing_parameter_is_named_with_an_example(
    ask: Callable[[], Any], name: str, example: str
) -> None:
    with refuses(name, example):
        ask()


def test_unknown_parameters_remain_type_errors() -> None:
    with pytest.raises(TypeError, match="nonsense"):
        dg.count(VISITS, **PROMISE, nonsense=1)  # type: ignore[call-arg]
