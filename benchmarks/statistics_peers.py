"""Statistics about users by dpgrain, PipelineDP and OpenDP on the same data, and their errors.

Usage: python benchmarks/statistics_peers.py [--runs 5] [--only NAME ...]

Needs `pip install -e '.[bench]'` and the online-retail table in the folder that DPGRAIN_DATA names.
Every statistic is released alone at ε = 1, δ = 10⁻⁶ for the whole user, the only unit that all three
have. The peers get the contribution bounds (and the law of the noise) that minimise their own error in
hindsight, found by a sweep that no budget paid for, which favours them. dpgrain stands there twice:
with its defaults, which find a clipping bound within the budget, and with a bound from hindsight.
Numbers are clipped to a public range before anybody sees them, the truth included. Seconds are of the
library's own work, from rows in memory to estimates, after one run that is not counted.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import math
import sys
import time
import warnings
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dpgrain._files import data_folder
from dpgrain.errors import DataError

warnings.filterwarnings("ignore")

SOURCE = "online_retail.parquet"
EPSILON, DELTA = 1.0, 1e-6
QUANTITY, PRICE, AMOUNT = (0, 100), (0, 20), (0, 100)  # pieces, pounds, pounds
LARGE = ("Belgium", "France", "Germany", "Spain", "United Kingdom")  # 25 users or more each
CENTRE = (PRICE[0] + PRICE[1]) // 2
RADIUS = PRICE[1] - CENTRE

Estimates = dict[Hashable, float]
Result = tuple[Estimates, float]


@functools.cache
def rows() -> pd.DataFrame:
    """All records: user, item, country, quantity and price clipped to the public ranges."""
    table = pd.read_parquet(
        data_folder(SOURCE) / SOURCE,
        columns=["user_id", "item_id", "quantity", "unit_price", "country"],
    )
    return pd.DataFrame(
        {
            "user": table["user_id"].astype("int64"),
            "item": table["item_id"].astype(object),
            "country": table["country"].astype(object),
            "quantity": table["quantity"].clip(*QUANTITY).astype("int64"),
            "pence": (table["unit_price"].astype(float).clip(*PRICE) * 100).round().astype("int64"),
            "amount": (table["quantity"] * table["unit_price"].astype(float))
            .clip(*AMOUNT)
            .mul(100)
            .round()
            .astype("int64"),
        }
    )


@functools.cache
def keys(column: str) -> list[str]:
    """The public list of groups: all that occur, or the five large countries."""
    if column == "large":
        return list(LARGE)
    return sorted(rows()[column].unique()) if column else ["all"]


def truth(name: str) -> Estimates:
    """The exact statistic of all records, nobody's contribution bounded."""
    table = rows().assign(
        all="all",
        price=rows()["pence"] / 100,
        large=rows()["country"].where(rows()["country"].isin(LARGE)),
    )
    statistic, column = STATISTICS[name].kind, STATISTICS[name].by or "all"
    by = table.groupby(column)
    if statistic == "count":
        return by.size().astype(float).to_dict()
    if statistic in ("users", "unknown"):
        return by["user"].nunique().astype(float).to_dict()
    if statistic == "sum":
        return by["quantity"].sum().to_dict()
    if statistic == "mean":
        return by["price"].mean().to_dict()
    if statistic == "variance":
        return by["price"].var(ddof=0).to_dict()
    return (by[STATISTICS[name].value].median() / 100).to_dict()


def errors(
    estimates: Estimates, exact: Estimates, groups: Iterable[Hashable]
) -> tuple[float, float]:
    """Root mean squared and mean absolute error; what is not published counts as zero."""
    gaps = np.array([estimates.get(group, 0.0) - exact[group] for group in groups])
    return float(np.sqrt(np.mean(gaps**2))), float(np.mean(np.abs(gaps)))


def _module(name: str) -> Any:
    """A library of which no types are asked: it is installed for this benchmark only."""
    return importlib.import_module(name)


# ------------------------------------------------------------------- dpgrain


@functools.cache
def dpgrain_rows() -> Any:
    """The same rows for dpgrain."""
    import dpgrain as dg

    frame = rows().assign(price=rows()["pence"] / 100, pounds=rows()["amount"] / 100)
    frame["large"] = frame["country"].where(frame["country"].isin(LARGE))
    return dg.read(pa.Table.from_pandas(frame, preserve_index=False), user="user")


