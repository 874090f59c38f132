"""Audits: lower bounds on the ε that a query spends, from runs on worst-case neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._later import face

if TYPE_CHECKING:
    from dpgrain.auditing.audit import audit
    from dpgrain.auditing.files import FileAudit, audit_releases
    from dpgrain.auditing.verdict import Audit, Line

__all__ = ["Audit", "FileAudit", "Line", "audit", "audit_releases"]

face(
    __name__,
    {
        "dpgrain.auditing.audit": ("audit",),
        "dpgrain.auditing.files": ("FileAudit", "audit_releases"),
        "dpgrain.auditing.verdict": ("Audit", "Line"),
    },
)
