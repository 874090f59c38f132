"""Contracts that implementations from elsewhere inherit in their tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._later import face

if TYPE_CHECKING:
    from dpgrain.testing.engine import EngineContract

__all__ = ["EngineContract"]

face(__name__, {"dpgrain.testing.engine": ("EngineContract",)})
