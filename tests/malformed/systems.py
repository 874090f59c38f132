"""The systems of types to read tables of in one process; a new one is a line here."""

from __future__ import annotations

from collections.abc import Mapping

from tests.malformed.arrow_types import ARROW
from tests.malformed.cells import System
from tests.malformed.pandas_types import PANDAS
from tests.malformed.polars_types import polars_system
from tests.malformed.sql_types import DUCKDB, TEXT

SYSTEMS: Mapping[str, System] = {
    system.name: system for system in (ARROW, PANDAS, polars_system(), DUCKDB, TEXT)
}