def run_dpgrain(name: str, **bounds: Any) -> Result:
    """dpgrain for one statistic, with its defaults or with a clipping bound."""
    import dpgrain as dg

    s, table = STATISTICS[name], dpgrain_rows()
    release: dict[str, Callable[..., Any]] = {
        "count": dg.count,
        "users": functools.partial(dg.top, item=s.by),
        "unknown": functools.partial(dg.top, item=s.by),
        "sum": functools.partial(dg.sum, value="quantity", bounds=QUANTITY),
        "mean": functools.partial(dg.mean, value="price", bounds=PRICE),
        "variance": functools.partial(dg.variance, value="price", bounds=PRICE),
        "median": functools.partial(
            dg.quantile,
            value="price" if s.value == "pence" else "pounds",
            bounds=PRICE if s.value == "pence" else AMOUNT,
        ),
    }
    options: dict[str, Any] = {"unit": dg.User(), "epsilon": EPSILON, "delta": DELTA, **bounds}
    if s.by and s.kind not in ("users", "unknown"):
        options["by"] = s.by
    if s.by and s.kind != "unknown":
        options["domain"] = keys(s.by)
    start = time.perf_counter()
    made = release[s.kind](table, progress=False, **options)
    seconds = time.perf_counter() - start
    groups = made.groups.columns[0].to_pylist() if s.by else ["all"]
    return dict(zip(groups, made.estimate.tolist(), strict=True)), seconds


# ---------------------------------------------------------------- PipelineDP


def pipelinedp_rows(by: str, value: str) -> list[tuple[Any, ...]]:
    """What its local backend eats: Python tuples (user, group, value)."""
    table = rows()
    column = "country" if by == "large" else by
    groups = table[column].tolist() if by else ["all"] * len(table)
    numbers = table["quantity"] if value == "quantity" else table[value] / 100
    values = numbers.tolist()
    return list(zip(table["user"].tolist(), groups, values, strict=True))


def pipelinedp(
    metric: str, *, by: str, value: str = "quantity", noise: str = "gaussian", groups: int = 1,
    records: int = 1, cap: float | None = None, public: bool = True, pld: bool = False,
    strategy: str | None = None,
) -> Result:  # fmt: skip
    """One metric; `groups` and `records` are l0 and linf, `cap` clips a user's sum in a group."""
    p = _module("pipeline_dp")

    bounds: dict[str, Any] = {}
    if cap is not None:
        bounds = {"min_sum_per_partition": 0, "max_sum_per_partition": cap}
    elif value != "quantity":
        low, high = PRICE if value == "pence" else AMOUNT
        bounds = {"min_value": low, "max_value": high}
    if strategy == "post":
        bounds["post_aggregation_thresholding"] = True
        bounds["partition_selection_strategy"] = (
            p.PartitionSelectionStrategy.GAUSSIAN_THRESHOLDING
            if noise == "gaussian"
            else p.PartitionSelectionStrategy.LAPLACE_THRESHOLDING
        )
    elif strategy:
        bounds["partition_selection_strategy"] = p.PartitionSelectionStrategy[strategy]
    wanted = p.Metrics.PERCENTILE(50) if metric == "MEDIAN" else getattr(p.Metrics, metric)
    params = p.AggregateParams(
        metrics=[wanted],
        noise_kind=p.NoiseKind(noise),
        max_partitions_contributed=groups,
        max_contributions_per_partition=records,
        **bounds,
    )
    data, public_keys = pipelinedp_rows(by, value), keys(by) if public else None
    extractors = p.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda row: row[2],
    )
    start = time.perf_counter()
    accountant = p.PLDBudgetAccountant if pld else p.NaiveBudgetAccountant
    needs_delta = noise == "gaussian" or not public
    budget = accountant(EPSILON, DELTA if needs_delta else 0.0)
    released = p.DPEngine(budget, p.LocalBackend()).aggregate(
        data, params, extractors, public_partitions=public_keys
    )
    budget.compute_budgets()
    estimates = {key: float(metrics[0]) for key, metrics in released}
    return estimates, time.perf_counter() - start


