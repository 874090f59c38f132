"""A user's vector follows from that user's records, in any order."""

from __future__ import annotations

import numpy as np
import pytest
from tests.charges import charge_of
from tests.untouched import Untouched

from dpgrain.accounting import Gaussian
from dpgrain.means.user_vectors import LocalRecords
from dpgrain.noise import SystemSource


@pytest.mark.parametrize("d", [1, 3, 20])
def test_the_order_of_rows_moves_no_users_vector(d: int) -> None:
    rng = np.random.default_rng(d)
    records = rng.normal(size=(600, d)) * 10.0 ** rng.integers(-8, 8, (600, 1))
    users = np.where(rng.random(600) < 0.5, 0, rng.integers(0, 9, 600))
    order = rng.permutation(600)
    # Users keep their places: the first of each is listed first.
    order = np.concatenate([np.arange(9), 9 + np.argsort(order[9:])])
    users[:9] = np.arange(9)
    found = []
    for listed in (np.arange(600), order):
        charge, here = (
            charge_of(Gaussian(1.0), SystemSource()),
            LocalRecords.from_arrays(records[listed], users[listed]),
        )
        with here.user_vectors(charge, 1e6) as (vectors, people):
            found.append(vectors.vectors())
            assert people() == 9
    assert found[0].tobytes() == found[1].tobytes()


def test_records_are_not_read_before_they_are_charged_for() -> None:
    here = LocalRecords.from_arrays(Untouched(3, 2), Untouched(3))
    assert here.dimension == 2
    assert not here.has_more_users_than(1)
    with (
        pytest.raises(AssertionError, match="it was read"),
        here.user_vectors(charge_of(Gaussian(1.0), SystemSource()), 1.0),
    ):
        pass
    with charge_of(Gaussian(1.0), SystemSource()) as over:
        pass
    with pytest.raises(RuntimeError, match="the release is complete"), here.user_vectors(over, 1.0):
        pass


def test_records_of_one_user_each_count_as_users() -> None:
    alone = LocalRecords.from_arrays(np.zeros((3, 2)), None)
    assert alone.has_more_users_than(2)
    assert not alone.has_more_users_than(3)
