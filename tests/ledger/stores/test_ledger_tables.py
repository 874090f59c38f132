"""The tables of a ledger, and values that no ledger has written."""

from __future__ import annotations

import random

import pytest
from tests.refusals import refuses

from dpgrain.errors import AccessError
from dpgrain.ledger.lines import StoredLine
from dpgrain.ledger.price_units import Units
from dpgrain.ledger.stores.ledger_tables import Execute, SqlTransaction
from dpgrain.ledger.stores.sqlite_store import memory_transaction
from dpgrain.ledger.stores.store_protocol import END, START, Axis, CellRange


def test_lines_come_back_in_their_order() -> None:
    with memory_transaction() as page:
        assert (page.last(), page.line(0), page.format()) == (None, None, None)
        lines = [StoredLine(number, f"h{number}", "{}") for number in range(2500)]
        for line in random.Random(1).sample(lines, len(lines)):
            page.append(line)
        assert list(page.lines()) == lines
        assert (page.last(), page.line(7)) == (lines[-1], lines[7])


def test_accounts_add_up_as_in_a_dictionary() -> None:
    """Random intervals, against a sum for every cell."""
    draw, cells = random.Random(3), dict.fromkeys(range(-5, 40), 0)
    with memory_transaction() as page:
        page.open_account(4)
        page.open_account(9)
        for _ in range(60):
            first = draw.randint(-5, 38)
            end = draw.randint(first + 1, 39)
            amount = draw.randint(1, 9)
            page.add(4, CellRange(0, first, end), Units(0, amount, 1))
            for cell in range(first, end):
                cells[cell] += amount
            a = draw.randint(-5, 38)
            b = draw.randint(a + 1, 39)
            assert page.max_units(4, CellRange(0, a, b)).mu == max(
                cells[cell] for cell in range(a, b)
            )
        assert page.max_units(4, CellRange(0, 39, END)) == Units()
        assert page.max_units(9, CellRange()) == Units()
        page.copy_class(4, 0, 1)
        page.add(4, CellRange(1), Units(5, 0, 0))
        assert page.max_units(4, CellRange(1)).mu == page.max_units(4, CellRange(0)).mu
        assert (page.max_units(4, CellRange(1)).pure, page.max_units(4, CellRange(0)).pure) == (
            5,
            0,
        )
        assert all(START <= row[2] < END for row in page.accounts())


def test_promises_have_an_axis_and_classes() -> None:
    with memory_transaction() as page:
        page.open_account(1)
        page.open_account(2)
        assert page.axis(1) is None
        page.set_axis(1, Axis("day", "time"))
        page.set_class(1, 0, "a")
        page.set_class(1, 0, "b")
        page.set_class(1, 1, "c")
        assert (page.axis(1), page.axis(2)) == (Axis("day", "time"), None)
        assert (page.classes(1), page.classes(2)) == ({0: "b", 1: "c"}, {})
        page.end(1)
        assert page.in_force() == [2]
        page.clear_accounts()
        assert (page.in_force(), page.accounts(), page.classes(1)) == ([], [], {})


@pytest.mark.parametrize(
    "rows", [[(None,)], [("a",)], [(1.5,)], [(b"1",)]], ids=["none", "text", "number", "bytes"]
)
def test_non_integer_number_is_damage(rows: list[tuple[object, ...]]) -> None:
    page = SqlTransaction(lambda statement, values: rows)
    for read in (page.format, page.in_force, page.accounts):
        with refuses("ledger", kind=AccessError):
            read()


def _answering(row: tuple[object, ...]) -> Execute:
    return lambda statement, values: [row]


def test_invalid_line_is_damage() -> None:
    for row in ((1, None, "{}"), (1, "h", 3), ("1", "h", "{}")):
        page = SqlTransaction(_answering(row))
        with refuses("ledger", kind=AccessError):
            page.last()
