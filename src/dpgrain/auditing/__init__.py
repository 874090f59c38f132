"""Audits: lower bounds on the ε of a query, from runs on worst-case neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package

if TYPE_CHECKING:
    from dpgrain.auditing.audit import audit
    from dpgrain.auditing.file_audit import FileAudit, audit_releases
    from dpgrain.auditing.mechanism import Mechanism
    from dpgrain.auditing.training_audit import Canaries, audit_training
    from dpgrain.auditing.verdict import Audit, AuditLine, TrainingAudit

__all__ = [
    "Audit",
    "AuditLine",
    "Canaries",
    "FileAudit",
    "Mechanism",
    "TrainingAudit",
    "audit",
    "audit_releases",
    "audit_training",
]

lazy_package(
    __name__,
    {
        "dpgrain.auditing.audit": ("audit",),
        "dpgrain.auditing.file_audit": ("FileAudit", "audit_releases"),
        "dpgrain.auditing.mechanism": ("Mechanism",),
        "dpgrain.auditing.training_audit": ("Canaries", "audit_training"),
        "dpgrain.auditing.verdict": ("Audit", "AuditLine", "TrainingAudit"),
    },
)
