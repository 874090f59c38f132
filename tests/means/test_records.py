"""A user's vector follows from that user's records, in whichever order they are listed."""

from __future__ import annotations

import numpy as np
import pytest

from dpgrain.means.records import RecordsHere


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
        with RecordsHere.of(records[listed], users[listed]).kept(1e6) as (vectors, people):
            found.append(vectors.vectors())
            assert people() == 9
    assert found[0].tobytes() == found[1].tobytes()


def test_more_users_than_a_roster_holds_are_seen() -> None:
    here = RecordsHere.of(np.zeros((3, 2)), ["ann", "bob", None])
    assert here.more_than(1)
    assert not here.more_than(2)
    assert here.dimension == 2
