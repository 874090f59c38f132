"""Lines and their chain."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dpgrain.errors import DataError
from dpgrain.ledger.lines import StoredLine, check_chain

AT = "2026-01-01T00:00:00Z"


def chain(length: int) -> list[StoredLine]:
    lines = [StoredLine.after(None, AT, "ledger", name="é\u202e")]
    for number in range(1, length):
        lines.append(StoredLine.after(lines[-1], AT, "release", value=0.1 * number))
    return lines


def test_a_chain_is_whole() -> None:
    lines = chain(5)
    assert list(check_chain(lines)) == lines
    assert list(check_chain([])) == []
    assert lines[3].values["value"] == pytest.approx(0.3)
    assert lines[0].body.isascii()


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize(
    "change",
    [
        lambda line: {"body": line.body.replace("Z", "z")},
        lambda line: {"hash": "0" * 64},
        lambda line: {"number": line.number + 1},
    ],
    ids=["body", "hash", "number"],
)
def test_every_change_is_seen(place: int, change: Any) -> None:
    lines = chain(5)
    lines[place] = dataclasses.replace(lines[place], **change(lines[place]))
    with pytest.raises(DataError, match=f"line {place} of the ledger"):
        list(check_chain(lines))


@pytest.mark.parametrize("place", range(4))
def test_missing_lines_and_exchanged_ones_are_seen(place: int) -> None:
    lines = chain(5)
    with pytest.raises(DataError, match=f"line {place} of the ledger"):
        list(check_chain(lines[:place] + lines[place + 1 :]))
    lines[place : place + 2] = lines[place : place + 2][::-1]
    with pytest.raises(DataError, match=f"line {place} of the ledger"):
        list(check_chain(lines))


def test_a_line_of_another_chain_is_seen() -> None:
    lines, other = chain(5), chain(5)
    begun = StoredLine.after(None, "2027-01-01T00:00:00Z", "ledger", name="other")
    other[0] = begun
    with pytest.raises(DataError, match="line 1 of the ledger does not follow"):
        list(check_chain([begun, *lines[1:]]))


@pytest.mark.parametrize("body", ["{", "[]", '{"number": NaN}', '{"a": 1, "a": 2}'])
def test_invalid_line_is_rejected(body: str) -> None:
    with pytest.raises(DataError, match="line 0 of the ledger"):
        _ = StoredLine(0, "", body).values


def test_no_line_contains_non_numbers() -> None:
    with pytest.raises(ValueError, match="JSON"):
        StoredLine.after(None, AT, "release", value=float("nan"))
