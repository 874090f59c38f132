"""What is not collected: doctests of the room that needs PyTorch, where it is absent."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["src/dpgrain/torch"]
if not find_spec("transformers"):
    collect_ignore.append("src/dpgrain/torch/trainer.py")
