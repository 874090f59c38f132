"""The parts of every plan compose to its event."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.claims.publishers import PROMISES, PUBLISHERS
from tests.effort import Effort
from tests.products import covering

import dpgrain as dg
from dpgrain.errors import ParameterError
from dpgrain.publishing import Plan
from dpgrain.publishing.release_plan import compose
from dpgrain.units import PLAIN_UNITS

# Valid combinations of options for each function, at effort 1 and above.
_COMBINATIONS = (4, 12)
#: Functions with several parts for some options.
_SEVERAL = {"dpgrain.mean_of_users", "dpgrain.select", "dpgrain.learn.minimise", "estimators"}


def _plans(name: str, most: int) -> list[Plan]:
    publisher, plans = PUBLISHERS[name], list[Plan]()
    combinations: list[dict[str, Any]] = covering(publisher.product(PROMISES), 2)
    random.Random(name).shuffle(combinations)
    for options in combinations:
        unit, promise = options.pop("unit"), options.pop("promise")
        units = {"unit": unit} if len(publisher.units) > 1 else {}
        with dg.budget(epsilon=3.0, delta=1e-5, pure=0.5):
            try:
                plans.append(publisher.query(**units, **promise, **options).settled().plan)
            except ParameterError:
                continue
        if len(plans) == most:
            break
    return plans


@pytest.mark.parametrize("name", PUBLISHERS)
def test_parts_of_a_plan_compose_to_its_event(name: str, effort: Effort) -> None:
    plans = _plans(name, effort.number(*_COMBINATIONS))
    assert plans
    for plan in plans:
        guarantee = plan.guarantee
        options: Any = {"relation": guarantee.relation, "unit": PLAIN_UNITS[guarantee.level]}
        composed = compose(plan.parts).epsilon(guarantee.delta, **options)
        whole = guarantee.event.epsilon(guarantee.delta, **options)
        assert composed == pytest.approx(whole, rel=1e-9), plan.parts
        assert not plan.shares or sum(plan.shares.values()) == pytest.approx(1.0)
    assert name not in _SEVERAL or max(len(plan.parts) for plan in plans) > 1
