"""The loss of each record of a data set, which nobody is shown before there is noise."""

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
    """Return (records,) the loss of each record, by the network as it is evaluated.

    Args:
        dataset: the records by place.
        collate: makes a batch of a list of records; None where none of them can be read.
        losses: makes the loss of each record of a batch.
        rows: the number of records that are read at a time.
        module: the network.

    A loss that is no number counts as the largest, and a record that cannot be read has none.

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
