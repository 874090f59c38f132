"""State of a private training run, shared by loader, optimizer and accountant.

A batch is drawn, read once and used for a step, in this order. Other uses of a batch are rejected
with an error message, because the accounting does not cover them. A step counts once its noise may
be drawn, even if it fails later.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from torch.utils._pytree import tree_leaves, tree_map

from dpgrain.errors import ParameterError, RunEnded
from dpgrain.means import Mean
from dpgrain.torch.batches import PhysicalBatch
from dpgrain.torch.block_buffer import buffered_blocks
from dpgrain.torch.clipping import Sums, add_part, unclipped_sums
from dpgrain.torch.experts import check_loop_over_experts, check_router_loss
from dpgrain.torch.gradient_precision import check_digits
from dpgrain.torch.journal import Journal
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.library import torch
from dpgrain.torch.preflight import FEW_RECORDS, rehearse_clipping, rehearse_step
from dpgrain.torch.processes import Processes
from dpgrain.torch.randomness import reseed_from_os
from dpgrain.torch.recorder import Recorder
from dpgrain.torch.steps import RunSteps

# Maximum number of entries in per-record gradients of parameters without a rule, per batch.
_MOST_COPIED_ENTRIES = 1 << 28
# Minimum number of blocks in a buffer that splits batches.
_FEW_BLOCKS = 64


@dataclass(frozen=True, eq=False)
class RecordTemplate:
    """Inputs of a network for one record, (1, …), as a template for synthetic records."""

    inputs: tuple[Any, ...]


class Run:
    """State of a training run, started by :meth:`start` once it is charged.

    ``private`` is False for a seeded run. ``ended`` is True if no further step is made, even if
    some remain. ``journal`` is None before the first checkpoint.
    """

    def __init__(
        self,
        module: Any,
        optimizer: Any,
        *,
        separate: tuple[type, ...],
        loss_reduction: Literal["mean", "sum"],
        processes: Processes,
        private: bool,
    ) -> None:
        self.module, self.optimizer, self.processes = module, optimizer, processes
        self.mean: Mean
        self.steps: RunSteps
        self._process_id, self._private = os.getpid(), private
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        check_router_loss(module)
        check_loop_over_experts(module)
        rehearse_step(self.parameters, optimizer)
        if loss_reduction == "mean":
            check_digits(module)
        self._recorder = Recorder(module, separate, self._read, reduction=loss_reduction)
        self._recorder.remove()
        self.done, self.ended = 0, False
        self.journal: Journal | None = None
        self._steps_started = self._ahead = 0
        self._inside = False
        # Saving must count all begun steps, so no step may begin in the meantime.
        self._stepping = threading.RLock()
        self._batch: PhysicalBatch | None = None
        self._was_read = False
        self._vector: Sums = {}
        self._sum: Any = None

    def start(self, steps: RunSteps) -> None:
        """Install the hooks, and allow steps."""
        self.mean, self.steps = steps.mean, steps
        self._recorder.hook()

    @property
    def steps_started(self) -> int:
        """Number of steps of all processes with noise that may have been drawn.

        Steps with cancelling noise count as a whole cycle from the first one.
        """
        return self._steps_started if self.journal is None else self.journal.steps_started

    def restore_counts(self, done: int, steps_started: int) -> None:
        """Restore the counts of a checkpoint."""
        self.done, self._steps_started = done, steps_started

    @property
    def steps_left(self) -> int:
        """Number of charged steps not yet begun; 0 for an ended run."""
        if self.ended:
            return 0
        return max(self.mean.rounds - self.steps_started, 0) + self._ahead

    def max_batch_rows(self, max_rows: int | None) -> int | None:
        """Limit the rows of a batch, so that parameter copies fit into one or two GiB."""
        entries = self._recorder.entries
        if entries == 0:
            return max_rows
        fit = max(1, _MOST_COPIED_ENTRIES // entries)
        return fit if max_rows is None else min(max_rows, fit)

    def max_batch_blocks(self, max_rows: int | None) -> int | None:
        """Choose whether batches are added up in a buffer, which limits their blocks.

        The choice must not depend on the drawn blocks, because both ways differ for every block.
        """
        most = buffered_blocks(self.parameters)
        enough = _FEW_BLOCKS if max_rows is None else min(max_rows, _FEW_BLOCKS)
        self._recorder.may_buffer = most >= enough
        return most if self._recorder.may_buffer else None

    def abandon(self) -> None:
        """Remove the hooks from the module permanently."""
        self.ended = True
        self._recorder.remove()

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Remove the hooks again if the enclosed code fails, such as a charge."""
        try:
            yield
        except BaseException:
            self.abandon()
            raise

    def check_example(self, example: Any) -> None:
        """Test the module on synthetic records, including clipping."""
        if isinstance(example, RecordTemplate):
            self._check_template(example)
            return
        named = isinstance(example, Mapping)
        positional = () if named else example if isinstance(example, tuple) else (example,)
        inputs = (positional, dict(example) if named else {})
        tensors = (t for t in tree_leaves(inputs) if isinstance(t, torch.Tensor) and t.dim())
        records = max(map(len, tensors), default=0)
        if records < 2:
            raise ParameterError(
                "example must contain tensors with at least two synthetic records in their first "
                "dimension.",
                name="example",
            )
        self._recorder.hook()
        try:
            self._recorder.check_example(inputs, records)
            rehearse_clipping(*self._recorder.rehearse(inputs, records))
        finally:
            self._recorder.remove()

    def _check_template(self, example: RecordTemplate) -> None:
        """Test the module on random numbers with the shapes of one record."""
        inputs = tree_map(lambda leaf: leaf.repeat_interleave(FEW_RECORDS, 0), (example.inputs, {}))
        self._recorder.hook()
        try:
            outputs = self._recorder.check_shapes(inputs, FEW_RECORDS)
            rehearse_clipping(*self._recorder.rehearse(outputs, FEW_RECORDS))
        finally:
            self._recorder.remove()

    def start_batch(self, batch: PhysicalBatch) -> None:
        """Start a batch; the previous batch must have been used for a step."""
        self.check_stepped()
        self._check_unchanged()
        self._batch, self._was_read, self._inside = batch, False, True
        self.clear_gradients()

    def mark_batch(self, records: Any) -> Any:
        """Return a started batch for the loop, and mark its tensors as rows of records."""
        assert self._batch is not None  # noqa: S101 - it was begun
        return self._recorder.mark_batch(records, self._batch.layout.rows)

    def reseed(self) -> None:
        """Re-seed the generators, so that dropout and similar draws are unpredictable.

        From a known seed, the draws for a record would depend on its position in the batch, so a
        missing record would change the contributions of all later ones. Seeded runs keep theirs.
        """
        if self._private:
            reseed_from_os()

    def clear_gradients(self) -> None:
        """Clear the gradients of everything that the optimizer can change."""
        for _name, parameter in self._all_parameters():
            parameter.grad = None

    def _all_parameters(self) -> Iterator[tuple[str, Any]]:
        """Yield the current parameters of network and optimizer, with descriptions."""
        for name, parameter in self.module.named_parameters():
            yield f"parameter {name!r} of the network", parameter
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                yield "a parameter of the optimizer", parameter

    def _check_unchanged(self) -> None:
        """Reject a network or an optimizer if its trained parameters have changed."""
        own = {id(parameter) for parameter in self.parameters}
        for which, parameter in self._all_parameters():
            if parameter.requires_grad != (id(parameter) in own):
                how = "trained" if parameter.requires_grad else "frozen"
                raise ParameterError(
                    f"{which} is {how}, but was not when the run began; freeze, unfreeze and add "
                    "parameters before make_private, because only parameters trained then are "
                    "clipped and receive noise."
                )

    def check_stepped(self) -> None:
        """Check that the last batch was not skipped, which would reveal the batch."""
        if self._batch is not None:
            raise ParameterError(
                f"step {self.done + 1} was skipped; call backward() and optimizer.step() once for "
                "each batch of the loader, because a skipped step would reveal information about "
                "its batch."
            )

    @contextmanager
    def between_steps(self) -> Iterator[None]:
        """Lock the run between two steps; no other thread can begin one.

        A run within a step is rejected because its sums have no noise yet, and so is a forked copy.
        """
        self._check_process()
        with self._stepping:
            if self._inside:
                raise ParameterError(
                    f"step {self.done + 1} is not complete, because its sums have no noise yet; "
                    "save after optimizer.step() has returned True."
                )
            yield

    def _check_process(self) -> None:
        if self._process_id != os.getpid():
            raise _not_copyable()

    def check_steps_left(self) -> None:
        """Check that steps are left, and that this process was not forked."""
        self._check_process()
        if self.steps_left == 0:
            raise self._no_steps_left()

    def _no_steps_left(self) -> ParameterError:
        if self.ended:
            return ParameterError(
                "this run is over, because its mean published that it stops, or one of its steps "
                "was interrupted; resume from a checkpoint, or call make_private for another run."
            )
        return ParameterError(
            f"steps = {self.mean.rounds} are over, and no further one was accounted for; call "
            "make_private with more steps."
        )

    def step(self) -> bool:
        """Add the blocks of the batch; after the last batch, step and return True."""
        # Two threads with the same batch would otherwise use the same draw for two steps.
        with self._stepping:
            return self._step()

    def _step(self) -> bool:
        batch = self._check_ready()
        # Uses are removed before they are added, so that no block is ever added twice.
        uses = self._recorder.uses
        self._recorder.clear()
        if self._sum is None:
            self._sum = self.steps.empty_sum()
        if batch.part:
            add_part(self._vector, unclipped_sums(uses, batch.layout))
            if batch.records:
                self._end_block(batch.records)
        else:
            self._sum.add_blocks(uses, batch.layout)
        self._batch = None
        return batch.last and self.publish()

    def skip_batch(self) -> bool:
        """Add an unreadable batch as zeros; after the last batch, step and return True."""
        with self._stepping:
            batch, self._batch = self._current_batch(), None
            self._recorder.clear()
            if self._sum is None:
                self._sum = self.steps.empty_sum()
            if not batch.part:
                for size in batch.layout.sizes:
                    self._sum.add_block({}, size)
            elif batch.records:
                self._end_block(batch.records)
            return batch.last and self.publish()

    def _end_block(self, records: int) -> None:
        """Add a block with a gradient accumulated over batches."""
        self._sum.add_block(self._vector, records)
        self._vector = {}

    def publish(self) -> bool:
        """Step with the noisy gradient of all blocks; False if the mean ended the run."""
        self.check_steps_left()
        self._check_unchanged()
        # Unclipped gradients belong to no step, wherever they are stored.
        self.clear_gradients()
        with self._stepping:
            return self._publish()

    def _publish(self) -> bool:
        # The sum is removed before anything can fail, so that no other step adds to it.
        result = self.steps.empty_sum() if self._sum is None else self._sum
        self._sum = None
        with self.in_step():
            self.processes.sum_over(result)
            self._count()
            try:
                self._set_gradients(result)
            except RunEnded:
                self.ended = True
            else:
                self.done += 1
        self._inside = False
        if not self.ended:
            self.optimizer.step()
        if self.steps_left == 0:
            self._recorder.remove()
        return not self.ended

    @contextmanager
    def in_step(self) -> Iterator[None]:
        """End a run with cancelling noise if a step fails, which misaligns the noise."""
        try:
            yield
        except BaseException:
            self.ended = self.ended or self.steps.cycle > 1
            raise

    def _count(self) -> None:
        """Count a step before its noise is drawn, also in the journal if there is one."""
        if self._ahead == 0:
            steps = max(min(self.steps.cycle, self.mean.rounds - self.steps_started), 1)
            self._steps_started = (
                self._steps_started + steps if self.journal is None else self.journal.note(steps)
            )
            if self._steps_started > self.mean.rounds:
                raise self._no_steps_left()
            self._ahead = steps
        self._ahead -= 1

    def _set_gradients(self, sums: Any) -> None:
        """Draw noise in the first process, and send noisy gradients to all processes."""
        if self.processes.is_first:
            self.steps.publish(sums)
        else:
            for parameter in self.parameters:
                parameter.grad = torch.empty(
                    parameter.shape, dtype=parameter.dtype, device=parameter.device
                )
        self.processes.broadcast(parameter.grad for parameter in self.parameters)
        self.steps.adopt(self.processes.from_first(self.steps.published))

    def __reduce__(self) -> NoReturn:
        raise _not_copyable()

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise _not_copyable()

    def _read(self) -> BlockLayout:
        """Begin a pass over the batch, and return its blocks."""
        if self._batch is None:
            raise ParameterError(
                "module was trained on a batch that the loader did not draw; take batches from "
                "the loader, and evaluate with module.eval() or under torch.no_grad()."
            )
        if self._was_read:
            raise ParameterError(
                "module must be called only once per batch in training mode; combine the calls "
                "into one module that calls the network inside its forward, or evaluate under "
                "torch.no_grad()."
            )
        self._was_read = True
        # The loop may have seeded the generators itself.
        self.reseed()
        return self._batch.layout

    def _current_batch(self) -> PhysicalBatch:
        """Return the current batch of the loader."""
        self.check_steps_left()
        self._check_unchanged()
        if self._batch is None:
            raise ParameterError(
                "optimizer.step() was called on a batch that the loader did not draw, or twice "
                "on one batch; call it once for each batch of the loader."
            )
        return self._batch

    def _check_ready(self) -> PhysicalBatch:
        batch = self._current_batch()
        if not self._recorder.uses:
            raise ParameterError(
                "optimizer.step() was called before loss.backward(), or on a loss without layers "
                "of the module; call the module in training mode, then backward() on its loss."
            )
        if any(parameter.grad is not None for _name, parameter in self._all_parameters()):
            raise ParameterError(
                "a parameter has a gradient that did not pass through its layer, such as the "
                "gradient of a penalty in the loss or of a weight that the loop reads directly; "
                "use weight_decay of the optimizer, and call layers instead of their weights."
            )
        return batch


def _not_copyable() -> ParameterError:
    return ParameterError(
        "a run cannot be copied or continued in a forked process, because each copy would run "
        "all of its steps; train with the objects from make_private, in the process that called "
        "it."
    )
