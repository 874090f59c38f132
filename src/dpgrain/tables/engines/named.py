"""Engines by name; a new engine adds a line here."""

from __future__ import annotations

from typing import Any

from dpgrain.errors import ParameterError
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.engines.in_memory import InMemory
from dpgrain.tables.engines.protocol import Opener

ENGINES: dict[str, Opener] = {"duckdb": DuckDB, "in_memory": InMemory}


def opener(engine: Any) -> Opener:
    """Return the class of an engine that is given by name, or as itself.

    Raises:
        ParameterError: if it is neither.
    """
    if isinstance(engine, str) and engine in ENGINES:
        return ENGINES[engine]
    if isinstance(engine, str) or not callable(engine):
        names = ", ".join(map(repr, ENGINES))
        raise ParameterError(
            f"engine must be one of {names} or the class of one, not {engine!r}.", name="engine"
        )
    return engine  # type: ignore[no-any-return]
