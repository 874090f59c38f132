"""The loader of a private run: it draws the blocks of each step by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dpgrain import _validate
from dpgrain.torch.batches import Batch, Blocks
from dpgrain.torch.library import torch
from dpgrain.torch.run import Run
from dpgrain.torch.steps import Draws


class PrivateLoader:
    """Batches of whole blocks, drawn anew for each step; ``PrivacyEngine.make_private`` makes it.

    Args:
        run: the run whose steps it draws.
        dataset: the records, by place.
        blocks: which records are one block.
        draws: what draws blocks, each by itself or by user.
        max_rows: the most rows of a batch; None for any number.
        collate: makes a batch of a list of records; or None where none of them can be read, which is
            not handed out, and adds nothing.

    Raises:
        ParameterError: if there is no run, or there are no blocks.

    To iterate is to make the steps that are left: there is one batch for each step, or several where
    ``max_rows`` divides it (the optimizer then steps at the last). A draw without any record is not
    handed out: its step is made at once, with noise alone. Of several processes each hands out whole
    blocks of its own.

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
        blocks: Blocks,
        draws: Draws,
        max_rows: int | None,
        collate: Callable[[list[Any]], Any] | None,
    ) -> None:
        self._run = _validate.instance(Run, run=run)
        self._blocks = _validate.instance(Blocks, blocks=blocks)
        self._dataset, self._draws = dataset, draws
        self._max_rows = max_rows
        self._collate = collate
        self._pending: deque[Batch] = deque()

    def __len__(self) -> int:
        """Return the number of steps left."""
        return self._run.left

    def __iter__(self) -> Iterator[Any]:
        """Hand out the batches of the steps left.

        Raises:
            ParameterError: if no step is left, or one was skipped.
        """
        for batches in self.by_step():
            yield from batches

    def by_step(self) -> Iterator[Iterator[Any]]:
        """Hand out the steps left, each as its batches; one without any record has none.

        Such a step is made when its batches are asked for, as others are when they were stepped on:
        whoever looks on between steps must not see which draws were empty.

        Raises:
            ParameterError: if no step is left, or one was skipped.
        """
        self._run.check_left()
        while self._run.left:
            self._run.check_stepped()
            if not self._pending:
                with self._run.in_step():
                    # All batches of a step are there, or none, also where this is interrupted.
                    drawn = list(self._drawn())
                    self._pending.extend(drawn)
            yield self._batches()

    def _batches(self) -> Iterator[Any]:
        """Hand out the batches of one step, as far as it is not over; make one that has none."""
        if not self._pending:
            self._run.publish()
        while self._pending:
            self._run.check_stepped()
            # Data sets and collate_fn may draw, too, such as pictures that are turned.
            self._run.begin_randomness()
            # A batch that cannot be read stays, so that no step is made without it.
            records = self._records(self._pending[0])
            self._run.begin(self._pending[0])
            self._pending.popleft()
            if records is None:
                # Nothing in it can be read, and its step is made as others are.
                self._run.pass_over()
                continue
            yield self._run.handed(records)

    @property
    def published(self) -> Mapping[str, Any]:
        """The changed public numbers since the first step, such as an adaptive bound."""
        return self._run.steps.published()

    def abandon(self) -> None:
        """Take the hooks off the network, for good."""
        self._run.abandon()

    def _drawn(self) -> Iterator[Batch]:
        blocks, processes = self._blocks, self._run.processes
        drawn = processes.told(lambda: self._draws.draw(blocks.blocks))
        # Each process reads blocks of all sizes, and each block is read by one process.
        own = processes.share(blocks.by_size(drawn))
        return blocks.batches(own, self._max_rows, single=self._run.steps.single)

    def _records(self, batch: Batch) -> Any:
        if self._collate is None and type(self._dataset) is torch.utils.data.TensorDataset:
            return self._dataset[torch.from_numpy(batch.rows)]
        collate = self._collate or torch.utils.data.default_collate
        return collate([self._dataset[int(row)] for row in batch.rows])
