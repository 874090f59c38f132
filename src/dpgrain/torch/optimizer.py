"""Optimizer of a private run: the caller's optimizer with noisy gradients."""

from __future__ import annotations

from typing import Any, NoReturn

from dpgrain import _validate
from dpgrain._validate import MISFIT_ERRORS
from dpgrain.errors import ParameterError
from dpgrain.torch.library import torch
from dpgrain.torch.training_run import Run


class PrivateOptimizer(torch.optim.Optimizer):
    """Optimizer that steps with noisy gradients.

    Args:
        run: the run of the steps.

    Raises:
        ParameterError: if ``run`` is not a run.

    Created by ``PrivacyEngine.make_private``. It uses the learning rate, momentum and weight decay
    of the caller's optimizer, and replaces that optimizer in schedulers. A scheduler must not
    follow a training loss, which has no noise.

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
        """Parameter groups, with their learning rates."""
        return self._own.param_groups

    @property
    def state(self) -> Any:
        """State of the optimizer, by parameter."""
        return self._own.state

    @property
    def defaults(self) -> Any:
        """Default options of parameter groups."""
        return self._own.defaults

    def step(self, closure: Any = None) -> bool:  # type: ignore[override, unused-ignore]
        """Add the blocks of the batch; after the last batch, make the optimizer's step.

        Args:
            closure: must be None, because an optimizer must not read a batch several times.

        Returns:
            True if parameters were changed; False if the step has more batches.

        Raises:
            ParameterError: if the batch was not drawn by the loader, was not read exactly once, or
                was used before; or if gradients reached parameters without clipping.
        """
        if closure is not None:
            raise ParameterError(
                "closure must be omitted, because a private step reads each batch once.",
                name="closure",
            )
        return self._run.step()

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: ARG002 - as PyTorch has it
        """Clear the gradients; a later backward pass starts again."""
        self._run.clear_gradients()

    def state_dict(self) -> Any:
        """Return the state of the caller's optimizer."""
        return self._own.state_dict()

    def load_state_dict(self, state_dict: Any) -> None:
        """Load the state of the caller's optimizer.

        Args:
            state_dict: the state.

        Raises:
            ParameterError: if it is not the state of an optimizer with the same parameter groups.
        """
        try:
            self._own.load_state_dict(state_dict)
        except MISFIT_ERRORS as error:
            raise ParameterError(
                "state_dict must be returned by state_dict() of an optimizer with the same "
                "groups of parameters.",
                name="state_dict",
            ) from error

    def add_param_group(self, param_group: Any) -> NoReturn:  # noqa: ARG002 - as PyTorch has it
        """Reject parameter groups, because their gradients would not be clipped.

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
