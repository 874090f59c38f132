"""Steps of dpgrain, of plain PyTorch, and of ``torch.func.vmap`` over blocks."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
import torch
from serving import serve
from torch_problems import problem
from torch_step import METHODS

torch.set_num_threads(1)
warnings.simplefilter("ignore", UserWarning)
serve(
    {
        method: lambda name, block, m=make: m(problem(name, block))
        for method, make in METHODS.items()
    }
)
