"""Covariances and correlations of two columns, from the sums of nine corners."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from tests.refusals import refuses
from tests.tables.engines.in_memory import InMemory

import dpgrain as dg
from dpgrain.errors import SchemaError
from dpgrain.statistics import covariances as covariance_module
from dpgrain.statistics.run import NoisySums
from dpgrain.statistics.values import PAIRED, PairMoments

EXACT: dict[str, Any] = {
    "unit": dg.User(), "epsilon": 1e6, "delta": 1e-6, "clip": 10.0, "random_state": 0,
}  # fmt: skip


def drawn(name: str, n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    z, w = rng.normal(size=(2, n))
    match name:
        case "nothing":
            return z, w
        case "half":
            return z, z / 2 + math.sqrt(0.75) * w
        case "one":
            return z, z
        case "minus":
            return z, 0.31 * w - 0.95 * z
        case "narrow":
            return 0.3 * z, 0.18 * z + 0.24 * w
        case "thin":
            return 3.6 + 0.04 * z, 8.0 * (z > 0) - 4
        case "skew":
            return np.exp(z) - 3, np.exp(0.7 * (z + w)) - 3
        case _:
            x = 4.0 * (z > 0) - 2
            return x, np.where(rng.random(n) < 0.3, x, 4.0 * (w > 1) - 2)


LAWS = ("nothing", "half", "one", "minus", "narrow", "thin", "skew", "binary")


def corners(x: Any, y: Any) -> tuple[Any, Any, Any]:
    """Both numbers' places in [−4, 4], and the sums of the corners of all records."""
    u, v = ((np.clip(each, -4, 4) + 4) / 8 for each in (x, y))
    held = np.floor(u * PAIRED) * (PAIRED + 1) + np.floor(v * PAIRED)
    keys, totals = PairMoments()(np.zeros(len(held), dtype=np.int64), held)
    assert totals is not None
    return u, v, np.bincount(keys, weights=totals * PairMoments().unit, minlength=9)


