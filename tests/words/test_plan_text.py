"""Plans in words."""

from __future__ import annotations