# -------------------------------------------------------------------- OpenDP


@functools.cache
def opendp_rows() -> Any:
    """The same rows for OpenDP, with the centred price in pence and its square."""
    pl = _module("polars")

    table = pl.DataFrame({name: rows()[name].tolist() for name in rows().columns})
    centred = pl.col("pence") - 100 * CENTRE
    return table.with_columns(price=centred, square=centred**2)


@functools.cache
def opendp_rho(epsilon: float, delta: float) -> float:
    """The largest ρ for which OpenDP itself says that ρ-zCDP is (ε, δ)-DP."""
    dp = _module("opendp.prelude")

    dp.enable_features("contrib")
    domain = dp.atom_domain(T=float, nan=False), dp.absolute_distance(float)

    def cost(rho: float) -> float:
        noise = dp.m.make_gaussian(*domain, scale=1 / math.sqrt(2 * rho))
        return float(dp.c.make_zCDP_to_approxDP(noise).map(1.0).epsilon(delta=delta))

    low, high = 1e-4, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) <= epsilon else (low, middle)
    return low


def opendp_query(frame: Any, noise: str, *, unknown: bool = False) -> Any:
    """A query of which the unit is all rows of one user, at the whole budget."""
    dp = _module("opendp.prelude")
    pl = _module("polars")

    dp.enable_features("contrib")
    if noise == "gaussian" and unknown:  # half of δ for the threshold, half for the conversion
        loss = dp.loss_of(rho=opendp_rho(EPSILON, DELTA / 2), delta=DELTA / 2)
    elif noise == "gaussian":
        loss = dp.loss_of(rho=opendp_rho(EPSILON, DELTA))
    else:
        loss = dp.loss_of(epsilon=EPSILON, delta=DELTA) if unknown else dp.loss_of(epsilon=EPSILON)
    context = dp.Context.compositor(
        data=frame.lazy(),
        privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("user")),
        privacy_loss=loss,
        split_evenly_over=1,
        margins=[dp.polars.Margin(by=[], max_length=1_000_000)],
    )
    return context.query()


def opendp_items(column: str, *, noise: str, groups: int, cap: int) -> Result:
    """A sum per item, of 1 (`records`) or `quantity`, a user's sum in it clipped to cap.

    A user's rows of an item are added up before OpenDP sees them, each user's alone, which leaves the
    unit as it is: inside OpenDP 0.16 that must be the last truncation, and bounding the number of items
    fails (a name twice).
    """
    pl = _module("polars")

    frame, domain = opendp_rows(), pl.DataFrame({"item": keys("item")})
    start = time.perf_counter()
    sums = frame.group_by("user", "item").agg(
        records=pl.len().cast(pl.Int64), quantity=pl.col("quantity").sum()
    )
    released = (
        opendp_query(sums, noise)
        .truncate_per_group(1, by=["item"])  # certifies what is so already
        .truncate_per_group(groups)
        .group_by("item")
        .agg(pl.col(column).dp.sum((0, cap)).alias("estimate"))
        .with_keys(domain)
        .release()
        .collect()
    )
    estimates = dict(zip(released["item"], released["estimate"].cast(pl.Float64), strict=True))
    return estimates, time.perf_counter() - start


def opendp_users(*, noise: str, groups: int, public: bool) -> Result:
    """Users of each item: one row of a user in an item, then so many rows of the user."""
    dp = _module("opendp.prelude")
    pl = _module("polars")

    frame, domain = opendp_rows(), pl.DataFrame({"item": keys("item")})
    start = time.perf_counter()
    query = (
        opendp_query(frame.select("user", "item"), noise, unknown=not public)
        .truncate_per_group(1, by=["item"])
        .truncate_per_group(groups)
        .group_by("item")
        .agg(dp.len(signed=True).alias("estimate"))
    )
    released = (query.with_keys(domain) if public else query).release().collect()
    estimates = dict(zip(released["item"], released["estimate"].cast(pl.Float64), strict=True))
    return estimates, time.perf_counter() - start


