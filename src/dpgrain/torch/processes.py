"""Processes of one run, with ``DistributedDataParallel`` or a single process.

All processes have the same records. The first process charges the run, samples blocks, writes the
journal and draws noise. Each process reads and clips whole blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from dpgrain._types import IndexArray
from dpgrain.errors import DpgrainError, ParameterError
from dpgrain.torch.library import torch

Result = TypeVar("Result")


@dataclass(frozen=True)
class Processes:
    """Processes of a run; ``group`` is None for a single process."""

    group: Any = None
    rank: int = 0
    count: int = 1

    @staticmethod
    def unwrap(module: Any) -> tuple[Any, Processes]:
        """Return the network inside ``DistributedDataParallel``, and its processes."""
        if not isinstance(module, torch.nn.parallel.DistributedDataParallel):
            return module, Processes()
        group = module.process_group
        return module.module, Processes(group, group.rank(), group.size())

    @property
    def is_single(self) -> bool:
        """True for a single process."""
        return self.group is None

    @property
    def is_first(self) -> bool:
        """True for the process that charges, draws and writes files."""
        return self.rank == 0

    def from_first(self, function: Callable[[], Result]) -> Result:
        """Call a function in the first process; return or raise its result in all."""
        if self.is_single:
            return function()
        outcome: list[Any] = [None, None]
        error: DpgrainError | None = None
        if self.is_first:
            try:
                outcome[0] = function()
            except DpgrainError as raised:
                outcome[1] = error = raised
        with _connected():
            torch.distributed.broadcast_object_list(outcome, group=self.group, group_src=0)
        if outcome[1] is not None:
            raise error or outcome[1]
        result: Result = outcome[0]
        return result

    def check_equal(self, **values: Any) -> None:
        """Reject, in all processes, values that differ; they have parameter names."""
        if self.is_single:
            return
        result: list[Any] = [None] * self.count
        with _connected():
            torch.distributed.all_gather_object(result, values, group=self.group)
        for name in values:
            if any(other[name] != result[0][name] for other in result):
                raise ParameterError(
                    f"{name} must be the same in all processes of the run, because each process "
                    "has all records.",
                    name=name,
                )

    def sum_over(self, sums: Any) -> None:
        """Sum the tensors of a sum over all processes, in place."""
        if self.is_single:
            return
        with _connected():
            for tensor in sums.tensors():
                moved = tensor.to(self._carrier(tensor))
                torch.distributed.all_reduce(moved, group=self.group)
                tensor.copy_(moved)

    def broadcast(self, tensors: Iterable[Any]) -> None:
        """Broadcast tensors from the first process, in place."""
        if self.is_single:
            return
        with _connected():
            for tensor in tensors:
                torch.distributed.broadcast(tensor, group=self.group, group_src=0)

    def _carrier(self, tensor: Any) -> Any:
        """Return the device for communication; nccl requires tensors on a GPU."""
        if torch.distributed.get_backend(self.group) != "nccl":
            return tensor.device
        return torch.device("cuda", torch.cuda.current_device())

    def share(self, values: IndexArray) -> IndexArray:
        """Return this process's share of an array."""
        return values[self.rank :: self.count]


@contextmanager
def _connected() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise DpgrainError(
            "another process of this run has ended, or cannot be reached; start all of them "
            "again from the last checkpoint."
        ) from error
