"""Names in Opacus's engine, and their equivalents in dpgrain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from dpgrain.errors import ParameterError

Parameters = ParamSpec("Parameters")
Whose = TypeVar("Whose")
Made = TypeVar("Made")

_INSTEAD = (
    "make_private(module=, optimizer=, dataset=, n_users=, steps=, sampling_rate=, max_grad_norm=, "
    "target_epsilon=, target_delta=)"
)
#: Parameters of other engines, mainly Opacus, and their equivalents.
PARAMETERS: Mapping[str, str] = {
    "data_loader": "dataset= takes the data set itself, and sampling_rate= the batch size ÷ n_users, "
    "as batches are drawn anew in each step",
    "epochs": "steps= takes their number: epochs ÷ sampling_rate",
    "batch_first": "records are rows of a batch, along its first axis",
    "poisson_sampling": "leave it out, as each block is always drawn by its own coin",
    "clipping": "max_grad_norm= takes a number, or an AdaptiveNorm; all layers are clipped as one",
    "noise_generator": "leave it out; random_state= of PrivacyEngine is for tests and research",
    "grad_sample_mode": "leave it out, as gradients of blocks need no mode",
    "criterion": "leave it out, and keep the loss in the training loop",
    "sample_rate": "sampling_rate= takes it",
    "epsilon": "target_epsilon= takes it",
    "delta": "target_delta= takes it",
}
#: Names in Opacus's engine and their equivalents.
NAMES: Mapping[str, str] = {
    "make_private_with_epsilon": f"write {_INSTEAD}",
    "is_compatible": "make_private refuses layers that mix records by name",
    "validate": "make_private refuses layers that mix records by name",
    "accountant": "guarantee has the promise of the run, and its curve over units",
    "save_checkpoint": "save(path) writes the run, and resume(path, …) goes on with it",
    "load_checkpoint": "save(path) writes the run, and resume(path, …) goes on with it",
}


def refused(name: str) -> AttributeError:
    """Return the error about an unknown attribute of an engine.

    >>> str(refused("is_compatible"))
    "'PrivacyEngine' has no 'is_compatible': make_private refuses layers that mix records by name."
    """
    told = f"'PrivacyEngine' has no {name!r}"
    return AttributeError(f"{told}: {NAMES[name]}." if name in NAMES else f"{told}.")


def named_here(
    method: Callable[Concatenate[Whose, Parameters], Made],
) -> Callable[Concatenate[Whose, Parameters], Made]:
    """Make a method explain the equivalents of Opacus's parameters."""

    @wraps(method)
    def named(whose: Whose, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Made:
        other = next((name for name in kwargs if name in PARAMETERS), None)
        if other is not None:
            raise ParameterError(
                f"{other} is not a parameter of make_private: {PARAMETERS[other]}.", name=other
            )
        return method(whose, *args, **kwargs)

    return named