def opendp_moments(kind: str, *, by: str, noise: str, records: int) -> Result:
    """The mean or variance of the price, from a count and sums of the centred price and its square.

    OpenDP's frames have no variance; three sums at a third of ρ each are how one gets it.
    """
    dp = _module("opendp.prelude")
    pl = _module("polars")

    frame, limit = opendp_rows(), 100 * RADIUS
    column = "country" if by == "large" else by
    start = time.perf_counter()
    moments = [dp.len(signed=True).alias("n"), pl.col("price").dp.sum((-limit, limit)).alias("s")]
    if kind == "variance":
        moments.append(pl.col("square").dp.sum((0, limit**2)).alias("t"))
    query = opendp_query(frame.select("user", "country", "price", "square"), noise)
    query = query.truncate_per_group(records)
    if by:
        domain = pl.DataFrame({column: keys(by)})
        query = query.group_by(column).agg(*moments).with_keys(domain)
    else:
        query = query.select(*moments)
    released = query.release().collect()
    n = np.maximum(released["n"].to_numpy().astype(float), 1)
    mean = released["s"].to_numpy() / n / 100
    values = mean + CENTRE if kind == "mean" else released["t"].to_numpy() / n / 1e4 - mean**2
    groups = released[column].to_list() if by else ["all"]
    return dict(zip(groups, values.tolist(), strict=True)), time.perf_counter() - start


def opendp_median(value: str, *, noise: str, records: int) -> Result:
    """The median among candidates five pence apart."""
    pl = _module("polars")

    low, high = PRICE if value == "pence" else AMOUNT
    frame, candidates = opendp_rows(), list(range(100 * low, 100 * high + 1, 5))
    start = time.perf_counter()
    released = (
        opendp_query(frame.select("user", value), noise)
        .truncate_per_group(records)
        .select(pl.col(value).dp.median(candidates))
        .release()
        .collect()
    )
    return {"all": released[value][0] / 100}, time.perf_counter() - start


# ---------------------------------------------------------------- statistics


@dataclass(frozen=True)
class Statistic:
    """What is released, per which column ('' for all), and the range estimates are clipped to."""

    kind: str
    by: str
    range: tuple[float, float] | None = None
    value: str = "pence"  # of medians: "pence" or "amount"


STATISTICS = {
    "records per item": Statistic("count", "item"),
    "users per item": Statistic("users", "item"),
    "quantity per item": Statistic("sum", "item"),
    "mean price": Statistic("mean", "", PRICE),
    "mean price, five countries": Statistic("mean", "large", PRICE),
    "variance of price": Statistic("variance", "", (0, RADIUS**2)),
    "variance of price, five countries": Statistic("variance", "large", (0, RADIUS**2)),
    "median price": Statistic("median", "", PRICE),
    "median amount of a record": Statistic("median", "", AMOUNT, "amount"),
    "users per item, items not public": Statistic("unknown", "item"),
}


def run_pipelinedp(name: str, **bounds: Any) -> Result:
    """PipelineDP for one statistic."""
    s = STATISTICS[name]
    if s.kind == "count":
        return pipelinedp("COUNT", by=s.by, **bounds)
    if s.kind == "users":
        return pipelinedp("PRIVACY_ID_COUNT", by=s.by, **bounds)
    if s.kind == "sum":
        return pipelinedp("SUM", by=s.by, **bounds)
    if s.kind == "unknown":
        return pipelinedp("PRIVACY_ID_COUNT", by=s.by, public=False, **bounds)
    return pipelinedp(s.kind.upper(), by=s.by, value=s.value, **bounds)


def run_opendp(name: str, **bounds: Any) -> Result:
    """OpenDP for one statistic."""
    s = STATISTICS[name]
    if s.kind in ("count", "sum"):
        return opendp_items("records" if s.kind == "count" else "quantity", **bounds)
    if s.kind in ("users", "unknown"):
        return opendp_users(public=s.kind == "users", **bounds)
    if s.kind == "median":
        return opendp_median(s.value, **bounds)
    return opendp_moments(s.kind, by=s.by, **bounds)


LIBRARIES: dict[str, Callable[..., Result]] = {
    "dpgrain": run_dpgrain,
    "dpgrain, given bound": run_dpgrain,
    "PipelineDP": run_pipelinedp,
    "OpenDP": run_opendp,
}


