"""The processes of one run: a network in ``DistributedDataParallel``, or one process alone.

All processes hold the same records. The first one charges the run, draws blocks, keeps the journal and
draws noise; each reads whole blocks, which are clipped where they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from dpgrain._types import IndexArray
from dpgrain.errors import DpgrainError, ParameterError
from dpgrain.torch.library import torch

Said = TypeVar("Said")


@dataclass(frozen=True)
class Processes:
    """The processes of a run, as one of them sees them.

    Args:
        group: the process group; None for one process alone.
        rank: the number of this process in the group.
        count: how many processes there are.

    >>> alone = Processes()
    >>> alone.first, alone.told(lambda: "drawn")
    (True, 'drawn')
    """

    group: Any = None
    rank: int = 0
    count: int = 1

    @staticmethod
    def of(module: Any) -> tuple[Any, Processes]:
        """Return the network itself, and the processes of its training.

        Args:
            module: a network, which this process trains alone; or one in ``DistributedDataParallel``,
                which all processes of its group train.
        """
        if not isinstance(module, torch.nn.parallel.DistributedDataParallel):
            return module, Processes()
        group = module.process_group
        return module.module, Processes(group, group.rank(), group.size())

    @property
    def alone(self) -> bool:
        """True if there is no other process."""
        return self.group is None

    @property
    def first(self) -> bool:
        """True in the process for charges, draws and files."""
        return self.rank == 0

    def told(self, say: Callable[[], Said]) -> Said:
        """Return in all processes the result of a function, called in the first alone.

        Args:
            say: what is called; its result, or its error, must be one that can be pickled.

        Raises:
            DpgrainError: if the function raises one, or a process is gone.
        """
        if self.alone:
            return say()
        said: list[Any] = [None, None]
        error: DpgrainError | None = None
        if self.first:
            try:
                said[0] = say()
            except DpgrainError as raised:
                said[1] = error = raised
        with _all_there():
            torch.distributed.broadcast_object_list(said, group=self.group, group_src=0)
        if said[1] is not None:
            raise error or said[1]
        result: Said = said[0]
        return result

    def check_alike(self, **values: Any) -> None:
        """Refuse values that differ between processes.

        Args:
            values: what is compared, by the name of the parameter that it follows from.

        Raises:
            ParameterError: in all processes, if one is not the same in all; or if a process is gone.
        """
        if self.alone:
            return
        result: list[Any] = [None] * self.count
        with _all_there():
            torch.distributed.all_gather_object(result, values, group=self.group)
        for name in values:
            if any(other[name] != result[0][name] for other in result):
                raise ParameterError(
                    f"{name} must be the same in all processes of the run, because each process "
                    "has all records.",
                    name=name,
                )

    def add_up(self, found: Any) -> None:
        """Put into each tensor of a sum the sum of all processes' tensors.

        Args:
            found: a sum of blocks, which has the tensors.

        Raises:
            DpgrainError: if a process is gone.
        """
        if self.alone:
            return
        with _all_there():
            for tensor in found.tensors():
                there = tensor.to(self._carrier(tensor))
                torch.distributed.all_reduce(there, group=self.group)
                tensor.copy_(there)

    def hand_out(self, tensors: Iterable[Any]) -> None:
        """Put into each tensor that of the first process.

        Raises:
            DpgrainError: if a process is gone.
        """
        if self.alone:
            return
        with _all_there():
            for tensor in tensors:
                torch.distributed.broadcast(tensor, group=self.group, group_src=0)

    def _carrier(self, tensor: Any) -> Any:
        """Return where a tensor must be to be added up: groups of nccl carry what is on GPUs alone."""
        if torch.distributed.get_backend(self.group) != "nccl":
            return tensor.device
        return torch.device("cuda", torch.cuda.current_device())

    def share(self, things: IndexArray) -> IndexArray:
        """Return the things of this process alone.

        >>> import numpy as np
        >>> [Processes(None, rank, 2).share(np.arange(5)).tolist() for rank in range(2)]
        [[0, 2, 4], [1, 3]]
        """
        return things[self.rank :: self.count]


@contextmanager
def _all_there() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise DpgrainError(
            "another process of this run has ended, or cannot be reached; start all of them "
            "again from the last checkpoint."
        ) from error
