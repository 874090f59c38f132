"""Plans as text."""

from __future__ import annotations
