"""Rows of arrays fall into the blocks of their users and elements."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.inputs import cases
from tests.refusals import refuses

import dpgrain as dg
from dpgrain.inputs.array_blocks import arrange
from dpgrain.learn import LogisticRegression
from dpgrain.units import Element, User


def test_text_positions_of_users_equal_numeric_ones() -> None:
    rows = arrange(6, ["7", 7, "007", "+7", 7.0, None], None, User(), places=True)
    assert rows.owners[rows.blocks].tolist() == [0, 0, 1, 2, 0]
    assert arrange(2, ["7", 7], None, User()).users == 2


@pytest.mark.slow
@given(
    st.lists(
        st.text(alphabet="0123456789abcdef", min_size=16, max_size=16) | cases.WRITTEN,
        min_size=1,
        max_size=40,
    )
)
def test_users_of_arrays_and_of_tables_are_the_same(users: list[str]) -> None:
    valid = [user for user in users if user.isprintable() and user.isascii()]
    table = pa.table({"who": pa.array(valid, pa.string())})
    with dg.read(table, user="who").open_engine() as engine:
        assert len(engine.distinct(["who"])) == len(set(valid))
    assert arrange(len(valid), valid, None, User()).users == len(set(valid))


def test_hex_ids_do_not_delay_a_fit() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    users = [f"{number:016x}" for number in rng.integers(0, 2**63, 2990)]
    users += [*cases.HEX, "123456789012e345", "1e99999999", "9e+999999", "1E9999999"]
    y = (X[:, 0] > 0).astype(int).tolist()
    model = LogisticRegression(classes=[0, 1], rounds=2, random_state=0)
    kept = model.fit(X, y, users=users, elements=None).coef_
    assert np.isfinite(kept).all()
    elements = LogisticRegression(classes=[0, 1], rounds=2, random_state=0, unit=Element())
    assert np.isfinite(elements.fit(X, y, users=users, elements=users).coef_).all()
    strange = [*y[:-3], "1e999999", Decimal("1e99999999"), "12e34567890abcde"]
    assert np.isfinite(model.fit(X, strange, users=users).coef_).all()
    assert arrange(3, [Decimal("1e99999999"), Decimal("1e-99999999"), 1], None, User()).users == 1


@pytest.mark.parametrize("kind", ["U1", "S1", object, "i8", "f8", "M8[s]"])
def test_two_dimensional_labels_are_rejected_for_any_type(kind: Any) -> None:
    for shape in ((2, 2), (2, 1), ()):
        with refuses(
            "users", "exactly one label for each row", f"{len(shape)} dimensions; pass None"
        ):
            arrange(2, np.ones(shape, dtype=int).astype(kind), None, User())


CELLS = ("a", "b", "c", "d", "e", None)


def kept_of(pairs: list[tuple[int, str | None]], most: int) -> dict[int, set[str | None]]:
    """The cells that each user contributes; each row of such a cell counts."""
    users, cells = [user for user, _ in pairs], [cell for _, cell in pairs]
    rows = arrange(len(pairs), users, cells, User(max_elements=most))
    kept: dict[int, set[str | None]] = {user: set() for user in users}
    for place in rows.indices:
        kept[users[place]].add(cells[place])
    counted = sum(cell in kept[user] for user, cell in pairs)
    assert counted == len(rows.indices)
    assert len({*zip(rows.owners, range(rows.blocks.max() + 1), strict=True)}) == sum(
        map(len, kept.values())
    )
    return kept


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(CELLS)), min_size=1, max_size=25),
    st.integers(1, 4),
)
def test_user_contributes_no_more_elements_than_charged(
    pairs: list[tuple[int, str | None]], most: int
) -> None:
    # A user with all cells shows their order; everyone contributes the first ones.
    witness: list[tuple[int, str | None]] = [(9, cell) for cell in CELLS]
    order: list[str | None] = []
    for number in range(1, len(CELLS) + 1):
        order += kept_of(witness, number)[9] - set(order)
    for user, cells in kept_of(pairs + witness, most).items():
        held = {cell for who, cell in pairs + witness if who == user}
        assert cells == set(sorted(held, key=order.index)[:most])
