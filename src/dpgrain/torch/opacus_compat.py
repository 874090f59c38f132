"""Names in Opacus's engine, and their equivalents in dpgrain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from dpgrain.errors import ParameterError

Parameters = ParamSpec("Parameters")
Owner = TypeVar("Owner")
Result = TypeVar("Result")

_INSTEAD = (
    "make_private(module=, optimizer=, dataset=, n_users=, steps=, sampling_rate=, max_grad_norm=, "
    "target_epsilon=, target_delta=)"
)
#: Parameters of other engines, mainly Opacus, and their equivalents.
PARAMETERS: Mapping[str, str] = {
    "data_loader": "pass the data set as dataset=, and the batch size ÷ n_users as sampling_rate=, "
    "because each step draws a new batch",
    "epochs": "pass epochs ÷ sampling_rate as steps=",
    "batch_first": "records must be in the first dimension of a batch",
    "poisson_sampling": "omit it, because each block is always sampled independently",
    "clipping": "pass a number or an AdaptiveNorm as max_grad_norm=, which clips all layers together",
    "noise_generator": "omit it; random_state= of PrivacyEngine is for tests and research",
    "grad_sample_mode": "omit it, because gradients of blocks need no mode",
    "criterion": "omit it, and compute the loss in the training loop",
    "sample_rate": "pass it as sampling_rate=",
    "epsilon": "pass it as target_epsilon=",
    "delta": "pass it as target_delta=",
}
#: Names in Opacus's engine and their equivalents.
NAMES: Mapping[str, str] = {
    "make_private_with_epsilon": f"write {_INSTEAD}",
    "is_compatible": "make_private rejects layers that mix records, by name",
    "validate": "make_private rejects layers that mix records, by name",
    "accountant": "guarantee has the guarantee of the run and its curve over units",
    "save_checkpoint": "save(path) writes the run, and resume(path, …) continues it",
    "load_checkpoint": "save(path) writes the run, and resume(path, …) continues it",
}


def unknown_attribute(name: str) -> AttributeError:
    """Return the error about an unknown attribute of an engine."""
    text = f"'PrivacyEngine' has no {name!r}"
    return AttributeError(f"{text}: {NAMES[name]}." if name in NAMES else f"{text}.")


def explain_parameters(
    method: Callable[Concatenate[Owner, Parameters], Result],
) -> Callable[Concatenate[Owner, Parameters], Result]:
    """Make a method explain the equivalents of Opacus's parameters."""

    @wraps(method)
    def wrapper(owner: Owner, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        other = next((name for name in kwargs if name in PARAMETERS), None)
        if other is not None:
            raise ParameterError(
                f"{other} is not a parameter of make_private: {PARAMETERS[other]}.", name=other
            )
        return method(owner, *args, **kwargs)

    return wrapper
