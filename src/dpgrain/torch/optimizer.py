"""The optimizer of a private run: the caller's own, with noisy gradients alone."""

from __future__ import annotations

from typing import Any, NoReturn

from dpgrain import _validate
from dpgrain._fields import MISFITS
from dpgrain.errors import ParameterError
from dpgrain.torch.library import torch
from dpgrain.torch.run import Run


class PrivateOptimizer(torch.optim.Optimizer):
    """An optimizer for steps against noisy gradients; ``PrivacyEngine.make_private`` makes it.

    Args:
        run: the run whose steps it makes.

    Raises:
        ParameterError: if it is no run.

    Learning rates, momentum and weight decay are those of the caller's optimizer, and schedulers take
    this one in its place. A scheduler must not follow a training loss, which has no noise.

    >>> from dpgrain.torch import PrivacyEngine
    >>> data = torch.utils.data.TensorDataset(torch.ones(60, 3), torch.ones(60, 1))
    >>> net = torch.nn.Linear(3, 1)
    >>> net, optimizer, loader = PrivacyEngine(random_state=1).make_private(
    ...     module=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), dataset=data, n_users=60,
    ...     noise_multiplier=2.0, steps=1, sampling_rate=0.5, max_grad_norm=1.0)
    >>> for x, y in loader:
    ...     optimizer.zero_grad()
    ...     torch.nn.functional.mse_loss(net(x), y).backward()
    ...     changed = optimizer.step()
    >>> changed, optimizer.param_groups[0]["lr"]
    (True, 0.1)
    """

    def __init__(self, run: Run) -> None:
        self._run = _validate.instance(Run, run=run)
        self._own = run.optimizer

    @property
    def param_groups(self) -> Any:
        """The groups of parameters, with their learning rates."""
        return self._own.param_groups

    @property
    def state(self) -> Any:
        """The optimizer's state of each parameter."""
        return self._own.state

    @property
    def defaults(self) -> Any:
        """The options that groups have by default."""
        return self._own.defaults

    def step(self, closure: Any = None) -> bool:  # type: ignore[override, unused-ignore]
        """Add the blocks of the batch, and make the optimizer's step at the last batch of a step.

        Args:
            closure: None; an optimizer that reads a batch several times is refused.

        Returns:
            True if parameters were changed: False at a batch of a step that has more to come.

        Raises:
            ParameterError: if the batch was not drawn by the loader, not read once, or stepped on
                before; or gradients reached parameters by a way that was not clipped.
        """
        if closure is not None:
            raise ParameterError(
                "closure must be omitted, because a private step reads each batch once.",
                name="closure",
            )
        return self._run.step()

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: ARG002 - as PyTorch has it
        """Forget the gradients; a later backward pass begins anew."""
        self._run.forget_gradients()

    def state_dict(self) -> Any:
        """Return the state of the caller's optimizer."""
        return self._own.state_dict()

    def load_state_dict(self, state_dict: Any) -> None:
        """Load the state of the caller's optimizer.

        Args:
            state_dict: the state.

        Raises:
            ParameterError: if it is that of an optimizer with other groups of parameters, or none.
        """
        try:
            self._own.load_state_dict(state_dict)
        except MISFITS as error:
            raise ParameterError(
                "state_dict must be returned by state_dict() of an optimizer with the same "
                "groups of parameters.",
                name="state_dict",
            ) from error

    def add_param_group(self, param_group: Any) -> NoReturn:  # noqa: ARG002 - as PyTorch has it
        """Refuse another group, with gradients that would not be clipped.

        Raises:
            ParameterError: always.
        """
        raise ParameterError(
            "param_group must be added to the optimizer before make_private, because later "
            "parameters would be neither clipped nor accounted for."
        )

    def __reduce__(self) -> NoReturn:
        self._run.__reduce__()

    def __deepcopy__(self, memo: object) -> NoReturn:
        self._run.__reduce__()

    def __repr__(self) -> str:
        return f"PrivateOptimizer({self._own!r})"