def score(library: str, name: str, runs: int, bounds: dict[str, Any]) -> dict[str, float]:
    """Errors and seconds, averaged over the runs."""
    exact = truth(name)
    s = STATISTICS[name]
    # What a library imports and caches when it is first used is not its work.
    LIBRARIES[library](name, **bounds)
    found = []
    for _ in range(runs):
        estimates, seconds = LIBRARIES[library](name, **bounds)
        if s.range:
            estimates = {key: min(max(v, s.range[0]), s.range[1]) for key, v in estimates.items()}
        row = dict(zip(("rmse", "mae"), errors(estimates, exact, exact), strict=True))
        found.append(row | {"seconds": seconds, "published": float(len(estimates))})
    return {key: float(np.mean([row[key] for row in found])) for key in found[0]}


# ---------------------------------------------------------------------- table

BEST: dict[str, dict[str, dict[str, Any]]] = {
    "records per item": {
        "dpgrain, given bound": {"clip": 16.0},
        "PipelineDP": {"noise": "gaussian", "groups": 180, "records": 1},
        "OpenDP": {"noise": "gaussian", "groups": 180, "cap": 1},
    },
    "users per item": {
        "dpgrain, given bound": {"clip": 8.0},
        "PipelineDP": {"noise": "gaussian", "groups": 100},
        "OpenDP": {"noise": "gaussian", "groups": 100},
    },
    "quantity per item": {
        "dpgrain, given bound": {"clip": 2.0},
        "PipelineDP": {"noise": "gaussian", "groups": 120, "cap": 20},
        "OpenDP": {"noise": "gaussian", "groups": 100, "cap": 20},
    },
    "mean price": {
        "dpgrain, given bound": {"clip": 400.0},
        "PipelineDP": {"noise": "laplace", "records": 400},
        "OpenDP": {"noise": "laplace", "records": 400},
    },
    "mean price, five countries": {
        "dpgrain, given bound": {"noise": "laplace", "clip": 1.0},
        "PipelineDP": {"noise": "laplace", "records": 1},
        "OpenDP": {"noise": "laplace", "records": 1},
    },
    "variance of price": {
        "dpgrain, given bound": {"clip": 200.0},
        "PipelineDP": {"noise": "laplace", "records": 200},
        "OpenDP": {"noise": "laplace", "records": 200},
    },
    "variance of price, five countries": {
        "dpgrain, given bound": {"noise": "laplace", "clip": 5.0},
        "PipelineDP": {"noise": "laplace", "records": 1},
        "OpenDP": {"noise": "laplace", "records": 10},
    },
    "median price": {
        "dpgrain, given bound": {"clip": 200.0},
        "PipelineDP": {"noise": "laplace", "records": 20},
        "OpenDP": {"noise": "laplace", "records": 100},
    },
    "median amount of a record": {
        "dpgrain, given bound": {"noise": "laplace", "clip": 1600.0},
        "PipelineDP": {"noise": "laplace", "records": 600},
        "OpenDP": {"noise": "gaussian", "records": 1000},
    },
    "users per item, items not public": {
        "dpgrain, given bound": {"clip": 4.0},
        "PipelineDP": {"noise": "gaussian", "strategy": "post", "groups": 80},
        "OpenDP": {"noise": "gaussian", "groups": 80},
    },
}


def main() -> None:
    """Print one line for each statistic and library."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(STATISTICS), choices=list(STATISTICS))
    options = parser.parse_args()
    try:
        data_folder(SOURCE)
    except DataError as error:
        sys.exit(str(error))
    opendp_rows()
    print(f"{'':36}{'':22}{'groups':>7}{'rmse':>11}{'mae':>11}{'seconds':>9}  bounds")
    for name in options.only:
        for library in LIBRARIES:
            bounds = BEST[name].get(library, {})
            # One number says little; and no library shall pay for what it imports.
            found = score(library, name, options.runs * (1 if STATISTICS[name].by else 3), bounds)
            told = " ".join(f"{key}={value}" for key, value in bounds.items())
            print(
                f"{name:36}{library:22}{found['published']:7.0f}{found['rmse']:11.4g}"
                f"{found['mae']:11.4g}{found['seconds']:9.2f}  {told}",
                flush=True,
            )


if __name__ == "__main__":
    main()
