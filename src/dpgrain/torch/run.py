"""One private training run: the loader, the optimizer and the accountant's number of steps are one.

A batch is drawn, read once, and stepped on, in this order; whatever else a training loop does with it
is refused by name, since it was not accounted for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from torch.utils._pytree import tree_leaves

from dpgrain.errors import ParameterError
from dpgrain.means import ClippedMean
from dpgrain.means.grid import grid_step
from dpgrain.noise import Source
from dpgrain.torch.batches import Batch
from dpgrain.torch.clipping import (
    ExactSum,
    FloatSum,
    Sums,
    add_part,
    overshoot,
    whole_sums,
)
from dpgrain.torch.layout import Layout
from dpgrain.torch.library import torch
from dpgrain.torch.noise import in_floating_point, on_the_grid
from dpgrain.torch.recorder import Recorder


class Run:
    """The state of a training run.

    Args:
        module: the network.
        optimizer: what steps against noisy gradients.
        mean: the public numbers: rounds, rate, clipping bound, noise, divisor.
        apart: types of layers that treat records apart, as the caller states.
        loss_reduction: how the loop's loss adds up the losses of a batch's records.
        source: where noise comes from.
    """

    def __init__(
        self,
        module: Any,
        optimizer: Any,
        mean: ClippedMean,
        *,
        apart: tuple[type, ...],
        loss_reduction: Literal["mean", "sum"],
        source: Source,
    ) -> None:
        self.mean, self.optimizer, self._source = mean, optimizer, source
        self._reduction = loss_reduction
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self._recorder = Recorder(module, apart, self._read)
        self._precision = (
            torch.float64
            if all(p.dtype == torch.float64 for p in self.parameters)
            else torch.float32
        )
        self.done = 0
        self._batch: Batch | None = None
        self._was_read = False
        self._vector: Sums = {}
        self._sum = self._empty()

    @property
    def left(self) -> int:
        """The number of steps that are paid for and not yet made."""
        return self.mean.rounds - self.done

    def abandon(self) -> None:
        """Take the hooks off a module whose run was not charged."""
        self._recorder.remove()

    def try_on(self, example: Any) -> None:
        """Try the module on made-up records.

        Args:
            example: what the module is called with.

        Raises:
            ParameterError: if the module mixes records, or the example holds fewer than two.
        """
        named = isinstance(example, Mapping)
        given = () if named else example if isinstance(example, tuple) else (example,)
        inputs = (given, dict(example) if named else {})
        records = max((len(t) for t in tree_leaves(inputs) if hasattr(t, "__len__")), default=0)
        if records < 2:
            raise ParameterError(
                "example must hold tensors of two made-up records at least, their first dimension.",
                name="example",
            )
        self._recorder.try_on(inputs, records)

    def begin(self, batch: Batch) -> None:
        """Hand out a batch.

        Raises:
            ParameterError: if there was no step on the batch before.
        """
        self.check_stepped()
        self._batch, self._was_read = batch, False
        for parameter in self.parameters:
            parameter.grad = None

    def check_stepped(self) -> None:
        """Refuse to go on while there was no step on the batch that was handed out last.

        Raises:
            ParameterError: if there was none: to skip a step would tell of the batch.
        """
        if self._batch is not None:
            raise ParameterError(
                f"step {self.done + 1} was skipped: call backward() and optimizer.step() once for each "
                "batch that the loader hands out, since a step that is left out tells of its batch."
            )

    def check_left(self) -> None:
        """Refuse another step when all are made.

        Raises:
            ParameterError: if there are none left.
        """
        if self.left == 0:
            raise ParameterError(
                f"steps = {self.mean.rounds} are over: another one was not accounted for; ask "
                "make_private for more."
            )

    def step(self) -> bool:
        """Add the blocks of the batch, and step against the noisy gradient if the batch is the last.

        Returns:
            True if the optimizer has made its step.

        Raises:
            ParameterError: if the batch was not drawn, not read, or gradients came by another way.
        """
        batch = self._check_ready()
        scale = float(batch.layout.rows) if self._reduction == "mean" else 1.0
        uses = self._recorder.uses
        if batch.part:
            add_part(self._vector, whole_sums(uses, batch.layout, scale))
            if batch.records:
                self._sum.add_block(self._vector, batch.records)
                self._vector = {}
        else:
            self._sum.add_blocks(uses, batch.layout, scale)
        self._recorder.clear()
        self._batch = None
        if batch.last:
            self.publish()
        return batch.last

    def publish(self) -> None:
        """Step against the noisy gradient of all blocks that were added, also if there were none."""
        self.check_left()
        with torch.no_grad():
            for parameter, noisy in self._noisy():
                parameter.grad = (noisy / self.mean.divisor).to(parameter.dtype)
        self.done += 1
        self._sum = self._empty()
        self.optimizer.step()
        if self.left == 0:
            self._recorder.remove()

    def _noisy(self) -> Any:
        mean = self.mean
        if isinstance(self._sum, ExactSum):
            return on_the_grid(self._sum, self.parameters, mean.noise_multiplier, self._source)
        # A block may be longer than the bound by this, for which there is more noise.
        sd = mean.noise_multiplier * mean.clip * (1 + overshoot(self._precision))
        return in_floating_point(self._sum, self.parameters, sd, self._source)

    def _empty(self) -> FloatSum | ExactSum:
        mean = self.mean
        if mean.exact:
            step = grid_step(mean.clip, mean.noise_multiplier)
            return ExactSum(self.parameters, mean.clip, step)
        return FloatSum(self.parameters, mean.clip)

    def _read(self) -> Layout:
        """Begin a pass over the batch, and return its blocks."""
        if self._batch is None:
            raise ParameterError(
                "module was trained on a batch that the loader did not draw: take batches from the "
                "loader, and evaluate with module.eval() or under torch.no_grad()."
            )
        if self._was_read:
            raise ParameterError(
                "module was called twice on one batch: call it once, and step, for each batch that the "
                "loader hands out."
            )
        self._was_read = True
        return self._batch.layout

    def _check_ready(self) -> Batch:
        self.check_left()
        if self._batch is None:
            raise ParameterError(
                "optimizer.step() was called on a batch that the loader did not draw, or twice on one: "
                "step once for each batch that the loader hands out."
            )
        if not self._recorder.uses:
            raise ParameterError(
                "optimizer.step() was called before loss.backward(), or on a loss of which no layer "
                "knows: call the module in training mode, then backward() on its loss."
            )
        if any(parameter.grad is not None for parameter in self.parameters):
            raise ParameterError(
                "a parameter has a gradient that did not come through its layer, such as that of a "
                "penalty in the loss or of a weight that the loop reads by itself: use weight_decay of "
                "the optimizer, and call layers instead of their weights."
            )
        return self._batch
