"""The loader of a private run: it draws the blocks of each step by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dpgrain.means.clipped import ClippedRounds
from dpgrain.torch.batches import Batch, Blocks
from dpgrain.torch.library import torch
from dpgrain.torch.run import Run


class PrivateLoader:
    """Batches of whole blocks, drawn anew for each step; ``PrivacyEngine.make_private`` makes it.

    Args:
        run: the run whose steps it draws.
        dataset: the records, by place.
        blocks: which records are one block.
        draws: what draws blocks, each by itself or by user.
        max_rows: the most rows of a batch; None for any number.
        collate: makes a batch of a list of records.

    To iterate is to make the steps that are left: there is one batch for each step, or several where
    ``max_rows`` divides it (the optimizer then steps at the last). A draw without any record is not
    handed out: its step is made at once, with noise alone.
    """

    def __init__(
        self,
        run: Run,
        dataset: Any,
        blocks: Blocks,
        draws: ClippedRounds,
        max_rows: int | None,
        collate: Callable[[list[Any]], Any] | None,
    ) -> None:
        self._run, self._dataset, self._blocks, self._draws = run, dataset, blocks, draws
        self._max_rows = max_rows
        self._collate = collate
        self._pending: deque[Batch] = deque()

    def __len__(self) -> int:
        """Return the number of steps that are left."""
        return self._run.left

    def __iter__(self) -> Iterator[Any]:
        """Hand out the batches of the steps that are left.

        Raises:
            ParameterError: if no step is left, or one was skipped.
        """
        self._run.check_left()
        while self._run.left:
            self._run.check_stepped()
            if not self._pending:
                self._pending.extend(self._drawn())
            if not self._pending:
                self._run.publish()
                continue
            batch = self._pending.popleft()
            records = self._records(batch)
            self._run.begin(batch)
            yield records

    def abandon(self) -> None:
        """Take the hooks off the network, which no other step is made with."""
        self._run.abandon()

    def _drawn(self) -> Iterator[Batch]:
        drawn = self._draws.draw(self._blocks.blocks)
        which = np.arange(self._blocks.blocks) if drawn is None else drawn
        return self._blocks.batches(which, self._max_rows, single=self._run.mean.exact)

    def _records(self, batch: Batch) -> Any:
        if self._collate is None and type(self._dataset) is torch.utils.data.TensorDataset:
            return self._dataset[torch.from_numpy(batch.rows)]
        collate = self._collate or torch.utils.data.default_collate
        return collate([self._dataset[int(row)] for row in batch.rows])
