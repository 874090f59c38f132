"""The systems of types to read tables of in one process; a new one is a line here."""

from __future__ import annotations

from collections.abc import Mapping

from dpgrain.testing.odd.arrow_types import ARROW
from dpgrain.testing.odd.cells import System
from dpgrain.testing.odd.pandas_types import PANDAS
from dpgrain.testing.odd.polars_types import polars_system
from dpgrain.testing.odd.sql_types import DUCKDB, TEXT

SYSTEMS: Mapping[str, System] = {
    system.name: system for system in (ARROW, PANDAS, polars_system(), DUCKDB, TEXT)
}
