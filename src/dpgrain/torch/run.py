"""One private training run: the loader, the optimizer and the accountant's number of steps are one.

A batch is drawn, read once, and stepped on, in this order; whatever else a training loop does with it
is refused by name, since it was not accounted for.
"""

from __future__ import annotations

from typing import Any, Literal

from dpgrain.errors import ParameterError, RunEnded
from dpgrain.torch.batches import Batch
from dpgrain.torch.clipping import Sums, add_part, uses_of, whole_sums
from dpgrain.torch.library import torch
from dpgrain.torch.recorder import Recorder
from dpgrain.torch.steps import Steps


class Run:
    """The state of a training run.

    Args:
        module: the network.
        optimizer: what steps against noisy gradients.
        steps: what each step adds up and publishes.
        apart: types of layers that treat records apart, as the caller states.
        loss_reduction: how the loop's loss adds up the losses of a batch's records.
    """

    def __init__(
        self,
        module: Any,
        optimizer: Any,
        steps: Steps,
        *,
        apart: tuple[type, ...],
        loss_reduction: Literal["mean", "sum"],
    ) -> None:
        self.mean, self.steps, self.optimizer = steps.mean, steps, optimizer
        self._reduction = loss_reduction
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self._recorder = Recorder(module, apart, self._read)
        self.done, self.ended = 0, False
        self._batch: Batch | None = None
        self._was_read = False
        self._vector: Sums = {}
        self._sum = steps.empty()

    @property
    def left(self) -> int:
        """The number of steps that are paid for and not yet made; none of a run that has ended."""
        return 0 if self.ended else self.mean.rounds - self.done

    def abandon(self) -> None:
        """Take the hooks off a module whose run was not charged."""
        self._recorder.remove()

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
        """Refuse another step when all are made, or the mean has ended the run.

        Raises:
            ParameterError: if there are none left.
        """
        if self.ended:
            raise ParameterError(
                f"the run has ended, as it has published, after {self.done} steps: its mean could not "
                "be told."
            )
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
        calls = self._recorder.calls
        if batch.part:
            uses = uses_of(calls, batch.layout)
            add_part(self._vector, whole_sums(uses, batch.layout, scale))
            if batch.records:
                self._sum.add_block(self._vector, batch.records)
                self._vector = {}
        else:
            self._sum.add_blocks(calls, batch.layout, scale)
        self._recorder.clear()
        self._batch = None
        return batch.last and self.publish()

    def publish(self) -> bool:
        """Step against the noisy gradient of all blocks that were added, also if there were none.

        Returns:
            True if the optimizer has made its step; False if the mean has ended the run instead.
        """
        self.check_left()
        try:
            with torch.no_grad():
                for parameter, gradient in self.steps.gradients(self._sum):
                    parameter.grad = gradient.to(parameter.dtype)
        except RunEnded:
            self.ended = True
        else:
            self.done += 1
            self._sum = self.steps.empty()
            self.optimizer.step()
        if self.left == 0:
            self._recorder.remove()
        return not self.ended

    def _read(self) -> int:
        """Begin a pass over the batch, and return how many rows it has."""
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
        return self._batch.layout.rows

    def _check_ready(self) -> Batch:
        self.check_left()
        if self._batch is None:
            raise ParameterError(
                "optimizer.step() was called on a batch that the loader did not draw, or twice on one: "
                "step once for each batch that the loader hands out."
            )
        if not any(call.gradient is not None for call in self._recorder.calls):
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
