"""Loader of a private run, which samples the blocks of each step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dpgrain import _validate
from dpgrain.torch.batches import BlockRows, PhysicalBatch
from dpgrain.torch.library import torch
from dpgrain.torch.steps import BlockSampler
from dpgrain.torch.training_run import Run


class PrivateLoader:
    """Loader of whole blocks, sampled independently in each step.

    Args:
        run: the run that uses the samples.
        dataset: the records, by index.
        blocks: the records of each block.
        draws: the sampler of blocks, independently or by user.
        max_rows: the maximum number of rows in a batch; None for no limit.
        collate: a function that builds a batch from a list of records; or returns None if none can
            be read, so that the batch is skipped and adds nothing.

    Raises:
        ParameterError: if there is no run, or there are no blocks.

    Created by ``PrivacyEngine.make_private``. Iteration runs the remaining steps: one batch per
    step, or several if ``max_rows`` splits it; the optimizer then steps at the last batch. A sample
    without records yields no batch: its step runs immediately, with only noise. If there are
    several processes, each yields its own whole blocks.

    >>> from dpgrain.torch import PrivacyEngine
    >>> data = torch.utils.data.TensorDataset(torch.ones(60, 3), torch.ones(60, 1))
    >>> net = torch.nn.Linear(3, 1)
    >>> net, optimizer, loader = PrivacyEngine(random_state=1).make_private(
    ...     module=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), dataset=data, n_users=60,
    ...     noise_multiplier=2.0, steps=3, sampling_rate=0.5, max_grad_norm=1.0, max_rows=20)
    >>> for x, y in loader:
    ...     optimizer.zero_grad()
    ...     torch.nn.functional.mse_loss(net(x), y).backward()
    ...     print(len(x) <= 20, optimizer.step(), len(loader))
    True False 3
    True True 2
    True False 2
    True True 1
    True False 1
    True True 0
    """

    def __init__(
        self,
        run: Run,
        dataset: Any,
        blocks: BlockRows,
        draws: BlockSampler,
        max_rows: int | None,
        collate: Callable[[list[Any]], Any] | None,
    ) -> None:
        self._run = _validate.instance(Run, run=run)
        self._blocks = _validate.instance(BlockRows, blocks=blocks)
        self._dataset, self._draws = dataset, draws
        self._max_rows = max_rows
        self._collate = collate
        self._pending: deque[PhysicalBatch] = deque()

    def __len__(self) -> int:
        """Return the number of remaining steps."""
        return self._run.steps_left

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of the remaining steps."""
        for batches in self.by_step():
            yield from batches

    def by_step(self) -> Iterator[Iterator[Any]]:
        """Yield the remaining steps, each as a possibly empty iterator over batches.

        A step without batches runs when its batches are requested, like other steps at the call of
        ``optimizer.step``. An observer between steps therefore cannot distinguish empty samples.

        Raises:
            ParameterError: if no step is left, or one was skipped.
        """
        self._run.check_steps_left()
        while self._run.steps_left:
            self._run.check_stepped()
            if not self._pending:
                with self._run.in_step():
                    # Either all batches of a step are pending or none, even after an interruption.
                    drawn = list(self._drawn())
                    self._pending.extend(drawn)
            yield self._batches()

    def _batches(self) -> Iterator[Any]:
        """Yield the remaining batches of one step; make a step without batches."""
        if not self._pending:
            self._run.publish()
        while self._pending:
            self._run.check_stepped()
            # Data sets and collate_fn may also draw random numbers, such as for image augmentation.
            self._run.reseed()
            # A batch that cannot be read stays pending, so that no step runs without it.
            records = self._records(self._pending[0])
            self._run.start_batch(self._pending[0])
            self._pending.popleft()
            if records is None:
                # No record can be read; the step runs like any other.
                self._run.skip_batch()
                continue
            yield self._run.mark_batch(records)

    @property
    def published(self) -> Mapping[str, Any]:
        """Public numbers changed since the first step, such as an adaptive bound."""
        return self._run.steps.published()

    def abandon(self) -> None:
        """Remove the hooks from the network permanently."""
        self._run.abandon()

    def _drawn(self) -> Iterator[PhysicalBatch]:
        blocks, processes = self._blocks, self._run.processes
        drawn = processes.from_first(lambda: self._draws.draw(blocks.blocks))
        # Each process reads blocks of all sizes, and each block is read by one process.
        own = processes.share(blocks.by_size(drawn))
        most = self._run.max_batch_blocks(self._max_rows)
        single = self._run.steps.single
        return blocks.batches(own, self._max_rows, single=single, max_blocks=most)

    def _records(self, batch: PhysicalBatch) -> Any:
        if self._collate is None and type(self._dataset) is torch.utils.data.TensorDataset:
            return self._dataset[torch.from_numpy(batch.rows)]
        collate = self._collate or torch.utils.data.default_collate
        return collate([self._dataset[int(row)] for row in batch.rows])
