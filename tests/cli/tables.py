"""The tables that commands print, read again."""

from __future__ import annotations

import re


def row(shown: str, name: str) -> list[str]:
    for line in shown.splitlines():
        cells = [cell.strip() for cell in line.strip("│").split("│")]
        if re.sub(r" \[\d]$", "", cells[0]) == name:
            return cells
    raise AssertionError(f"no row {name!r} in:\n{shown}")
