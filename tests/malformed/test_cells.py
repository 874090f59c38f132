"""Tables of odd cells hold what they say, in every way to give one."""

from __future__ import annotations

import pytest
from tests.malformed.cells import MINE, UNSTATED, calendar_day
from tests.malformed.systems import SYSTEMS


@pytest.mark.parametrize("system", SYSTEMS)
def test_plain_cells_differ_and_have_one_reading(system: str) -> None:
    for kind in SYSTEMS[system].kinds.values():
        values = [cell.value for cell in kind.plain]
        if kind.meaning not in ("null", "unusable"):
            assert UNSTATED not in values
            assert None not in values
            assert len({*map(str, values)}) == len(values) >= 2, kind.name


def test_rows_of_one_person_stand_between_those_of_others() -> None:
    arrow = SYSTEMS["Arrow"]
    kinds = [arrow.kinds["int8"], arrow.kinds["string"]]
    people = {
        odd: [cell.value for cell in arrow.rows(kinds, odd=odd).columns["who"][1]]
        for odd in (None, False, True)
    }
    assert people[True] == people[False]
    assert [who for who in people[True] if who != MINE] == people[None]
    assert people[True][0] != MINE != people[True][-1]


@pytest.mark.parametrize(
    ("day", "text"),
    [(19_844, "2024-05-01"), (-719_162, "0001-01-01"), (-719_163, "0001-12-31 (BC)")],
)
def test_days_of_any_year(day: int, text: str) -> None:
    assert calendar_day(day) == text
