"""Tables for reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.report import sums

import dpgrain as dg


@pytest.fixture
def words() -> dg.UserTable:
    rows = {"who": [1, 1, 2, 3], "word": ["yo", "yo", "bro", "yo"], "n": [1, 2, 3, 4]}
    return dg.read(pa.table(rows), user="who")


@pytest.fixture(scope="module")
def scores() -> dg.UserTable:
    generator = np.random.default_rng(5)
    size = 4000
    rows = {
        "who": np.arange(size) % 800,
        "shop": generator.choice(["north", "<b>south</b>", "{{ east }}"], size),
        "year": generator.choice([2023, 2024], size),
        "score": generator.normal(60, 15, size),
    }
    return dg.read(pa.table(rows), user="who", n_users=800)


class _Pages(dict[str, sums.Written]):
    """The reports of protocols, each written when it is first used."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, name: str) -> sums.Written:
        protocol = sums.PROTOCOLS[name]
        path = protocol.report(self._folder / f"{len(self)}.html")
        self[name] = sums.Written(protocol, path.read_text(encoding="utf-8"))
        return self[name]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, sums.Written]:
    return _Pages(tmp_path_factory.mktemp("pages"))
