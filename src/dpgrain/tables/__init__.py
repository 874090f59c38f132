"""Tables of users and records, public partitions, and the engine that reads them.

Bad values in rows follow fixed rules, inside the privacy unit, without error or warning: a record
without user or item is left out; NaN, infinite and negative weights count 0; repeated (user, item)
rows add up; a total saturates at 2^53 grid steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package

if TYPE_CHECKING:
    from dpgrain.tables.elements import Elements
    from dpgrain.tables.shared_table import SharedTable
    from dpgrain.tables.table import UserTable, read

__all__ = ["Elements", "SharedTable", "UserTable", "read"]

lazy_package(
    __name__,
    {
        "dpgrain.tables.elements": ("Elements",),
        "dpgrain.tables.shared_table": ("SharedTable",),
        "dpgrain.tables.table": ("UserTable", "read"),
    },
)
