"""Tables for reports."""

from __future__ import annotations

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


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, sums.Written]:
    folder = tmp_path_factory.mktemp("pages")
    pages = {}
    for place, (name, protocol) in enumerate(sums.PROTOCOLS.items()):
        path = protocol.report(folder / f"{place}.html")
        pages[name] = sums.Written(protocol, path.read_text(encoding="utf-8"))
    return pages
