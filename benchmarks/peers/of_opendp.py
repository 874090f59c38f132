"""Statistics of OpenDP, by its queries on frames of Polars."""

from __future__ import annotations

import functools
import importlib
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import opendp.prelude as dp
from serving import serve

Told = dict[str, Any]

# OpenDP extends the expressions of Polars beyond their types.
pl: Any = importlib.import_module("polars")

dp.enable_features("contrib")
DATA = Path(sys.argv[1])
KEYS: dict[str, Any] = json.loads((DATA / "keys.json").read_text(encoding="utf-8"))
SUBJECT_OF: dict[str, str] = KEYS.get("subject_of", {})
LONGEST = 1_000_000
"""A public bound on the number of rows."""


@functools.cache
def rows() -> Any:
    """All rows, with prices and amounts in pence."""
    pence = (pl.col("price", "amount") * 100).round().cast(pl.Int64)
    return pl.read_parquet(DATA / "rows.parquet").with_columns(pence)


@functools.cache
def rho(epsilon: float, delta: float) -> float:
    """The largest ρ for which OpenDP converts ρ-zCDP to (ε, δ)-DP."""
    domain = dp.atom_domain(T=float, nan=False), dp.absolute_distance(float)

    def cost(rho: float) -> float:
        noise = dp.m.make_gaussian(*domain, scale=1 / math.sqrt(2 * rho))
        return float(dp.c.make_zCDP_to_approxDP(noise).map(1.0).epsilon(delta=delta))

    low, high = 1e-4, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) <= epsilon else (low, middle)
    return low


def query(frame: Any, told: Told) -> Any:
    """A query at the whole budget with all rows of one user, or one replaced row, as its unit.

    For elements, a "user" is one reader with one subject.
    """
    epsilon, delta, known = told["epsilon"], told["delta"], told["known"]
    if told["bounds"].get("noise") == "gaussian":
        # A threshold takes half of δ, and the conversion from ρ the other half.
        each = delta if known else delta / 2
        loss = dp.loss_of(rho=rho(epsilon, each), delta=0.0 if known else each)
    else:
        loss = dp.loss_of(epsilon=epsilon, delta=0.0 if known else delta)
    unit = (
        dp.unit_of(contributions=1, identifier=pl.col("user"))
        if told["unit"] in ("user", "element")
        else dp.unit_of(contributions=2)  # one row removed and one added
    )
    return dp.Context.compositor(
        data=frame.lazy(),
        privacy_unit=unit,
        privacy_loss=loss,
        split_evenly_over=1,
        margins=[dp.polars.Margin(by=[], max_length=LONGEST)],
    ).query()


def collected(query: Any, told: Told) -> dict[str, float]:
    """The estimates of a query with public groups, selected groups, or none."""
    if told["by"] and told["known"]:
        query = query.with_keys(pl.DataFrame({told["by"]: KEYS[told["by"]]}))
    found = query.release().collect()
    groups = found[told["by"]] if told["by"] else ["all"]
    return dict(zip(groups, found["estimate"].cast(pl.Float64), strict=True))


def per_item(told: Told) -> dict[str, float]:
    """Rows, or a sum, of each item: a limited number of items per user, each clipped.

    A user's rows of an item are added up before OpenDP sees them, separately for each user, which
    leaves the
    unit unchanged: inside OpenDP 0.16 that must be the last truncation, and bounding the number of
    items fails (a name twice).
    """
    value = pl.col(told["value"]).sum() if told["value"] else pl.len().cast(pl.Int64)
    given = rows()
    if told["unit"] == "element":
        subject = pl.col("item").replace_strict(SUBJECT_OF)
        given = given.with_columns(user=pl.concat_str(pl.col("user").cast(pl.String), subject))
    sums = given.group_by("user", "item").agg(each=value)
    asked = (
        query(sums, told)
        .truncate_per_group(1, by=["item"])  # certifies what is so already
        .truncate_per_group(told["bounds"]["groups"])
        .group_by("item")
        .agg(pl.col("each").dp.sum((0, told["bounds"]["cap"])).alias("estimate"))
    )
    return collected(asked, told)


def users(told: Told) -> dict[str, float]:
    """Users of each item: one row of a user in an item, then a limited number of rows per user."""
    asked = (
        query(rows().select("user", "item"), told)
        .truncate_per_group(1, by=["item"])
        .truncate_per_group(told["bounds"]["groups"])
        .group_by("item")
        .agg(dp.len(signed=True).alias("estimate"))
    )
    return collected(asked, told)


def count(told: Told) -> dict[str, float]:
    """Rows of each item, the unit being a row."""
    asked = query(rows().select("item"), told).group_by("item")
    return collected(asked.agg(dp.len(signed=True).alias("estimate")), told)


def total(told: Told) -> dict[str, float]:
    """A sum of all rows, the unit being a row."""
    low, high = map(int, told["range"])
    number = pl.col(told["value"]).dp.sum((low, high)).alias("estimate")
    return collected(query(rows().select(told["value"]), told).select(number), told)


def moments(told: Told) -> dict[str, float]:
    """A mean or variance, from a count and sums of the centred number and its square.

    OpenDP's frames have no variance; three sums at a third of the budget each are how one gets it.
    """
    low, high = told["range"]
    centre, limit = round(50 * (low + high)), round(50 * (high - low))
    centred = pl.col(told["value"]) - centre
    frame = rows().with_columns(first=centred, second=centred**2)
    wanted = [dp.len(signed=True).alias("n"), pl.col("first").dp.sum((-limit, limit)).alias("s")]
    if told["kind"] == "variance":
        wanted.append(pl.col("second").dp.sum((0, limit**2)).alias("t"))
    kept = [told["by"]] if told["by"] else []
    asked = query(frame.select("user", "first", "second", *kept), told)
    if told["unit"] == "user":
        asked = asked.truncate_per_group(told["bounds"]["records"])
    if kept:
        asked = asked.group_by(kept).agg(*wanted).with_keys(pl.DataFrame({kept[0]: KEYS[kept[0]]}))
    else:
        asked = asked.select(*wanted)
    found = asked.release().collect()
    n = found["n"].clip(1).cast(pl.Float64)
    mean = found["s"] / n / 100
    values = mean + centre / 100 if told["kind"] == "mean" else found["t"] / n / 1e4 - mean**2
    return dict(zip(found[kept[0]] if kept else ["all"], values, strict=True))


def median(told: Told) -> dict[str, float]:
    """The median among candidates in steps of five pence."""
    low, high = told["range"]
    candidates = list(range(round(100 * low), round(100 * high) + 1, 5))
    kept = ["user", told["value"]] if told["unit"] == "user" else [told["value"]]
    asked = query(rows().select(kept), told)
    if told["unit"] == "user":
        asked = asked.truncate_per_group(told["bounds"]["records"])
    number = pl.col(told["value"]).dp.median(candidates).alias("estimate")
    found = asked.select(number).release().collect()
    return {"all": found["estimate"][0] / 100}


KINDS: dict[tuple[str, str], Callable[[Told], dict[str, float]]] = {
    ("user", "count"): per_item,
    ("user", "sum"): per_item,
    ("element", "count"): per_item,
    ("user", "users"): users,
    ("record", "count"): count,
    ("record", "sum"): total,
}


def released(told: Told) -> Callable[[], dict[str, float]]:
    """The release of a task, ready to run."""
    rows()
    other = median if told["kind"] == "median" else moments
    release = KINDS.get((told["unit"], told["kind"]), other)
    return lambda: release(told)


serve({"release": released})