@pytest.mark.parametrize("engine", ["duckdb", InMemory])
@pytest.mark.parametrize("law", LAWS)
def test_noiseless_results_agree_with_numpy(law: str, engine: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = drawn(law, 4000, rng)
    group = np.arange(4000) % 3 % 2
    who = np.arange(4000) // 2
    table = dg.read(pa.table({"who": who, "g": group, "x": x, "y": y}), user="who", engine=engine)
    asked = {**EXACT, "bounds": (-4, 4), "other_bounds": (-4, 4), "by": "g", "domain": [0, 1]}
    found, ratio = dg.covariance(table, "x", "y", **asked), dg.correlation(table, "x", "y", **asked)
    x, y = np.clip(x, -4, 4), np.clip(y, -4, 4)
    for g in (0, 1):
        moved = np.cov(x[group == g], y[group == g], bias=True)[0, 1]
        assert found.estimate[g] == pytest.approx(moved, abs=2e-3)
        assert ratio.estimate[g] == pytest.approx(
            np.corrcoef(x[group == g], y[group == g])[0, 1], abs=0.02
        )
        assert found.low[g] - 1e-6 <= moved <= found.high[g] + 1e-6
    assert [round(n) for n in found.count] == [2667, 1333]


def test_record_adds_1_for_any_numbers() -> None:
    """No record's norm exceeds 1, and its contribution determines both numbers."""
    rng = np.random.default_rng(1)
    ends = np.array([0, 1, PAIRED // 2, PAIRED - 1, PAIRED])
    x = np.concatenate([np.repeat(ends, 5), rng.integers(0, PAIRED + 1, 500)])
    y = np.concatenate([np.tile(ends, 5), rng.integers(0, PAIRED + 1, 500)])
    keys, totals = PairMoments()(np.arange(len(x)) * 9, (x * (PAIRED + 1) + y).astype(np.float64))
    assert totals is not None
    shares = totals.reshape(-1, 9) * PairMoments().unit
    assert (keys.reshape(-1, 9) == np.arange(len(x))[:, None] * 9 + np.arange(9)).all()
    assert (shares >= 0).all()
    assert (shares.sum(axis=1) == 1).all()
    for places, numbers in zip(PairMoments.places(), (x, y), strict=True):
        assert shares @ places == pytest.approx(numbers / PAIRED, abs=1e-8)
    for squares, numbers in zip(PairMoments.squares(), (x, y), strict=True):
        assert shares @ squares == pytest.approx((numbers / PAIRED) ** 2, abs=1e-8)
    product = PairMoments.places()[0] * PairMoments.places()[1]
    assert shares @ product == pytest.approx(x / PAIRED * y / PAIRED, abs=1e-8)


def missed(law: str, n: int, z: float = 1.96, runs: int = 4000) -> tuple[float, float]:
    """How often intervals of noisy corners miss the covariance, and the correlation."""
    rng = np.random.default_rng(n)
    u, v, sums = corners(*drawn(law, n, rng))
    sd = np.full(runs, 5.5)
    noisy = SimpleNamespace(
        masses=sums + 5.5 * rng.normal(size=(runs, 9)), sd=sd,
        as_estimates=lambda *parts: parts,
    )  # fmt: skip
    shares = []
    truths = np.cov(u, v, bias=True)[0, 1], np.corrcoef(u, v)[0, 1]
    asked: dict[str, Any] = {**EXACT, "bounds": (0, 1), "other_bounds": (0, 1)}
    table = dg.read(pa.table({"who": [1], "x": [0.5], "y": [0.5]}), user="who")
    for function, truth in zip((dg.covariance, dg.correlation), truths, strict=True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(covariance_module, "half_width", lambda _: z)
            query: Any = function.query(table, "x", "y", **asked)
            parts = query.release(cast(NoisySums, noisy))
        low, high = parts[2], parts[3]
        shares.append(float(np.mean((low > truth + 1e-9) | (high < truth - 1e-9))))
    return shares[0], shares[1]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n", [150, 400, 1000, 10_000])
def test_intervals_cover_the_truth_without_noise(law: str, n: int) -> None:
    """Of 4,000 draws 5% miss by chance, ± 0.35%; first-order intervals may miss slightly more."""
    assert max(missed(law, n)) < 0.065


def test_every_value_is_possible_without_visible_cells() -> None:
    table = dg.read(pa.table({"who": [1, 2], "x": [1.0, 2.0], "y": [3.0, 1.0]}), user="who")
    asked: dict[str, Any] = {
        "bounds": (0, 4), "other_bounds": (0, 10), "unit": dg.User(), "epsilon": 1, "delta": 1e-6,
        "random_state": 3,
    }  # fmt: skip
    ratio = dg.correlation(table, "x", "y", **asked)
    assert (ratio.low[0], ratio.high[0]) == (-1.0, 1.0)
    found = dg.covariance(table, "x", "y", **asked)
    assert (found.low[0], found.high[0]) == (-10.0, 10.0)
    # Equal values have no correlation, and none is reported.
    many = dg.read(pa.table({"who": range(3000), "x": [1.0] * 3000, "y": [2.0] * 3000}), user="who")
    ratio = dg.correlation(many, "x", "y", **{**asked, "epsilon": 100})
    assert (ratio.low[0], ratio.high[0]) == (-1.0, 1.0)


def test_incomplete_rows_are_dropped_and_distant_ones_truncated() -> None:
    x = [1.0, math.nan, None, math.inf, 100.0, 3.0]
    y = [1.0, 1.0, 1.0, 1.0, -5.0, None]
    table = dg.read(pa.table({"who": range(6), "x": x, "y": y}), user="who")
    found = dg.covariance(table, "x", "y", bounds=(0, 4), other_bounds=(0, 2), **EXACT)
    assert round(found.count[0]) == 2
    assert found.value == pytest.approx(np.cov([1, 4], [1, 0], bias=True)[0, 1], abs=1e-3)
    assert "x is clamped to [0, 4], and y to [0, 2]" in str(found.guarantee)


def test_expressions_and_people_have_them() -> None:
    table = dg.read(
        pa.table({"who": np.arange(900) // 3, "x": np.arange(900) % 7, "text": ["a"] * 900}),
        user="who",
    )
    found = dg.correlation(table, "x", "7 - x", bounds=(0, 7), other_bounds=(0, 7), **EXACT)
    assert found.value == pytest.approx(-1, abs=1e-2)
    people = table.per_user(s="total(x)", n="count(x > 3)")
    found = dg.correlation(people, "s", "n", bounds=(0, 18), other_bounds=(0, 3), **EXACT)
    assert 0 < found.value < 1
    with refuses("unit", "User"):
        dg.correlation(
            people, "s", "n", bounds=(0, 18), other_bounds=(0, 3), **{**EXACT, "unit": dg.Record()}
        )


def test_missing_or_invalid_arguments_raise_a_clear_error() -> None:
    table = dg.read(pa.table({"who": [1], "x": [1.0], "y": [1.0], "t": ["a"]}), user="who")
    bounds: dict[str, Any] = {"bounds": (0, 1), "other_bounds": (0, 1)}
    for change, name in (
        ({"bounds": None}, "bounds"),
        ({"other_bounds": None}, "other_bounds"),
        ({"other_bounds": dg.AutoRange()}, "other_bounds"),
        ({"bounds": (2, 1)}, "bounds"),
    ):
        with refuses(name):
            dg.covariance(table, "x", "y", **{**EXACT, **bounds, **change})
    with pytest.raises(SchemaError, match="other 't' must be numeric, not text"):
        dg.covariance(table, "x", "t", **EXACT, **bounds)
    with pytest.raises(SchemaError, match="'z' is not a column"):
        dg.correlation(table, "z", "x", **EXACT, **bounds)


def test_ranges_at_the_ends_of_all_numbers() -> None:
    table = dg.read(pa.table({"who": range(9), "x": [1.0, -1.0, 1e308] * 3}), user="who")
    for wide in ((-1e300, 1e300), (0, 1e-310)):
        with refuses("bounds", "width"):
            dg.covariance(table, "x", "x", bounds=wide, other_bounds=wide, **EXACT)
    found = dg.correlation(table, "x", "x", bounds=(0, 1e-310), other_bounds=(0, 1), **EXACT)
    assert round(found.count[0]) == 9


@pytest.mark.parametrize("name", ["covariance", "correlation"])
def test_the_share_of_pairs_outside_is_estimated_on_request(name: str, tmp_path: Path) -> None:
    """A twentieth of the pairs is outside of one range, and a twentieth of the other."""
    x, y = np.tile(np.arange(20.0), 200), np.repeat(np.arange(20.0), 200)
    x[:5], y[5:10] = np.nan, np.inf
    table = dg.read(pa.table({"who": range(4000), "x": x, "y": y}), user="who")
    query = getattr(dg, name).query(
        table, "x", "y", bounds=(0, 18), other_bounds=(1, 19), estimate_clipping=True,
        unit=dg.User(), epsilon=1.0, delta=1e-6, random_state=1,
    )  # fmt: skip
    assert query.plan.shares["values outside"] == pytest.approx(0.05, rel=1e-3)
    assert query.plan.guarantee.epsilon() <= 1.0
    assert "counted with 5% of the budget" in " ".join(str(query.plan.guarantee).split())
    release = dg.publish(query)
    truth = 1 - 0.95**2
    assert truth < release.metadata.beyond < truth + 0.02
    assert release.metadata.outside == pytest.approx(truth, abs=0.01)
    assert [kind for kind, *_ in release.metadata.care] == ["clamped"]
    text = " ".join(str(release).split())
    assert "% of pairs, averaged over users, were outside the stated bounds" in text
    assert "% of all pairs of x and y of one user were outside" in " ".join(
        release.explain().split()
    )
    again = dg.Release.load(release.save(tmp_path / "x.parquet"))
    assert (again.hash, repr(again)) == (release.hash, repr(release))
    stored = dg.Query.from_dict(query.to_dict(), inputs={"table": table})
    assert stored.to_dict() == query.to_dict()


def test_pairs_are_not_counted_without_request() -> None:
    table = dg.read(pa.table({"who": [1, 2], "x": [1.0, 2.0], "y": [1.0, 2.0]}), user="who")
    options: dict[str, Any] = {
        "bounds": (0, 1), "other_bounds": (0, 1), "unit": dg.User(), "epsilon": 1.0, "delta": 1e-6,
    }  # fmt: skip
    query = dg.covariance.query(table, "x", "y", **options)
    assert "values outside" not in query.plan.parts
    assert "Share beyond the stated bounds: not estimated." in str(dg.publish(query))
    with pytest.raises(dg.ParameterError, match="estimate_clipping must be True or False"):
        dg.covariance.query(table, "x", "y", **options, estimate_clipping="yes")  # type: ignore[arg-type]
