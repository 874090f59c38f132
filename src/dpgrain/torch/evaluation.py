"""Loss of each record of a data set, before noise; for internal use only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpgrain._types import FloatArray
from dpgrain.torch.trial import evaluating


def losses_on(
    dataset: Any,
    collate: Callable[[Sequence[Any]], Any],
    losses: Callable[[Any], Any],
    rows: int,
    module: Any,
) -> FloatArray:
    """Return the loss of each record in evaluation mode, (records,).

    NaN is treated as the largest loss; unreadable records have no loss.

    >>> from dpgrain.torch.library import torch
    >>> data, net = [[1.0], [3.0], [2.0]], torch.nn.Identity()
    >>> losses_on(data, torch.tensor, lambda batch: net(batch).sum(1), 2, net).tolist()
    [1.0, 3.0, 2.0]
    """
    result = np.zeros(len(dataset))
    with evaluating(module):
        for first in range(0, len(dataset), rows):
            places = range(first, min(first + rows, len(dataset)))
            batch = collate([dataset[place] for place in places])
            if batch is not None:
                each = losses(batch).detach().double().cpu().numpy()
                result[places.start : places.stop] = np.nan_to_num(each, nan=np.inf, posinf=np.inf)
    return result
