"""Pages that explain themselves to whoever answers for the privacy of people, and plots."""

from __future__ import annotations

from dpgrain.report.release import write_fit_report, write_report

__all__ = ["write_fit_report", "write_report"]
