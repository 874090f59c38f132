"""The engine in memory keeps to the contract of engines, whatever it reads."""

from __future__ import annotations

from dpgrain.testing import EngineContract


class TestInMemory(EngineContract):
    engine = "in_memory"
