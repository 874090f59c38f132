"""Odds, and the guarantee in four sentences."""

from __future__ import annotations
