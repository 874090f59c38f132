"""Which tests run: a sample of each long search, the rest of it, or everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from tests import sampling


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--search",
        choices=sampling.PARTS,
        default="sample",
        help="of long searches: a sample (`make test`), the rest (`make audit`), or all",
    )


def _part(config: pytest.Config) -> sampling.Part:
    part: sampling.Part = config.getoption("--search")
    # A test that is asked for by its name runs with all its cases.
    by_name = any("::" in argument for argument in config.args)
    return "all" if part == "sample" and by_name else part


def pytest_configure(config: pytest.Config) -> None:
    sampling.load(_part(config))


@pytest.hookimpl(trylast=True)  # Of what is left when other marks are heeded.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    sample = sampling.sampled(items)
    left_out = [item for item in items if not sampling.belongs(item, _part(config), sample)]
    config.hook.pytest_deselected(items=left_out)
    out = set(left_out)
    items[:] = [item for item in items if item not in out]


@pytest.fixture
def some_of(request: pytest.FixtureRequest) -> Callable[[Iterable[Any]], list[Any]]:
    """Shorten a loop inside a search: some of its cases in a sample, else all."""
    return sampling.shortened(request.node.nodeid, _part(request.config))
