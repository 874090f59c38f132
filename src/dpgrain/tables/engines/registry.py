"""Registry of engines by name; a new engine adds a line here."""

from __future__ import annotations

from typing import Any

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.tables.engines.duckdb import DuckDB
from dpgrain.tables.engines.protocol import Opener
from dpgrain.tables.engines.spark import SparkOpener
from dpgrain.tables.engines.spark_session import ADDRESS, is_frame, is_session
from dpgrain.tables.sources.read_arguments import resolve_source
from dpgrain.tables.sources.source import RowSource

ENGINES: dict[str, Opener] = {"duckdb": DuckDB, "spark": SparkOpener()}


def resolve_engine(engine: Any) -> Opener:
    """Return an engine's class, from its name, a Spark session or address, or itself."""
    if isinstance(engine, str) and engine in ENGINES:
        return ENGINES[engine]
    if is_session(engine) or (isinstance(engine, str) and ADDRESS.fullmatch(engine)):
        return SparkOpener(engine)
    if isinstance(engine, str) or not callable(engine):
        names = ", ".join(map(repr, ENGINES))
        raise ParameterError(
            f"engine must be one of {names}, a Spark session or its address, or an engine "
            f"class, not {_validate.describe(engine)}.",
            name="engine",
        )
    return engine  # type: ignore[no-any-return]


def default_engine(engine: Any, data: Any) -> Any:
    """Return the requested engine; by default, the one for the type of data."""
    if engine is None:
        return "spark" if is_frame(data) else "duckdb"
    return engine


def open_source(engine: Any, data: Any, **how: Any) -> RowSource:
    """Return an engine's source of rows, as :func:`resolve_source` does."""
    opener = resolve_engine(engine)
    if isinstance(opener, SparkOpener):
        return opener.open_source(data)
    if is_frame(data):
        message = "engine must be 'spark' for a Spark DataFrame; omit it."
        raise ParameterError(message, name="engine")
    return resolve_source(data, **how)
