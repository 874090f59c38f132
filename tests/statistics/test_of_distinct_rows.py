"""Statistics of rows without repetitions keep their promise: a search over units and relations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.statistics import cases

import dpgrain as dg
from dpgrain.statistics import sums_query as sums_module
from dpgrain.units import RELATIONS, Level, Relation

# The columns of distinct, the unit of the release, and the units of the searched curves.
FORMS: dict[str, tuple[Any, str, tuple[Level, ...]]] = {
    "all for records": ("*", "record", ("record",)),
    "all for elements": ("*", "column", ("record", "element")),
    "all for users": ("*", "user", ("record", "user")),
    "first for users": (["item"], "user", ("record", "element", "user")),
    "first for elements": (["item", "cell"], "column", ("record", "element")),
}
STATISTICS: dict[str, Any] = {
    "count": lambda t, **o: dg.count(t, by="item", domain=cases.ITEMS, **o),
    "sum": lambda t, **o: dg.sum(t, "x", bounds=(-4, 4), **o),
    "quantiles": lambda t, **o: dg.quantiles(t, "x", bounds=(-4, 40), bins=16, **o),
    "mean": lambda t, **o: dg.mean(t, "x", bounds=(-4, 4), **o),
}


def asking(name: str, form: str, relation: Relation, **more: Any) -> cases.Ask:
    columns, unit, _ = FORMS[form]
    options: dict[str, Any] = {
        "unit": cases.UNITS[unit], "epsilon": 1.0, "delta": 1e-6, "relation": relation,
        "random_state": 1, **more,
    }  # fmt: skip
    return lambda table: STATISTICS[name](table.distinct(columns), **options)


def worst(ask: cases.Ask, form: str, relation: Relation, level: Level) -> float:
    rng, asked = np.random.default_rng(3), cases.Asked(level, relation, 1)
    unit = FORMS[form][1]
    name = unit if unit != "user" and level == "element" else {"element": "own"}.get(level, level)
    crafted = list(cases.crafted_pairs(name, asked))
    pairs = [crafted[i] for i in rng.permutation(len(crafted))[:4]]
    pairs += [cases.random_pair(rng, name, asked) for _ in range(4)]
    return cases.worst_ratio(ask, iter(pairs), asked, cases.Outcome())


@pytest.mark.slow(cases=3)
@pytest.mark.usefixtures("cached_plans")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", STATISTICS)
def test_no_unit_changes_a_sum_beyond_the_charge(name: str, form: str, relation: Relation) -> None:
    ask = asking(name, form, relation)
    for level in FORMS[form][2]:
        assert worst(ask, form, relation, level) <= 1 + 1e-9, level


def swapped(ask: cases.Ask) -> float:
    """The ratio for a record that, if removed, makes another row of its user the first."""
    rows = [cases.heavy(0, cases.PLACES[:1], x, 1) for x in (3.0, -3.0)]
    asked = cases.Asked("record", "zero_out", 1)
    pairs = [(rows[0] + rows[1], rows[place]) for place in (0, 1)]
    return cases.worst_ratio(ask, iter(pairs), asked, cases.Outcome())


@pytest.mark.usefixtures("cached_plans")
def test_search_finds_a_first_row_charged_as_record(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = asking("quantiles", "first for users", "zero_out", clip=4.0)
    assert 0.1 < swapped(ask) <= 1 + 1e-9
    monkeypatch.setattr(sums_module, "depends_on_users", lambda _: False)
    assert swapped(ask) > 1.3
