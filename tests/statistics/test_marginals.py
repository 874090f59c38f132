"""Marginals agree, equal pandas without noise, and no unit changes them by more than charged."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from tests.refusals import refuses
from tests.statistics import cases

import dpgrain as dg
from dpgrain.accounting import Event, Gaussian
from dpgrain.publishing import draws
from dpgrain.statistics import residuals as residuals_module
from dpgrain.tables import marginal_sums
from dpgrain.units import RELATIONS, Level, Relation

DOMAIN = {"item": cases.ITEMS, "cell": cases.CELLS}
PROMISE: dict[str, Any] = {"unit": dg.User(), "epsilon": 1.0, "delta": 1e-6}


def published(table: dg.UserTable, by: Any = ("item", "cell"), **options: Any) -> dg.Marginals:
    asked = {"domain": {key: DOMAIN[key] for key in by}, "random_state": 1, **PROMISE, **options}
    return dg.marginals(table, list(by), **asked)


def random_frame(rng: np.random.Generator, rows: int, sizes: Sequence[int]) -> pd.DataFrame:
    frame = pd.DataFrame({"who": pd.array(rng.integers(0, 30, rows), "Int64")})
    frame.loc[rng.random(rows) < 0.03, "who"] = pd.NA
    for i, size in enumerate(sizes):
        values = pd.array(rng.integers(0, size, rows), "Int64")
        values[rng.random(rows) < 0.03] = pd.NA
        values[rng.random(rows) < 0.03] = size + 7
        frame[f"c{i}"] = values if i % 2 else values.astype("string")
    return frame


def random_workload(rng: np.random.Generator, columns: int) -> list[list[str]]:
    every = [
        one
        for k in range(1, min(columns, 4) + 1)
        for one in itertools.combinations(range(columns), k)
    ]
    chosen = rng.permutation(len(every))[: int(rng.integers(1, 5))]
    return [[f"c{i}" for i in every[at]] for at in chosen]


def domain_of(sizes: Sequence[int]) -> dict[str, list[Any]]:
    return {f"c{i}": [*range(n)] if i % 2 else [*map(str, range(n))] for i, n in enumerate(sizes)}


@pytest.mark.slow(cases=40)
@pytest.mark.parametrize("seed", range(300))
def test_marginals_agree_with_pandas_without_noise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, int(rng.integers(1, 5))).tolist()
    frame = random_frame(rng, int(rng.integers(0, 200)), sizes)
    workload, domain = random_workload(rng, len(sizes)), domain_of(sizes)
    # ε so large that the noise is below a hundredth; every user has at most 200 rows.
    unit: Any = [dg.User(), dg.Element("c0"), dg.Record()][seed % 3]
    clip: Any = "auto" if isinstance(unit, dg.Record) else 200.0
    release = dg.marginals(
        dg.read(pa.Table.from_pandas(frame, preserve_index=False), user="who"), list(domain),
        workload=workload, domain=domain, unit=unit, clip=clip, epsilon=1e13, delta=1e-6,
    )  # fmt: skip
    known = frame.dropna(subset=["who"])
    for name, values in domain.items():
        known = known[known[name].isin(values)]
    for stated in workload:
        order = [stated[i] for i in rng.permutation(len(stated))]
        right = known.groupby(order).size()
        found = release.marginal(*order).to_pandas()
        for *key, estimate in found[[*order, "estimate"]].itertuples(index=False):
            index = key[0] if len(order) == 1 else tuple(key)
            assert estimate == pytest.approx(right.get(index, 0), abs=0.02)
    assert release.marginal().value == pytest.approx(len(known), abs=0.02)


@pytest.mark.slow(cases=10)
@pytest.mark.parametrize("seed", range(40))
def test_answers_agree_to_the_last_integer_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 30, int(rng.integers(2, 5))).tolist()
    frame = random_frame(rng, 100, sizes)
    query: Any = dg.marginals.query(
        dg.read(pa.Table.from_pandas(frame, preserve_index=False), user="who"),
        [*domain_of(sizes)], workload=random_workload(rng, len(sizes)), domain=domain_of(sizes),
        unit=dg.User(), epsilon=0.1, delta=1e-6, random_state=seed, clip=3.0,
    )  # fmt: skip
    release = dg.publish(query)
    step = 2.0 ** -query.residuals.weight_bits(3.0, query.events["sums"].noise_multiplier)
    for one, two in itertools.combinations_with_replacement(release.workload, 2):
        for common in (c for n in range(len(one) + 1) for c in itertools.combinations(one, n)):
            if not set(common) <= set(two):
                continue
            sums = []
            for whole in (one, two):
                answer = release.marginal(*whole).estimate.reshape(
                    [len(release.domain[name]) for name in whole]
                )
                dropped = tuple(at for at, name in enumerate(whole) if name not in common)
                sums.append(np.rint(answer.sum(axis=dropped) / step * 2) / 2)
            assert np.abs(sums[0] - sums[1]).max() <= 0.5
            assert np.abs(sums[0].ravel() * step - release.marginal(*common).estimate).max() <= step


@pytest.mark.slow
def test_covariances_and_errors_agree_with_simulated_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[Any] = []
    real = draws.with_noise

    def many(event: Event, sums: Any, scale: Any, source: Any) -> Any:
        drawn.append(scale)
        return real(event, sums, scale, source)  # type: ignore[arg-type]

    monkeypatch.setattr(draws, "with_noise", many)
    query: Any = dg.marginals.query(
        cases.table_of([]), ["item", "cell"], workload=[["item", "cell"], ["cell"]], domain=DOMAIN,
        clip=2.0, **PROMISE,
    )  # fmt: skip
    release = dg.publish(query)
    scale = drawn[0] / 2.0 ** query.residuals.weight_bits(
        2.0, query.events["sums"].noise_multiplier
    )
    noise = np.random.default_rng(5).normal(0, scale, (4_000, scale.size))
    answers = []
    for vector in noise:
        parts = query.residuals.split(vector)
        answers.append(
            np.concatenate([query.residuals.answer(parts, one).ravel() for one in query.marginals])
        )
    right = np.cov(np.array(answers).T)
    found = np.block(
        [[release.covariance(one, two) for two in release.workload] for one in release.workload]
    )
    assert np.allclose(found, right, atol=0.1 * right.max())
    assert np.allclose(np.sqrt(np.diag(found)), release.std_error)


# -- privacy --


UNITS = ("record", "own", "column", "made", "made drop", "user", "capped made", "capped column")
WORKLOADS: tuple[Any, ...] = ("pairs", [["item"], ["cell"]], [["item", "cell"], ["item"]])


def asked_of(name: str, relation: Any, workload: Any, clip: Any) -> cases.Ask:
    def ask(table: dg.UserTable) -> Any:
        return published(
            table, unit=cases.UNITS[name], relation=relation, workload=workload, clip=clip
        )

    return ask


def pairs_of(rng: np.random.Generator, name: str, asked: cases.Asked) -> Iterator[cases.Pair]:
    crafted = list(cases.crafted_pairs(name, asked))
    yield from (crafted[i] for i in rng.permutation(len(crafted))[:2])
    yield cases.random_pair(rng, name, asked)
    for swap in (False, True):
        # Rows of one kind, and rows that differ in every column.
        one, two = (cases.heavy(0, [place], 1.0, 9) for place in (("a", "p"), ("b", "q")))
        if asked.level == "user" and asked.units == 1 and asked.relation == "replace":
            yield (two, one) if swap else (one, two)


def searched(
    name: str, workload: Any, clip: Any, bill: Callable[[Event], Event] = lambda event: event
) -> dict[Relation, float]:
    """The largest share of the charged loss that neighbours show, by relation."""
    rng, worst = np.random.default_rng(7), dict.fromkeys(RELATIONS, 0.0)
    levels: list[Level] = ["record"] if name == "record" else ["element", "record", "user"]
    if name == "user":
        levels = ["user", "record"]
    for level, relation, k in itertools.product(levels, RELATIONS, (1, 2)):
        asked = cases.Asked(level, relation, k)
        found = cases.worst_ratio(
            asked_of(name, relation, workload, clip), pairs_of(rng, name, asked), asked,
            cases.Outcome(), bill,
        )  # fmt: skip
        worst[relation] = max(worst[relation], found)
    return worst


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
@pytest.mark.parametrize("name", UNITS)
@pytest.mark.proof("search", "Gaussian")
def test_no_neighbours_move_marginals_farther_than_charged(name: str, workload: Any) -> None:
    clips: tuple[Any, ...] = ("auto",) if name == "record" else ("auto", 3.3)
    for clip in clips:
        worst = searched(name, workload, clip)
        assert max(worst.values()) <= 1 + 1e-9
    # Attained for zeroed units.
    assert worst["zero_out"] > 0.99


@pytest.mark.slow
def test_search_finds_half_of_the_noise() -> None:
    def half(event: Event) -> Event:
        assert isinstance(event, Gaussian)
        return dataclasses.replace(event, noise_multiplier=2 * event.noise_multiplier)

    assert max(searched("user", "pairs", 3.3, half).values()) > 1.9


@pytest.mark.slow
def test_search_finds_units_clipped_by_their_number_of_kinds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = marginal_sums._squared_norms

    def few(columns: Any, lengths: Any, *rest: Any) -> Any:
        squares = real(columns, lengths, *rest)
        one = marginal_sums.IntPair.create(squares.low // 4, squares.high // 4)
        return marginal_sums.IntPair(one.high, np.maximum(one.low, 1))

    monkeypatch.setattr(marginal_sums, "_squared_norms", few)
    assert max(searched("user", "pairs", 3.3).values()) > 1.5


@pytest.mark.slow
def test_search_finds_coefficients_without_inclusion_and_exclusion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = residuals_module._kernel

    def direct(precisions: Any, sizes: Any) -> Any:
        return {part: one / 3 for part, one in real(precisions, sizes).items()}

    monkeypatch.setattr(residuals_module.Residuals, "kernel", property(
        lambda self: direct(self.precisions, self.sizes)))  # fmt: skip
    assert max(searched("user", "pairs", 3.3).values()) > 1.2


@pytest.mark.slow
def test_search_finds_opposite_units_charged_as_if_orthogonal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Without a restriction on the precisions, one-way marginals of units may be more than √2 apart.
    real = residuals_module.Residuals.create
    monkeypatch.setattr(
        residuals_module.Residuals, "create", lambda *a, **_: real(*a, nonnegative=False)
    )
    assert max(searched("user", [["item"], ["cell"]], 3.3).values()) <= 1 + 1e-9
    monkeypatch.setattr(residuals_module.Residuals, "is_nonnegative", True)
    assert searched("user", [["item"], ["cell"]], 3.3)["replace"] > 1.01


def test_replaced_units_are_charged_in_releases_for_removed_ones() -> None:
    asked = cases.Asked("user", "replace", 1)
    pairs = pairs_of(np.random.default_rng(1), "user", asked)
    ask = asked_of("user", "zero_out", [["item"], ["cell"]], 3.3)
    found = cases.worst_ratio(ask, pairs, asked, cases.Outcome())
    # More than √2, of a charge of 2.
    assert math.sqrt(0.5) < found <= 1 + 1e-9


@pytest.mark.slow
@pytest.mark.proof("audit", "Gaussian")
def test_audit_of_marginals_confirms_claims_and_detects_heavier_weights() -> None:
    query = dg.marginals.query(
        cases.table_of([]), ["item", "cell"], domain=DOMAIN, clip=2.0, **PROMISE
    )
    asked: dict[str, Any] = {"units": (1,), "seconds": 2.0, "draws": 100_000, "random_state": 1}
    assert dg.audit(query, **asked).verdict == "kept"
    real = marginal_sums.UnitRows.weights
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marginal_sums.UnitRows, "weights", lambda *known: 2 * real(*known))
        assert dg.audit(query, **asked).verdict == "violated"


# -- the release --


def test_unknown_values_drop_the_row_from_every_marginal() -> None:
    rows: list[cases.Row] = [(1, "a", "p", 1.0), (1, "e", "p", 1.0), (2, None, "q", 1.0),
                             (2, "b", None, 1.0), (None, "b", "q", 1.0),
                             (3, "b", "q", 1.0)]  # fmt: skip
    release = published(cases.table_of(rows), epsilon=1e12, clip=9.0)
    assert release.marginal("cell").estimate.round(1).tolist() == [1, 1, 0]
    assert release.marginal("item").estimate.round(1).tolist() == [1, 1, 0, 0]


def test_release_has_bounds_and_the_clipped_share() -> None:
    rows = [
        row for user in range(300) for row in cases.heavy(user, [("a", "p")], 1.0, 1 + user % 3)
    ]
    release = published(cases.table_of(rows), clip=2.0)
    assert release.clipped_share is not None
    assert 1 / 3 < release.clipped_share < 0.6
    assert release.metadata.clipped == release.clipped_share
    assert (
        "clipped share"
        in dg.marginals.query(
            cases.table_of(rows), ["item"], domain={"item": ["a"]}, clip=2.0, **PROMISE
        ).plan.parts
    )
    assert release.at_least is not None
    assert (release.at_least < release.estimate).any()
    single = published(cases.table_of(rows), unit=dg.Record())
    assert single.clipped_share is None
    assert single.at_least is None
    # Two people are within the noise.
    assert published(cases.table_of(rows[:2]), clip=2.0).clipped_share == 1.0


def test_release_saves_loads_and_prints(tmp_path: Any) -> None:
    release = published(cases.table_of(cases.clean()), workload=[["item", "cell"], ["cell"]])
    again = dg.Release.load(release.save(tmp_path / "m.parquet"))
    assert type(again) is dg.Marginals
    assert again.hash == release.hash
    assert [*map(tuple, again.workload)] == [*release.workload] == [("item", "cell"), ("cell",)]
    assert np.array_equal(again.covariance(["cell"]), release.covariance(["cell"]))
    assert "(all)" in repr(release)
    assert "joint norm" in release.explain()
    assert "unknown value in any of the columns" in " ".join(release.explain().split())
    assert release.marginal("cell", "item").pivot("item", "cell").shape == (4, 3)


def test_release_and_its_marginals_have_reports_and_plots(tmp_path: Path) -> None:
    release = published(cases.table_of(cases.clean()), workload=[["item", "cell"], ["cell"]])
    for each in (release, release.marginal("item"), release.marginal()):
        page = each.report(tmp_path / "page.html").read_text(encoding="utf-8")
        assert "which agree with each other" in page
        assert each.plot(Figure().subplots()).get_figure() is not None


def test_measurements_have_columns_sizes_values_and_errors() -> None:
    release = published(cases.table_of(cases.clean()), workload=[["item", "cell"], ["cell"]])
    first, second = release.to_mbi()
    assert first["clique"] == ("item", "cell")
    assert first["domain"] == {"item": 4, "cell": 3}
    assert np.array_equal(first["values"], release.marginal("item", "cell").estimate)
    assert second["stddev"] == pytest.approx(release.marginal("cell").std_error[0])


def test_expressions_and_cells_need_no_domain() -> None:
    kinds = dg.Elements.from_mapping(cases.MAPPING, missing="drop")
    table = cases.table_of(cases.clean()).with_cells("kind", of="item", by=kinds)
    release = dg.marginals(
        table, ["kind", "cell"], domain={"cell": cases.CELLS},
        unit=dg.Element("kind"), epsilon=1e12, delta=1e-6, clip=99.0,
    )  # fmt: skip
    known = [row for row in cases.clean() if row[0] is not None and row[2] in cases.CELLS]
    right = {kind: sum(cases.MAPPING.get(row[1] or "") == kind for row in known) for kind in "xyz"}
    found = release.marginal("kind").to_pandas().set_index("kind")["estimate"].round(1)
    assert {**found} == right


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"domain": {"item": cases.ITEMS}}, "domain", "values of 'cell'"),
    ({"domain": [("a", "p")]}, "domain", "a mapping"),
    ({"domain": {"item": range(10**4), "cell": range(10**4)}}, "workload", "100,000,000"),
    ({"by": []}, "by", "not empty"),
    ({"workload": []}, "workload", "different marginals"),
    ({"workload": "triples"}, "workload", "triples"),
    ({"workload": [["item", "x"]]}, "workload", "'x'"),
    ({"workload": [["item"], ["item"]]}, "workload", "different marginals"),
    ({"workload": [["item", "item"]]}, "workload", "different columns"),
    ({"workload": [3]}, "workload", "not 3"),
    ({"clip": 1e15}, "clip", "at most"),
    ({"clip": 0.5, "unit": dg.Record()}, "clip", "at least 1"),
    ({"delta": 0.0}, "delta", "above 0"),
]


@pytest.mark.usefixtures("_no_rows_are_read")
@pytest.mark.parametrize(("wrong", "name", "text"), WRONG, ids=[str(one) for one, *_ in WRONG])
def test_wrong_parameter_is_rejected_before_rows_are_read(
    wrong: dict[str, Any], name: str, text: str
) -> None:
    rows = pa.table({"who": [1], "item": ["a"], "cell": ["p"], "x": [1.0]})
    if isinstance(wrong.get("domain"), dict) and isinstance(wrong["domain"]["item"], range):
        rows = pa.table({"who": [1], "item": [1], "cell": [1]})
    options = {"by": ["item", "cell"], "domain": DOMAIN, **PROMISE, **wrong}
    with refuses(name, text):
        dg.marginals(dg.read(rows, user="who"), **options)


def test_unknown_marginal_is_rejected() -> None:
    release = published(cases.table_of([]), workload=[["item"], ["cell"]])
    with refuses("columns", "'item', 'cell'"):
        release.marginal("item", "cell")
    wrong: Any = 3
    with refuses("columns", "not (3,)"):
        release.marginal(wrong)
    with refuses("one", "must be a list"):
        release.covariance(wrong)
    with refuses("marginal", "before other post-processing"):
        release.without_negatives().marginal("item")
    assert type(release.largest(2)) is dg.Histogram


def test_text_names_the_columns_of_a_marginal() -> None:
    table = cases.table_of([])
    queries: list[Any] = [
        dg.marginals.query(table, ["item", "cell"], workload=one, domain=DOMAIN, **PROMISE)
        for one in (["cell,item"], [["item", "cell"]], ["pairs"], "pairs")
    ]
    assert {query.workload for query in queries} == {(("item", "cell"),)}


@pytest.mark.slow
def test_bound_is_near_the_best_in_hindsight() -> None:
    rng = np.random.default_rng(3)
    sizes = rng.geometric(0.2, 3000)
    who = np.repeat(np.arange(3000), sizes)
    rows = pa.table({"who": who, "item": rng.choice(cases.ITEMS, who.size),
                     "cell": rng.choice(cases.CELLS, who.size)})  # fmt: skip
    table = dg.read(rows, user="who")
    right = rows.to_pandas().groupby(["item", "cell"]).size().to_numpy()

    def error(clip: Any) -> float:
        found = published(table, clip=clip).marginal("item", "cell")
        return float(np.sqrt(((found.estimate - right) ** 2).mean()))

    best = min(error(float(clip)) for clip in (1, 2, 4, 6, 8, 12, 16, 24))
    assert error("auto") < 2 * best


def test_cells_with_correlated_noise_are_not_compared_or_combined() -> None:
    rows = [row for user in range(90) for row in cases.heavy(user, [("a", "p")], 1.0, 1)]
    release = published(cases.table_of(rows), clip=2.0)
    items = release.marginal("item")
    for combine in (
        lambda: items.difference("a", "b"),
        lambda: items.ratio("a", "b"),
        lambda: release.marginal("item", "cell").reconciled(items),
        items.consistent,
        items.shrunk,
    ):
        with pytest.raises(dg.ParameterError, match="cells of marginals share noise"):
            combine()
