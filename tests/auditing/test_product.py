"""No audit refutes a claim, over the product of the options of table statistics."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.claims.publishers import PROMISES, People, publishers
from tests.effort import Effort
from tests.products import covering

import dpgrain as dg
from dpgrain.errors import ParameterError

NAMES = (
    "histogram", "count", "sum", "mean", "variance", "covariance", "quantiles", "distribution",
    "top", "elements_per_user",
)  # fmt: skip
PUBLISHERS = publishers(People.of(0))
# Cases of each function, among cases that cover every pair of values.
_CASES = 4


def query_of(name: str, case: dict[str, Any]) -> Any:
    publisher, rest = PUBLISHERS[f"dpgrain.{name}"], dict(case)
    unit, promise = rest.pop("unit"), rest.pop("promise")
    units = {"unit": unit} if len(publisher.units) > 1 else {}
    return publisher.query(**units, **promise, **rest)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("place", range(_CASES))
@pytest.mark.parametrize("name", NAMES)
def test_no_claim_is_refuted(name: str, place: int, effort: Effort) -> None:
    # Records with several owners must be audited by hand.
    product = {**PUBLISHERS[f"dpgrain.{name}"].product(PROMISES[:4]), "user": ("who",)}
    if "user" not in PUBLISHERS[f"dpgrain.{name}"].options:
        del product["user"]
    cases = covering(product)
    random.Random(f"{name} {place}").shuffle(cases)
    for case in cases:
        try:
            query = query_of(name, case)
            units = [1, 2][: effort.number(1, 2)]
            found = dg.audit(
                query, units=units, draws=5000, runs=5, seconds=1e3, random_state=place
            )
        except ParameterError:
            continue
        assert found.verdict != "violated", f"{case}\n{found}"
        return
    pytest.fail("nothing was audited")
