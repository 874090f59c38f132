"""Which tests run: a sample of each long search, the rest of it, or everything."""

from __future__ import annotations

import pytest
from tests import sampling


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--search",
        choices=sampling.PARTS,
        default="sample",
        help="of long searches: a sample (`make test`), the rest (`make audit`), or all",
    )


def pytest_configure(config: pytest.Config) -> None:
    sampling.load(config.getoption("--search"))


@pytest.hookimpl(trylast=True)  # Of what is left when other marks are heeded.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part: sampling.Part = config.getoption("--search")
    if part == "sample" and any("::" in argument for argument in config.args):
        part = "all"  # A test that is asked for by its name runs with all its cases.
    sample = sampling.sampled(items)
    left_out = [item for item in items if not sampling.belongs(item, part, sample)]
    config.hook.pytest_deselected(items=left_out)
    out = set(left_out)
    items[:] = [item for item in items if item not in out]
