"""The requirements on every input form."""

from __future__ import annotations

from pathlib import Path

from tests.malformed.cells import System


def check_way(system: System, way: str, folder: Path, *, without: tuple[str, ...] = ()) -> None:
    """Most types and malformed cells are supported, and all common types but these."""
    kinds, lost = system.held(way, folder)
    assert len(kinds) > 0.65 * len(system.kinds)
    assert len(lost) < 0.5 * sum(len(kind.strange) for kind in kinds)
    common = {kind.name for kind in system.kinds.values() if kind.common}
    assert common - {kind.name for kind in kinds} == set(without)
