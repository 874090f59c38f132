"""Private training of a network in one call, with defaults for most settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpgrain import _validate
from dpgrain._files import exists
from dpgrain._formatting import shorten
from dpgrain._progress import Progress
from dpgrain.errors import ParameterError
from dpgrain.inputs.array_blocks import default_unit
from dpgrain.means import ClippedMean
from dpgrain.noise import RandomState
from dpgrain.optimize import Average, Weighted
from dpgrain.publishing.publish import annotate_interrupt
from dpgrain.torch.adaptive_clipping import AdaptiveNorm
from dpgrain.torch.library import torch
from dpgrain.torch.loader import PrivateLoader
from dpgrain.torch.losses import Loss, inputs_and_target, moved, record_losses
from dpgrain.torch.observer import Evaluate, Observer
from dpgrain.torch.preflight import evaluating
from dpgrain.torch.privacy_engine import PrivacyEngine
from dpgrain.torch.training_query import check_dataset, check_module
from dpgrain.torch.training_result import EVALUATED, Training
from dpgrain.torch.training_run import RecordTemplate
from dpgrain.units import Relation, Unit

# Default sampling: a tenth of all blocks, within these limits of blocks per step. With the same
# number of steps, the noise is then barely larger than with all blocks, and steps are much cheaper.
_SHARE, _FEWEST_BLOCKS, _MOST_BLOCKS = 0.1, 64, 2048
_EVALUATIONS = 20
# Default power of the step number that weights iterates in their average.
_POWER = 8.0
_LEARNING_RATE = 0.01
_ERROR_LETTERS = 300
# Options passed to the engine; the second group affects only how a process reads the data.
_OPTIONS = (
    "noise_multiplier",
    "sampling",
    "exact",
    "noise",
    "bands",
    "collate_fn",
    "records_apart",
)
_HOW_TO_READ = ("collate_fn", "records_apart")


def train(
    module: Any,
    loss: Loss,
    dataset: Any,
    *,
    n_users: int,
    users: Any = None,
    elements: Any = None,
    unit: Unit | None = None,
    relation: Relation = "zero_out",
    epsilon: float | None = None,
    delta: float = 1e-6,
    share: float | None = None,
    steps: int = 300,
    sampling_rate: float | None = None,
    elements_per_user: float = 1.0,
    max_grad_norm: float | AdaptiveNorm = 0.1,
    optimizer: Any = None,
    average: Average | None = None,
    evaluate: Evaluate | None = None,
    example: Any = None,
    every: int | None = None,
    checkpoint: str | Path | None = None,
    max_rows: int | None = 2048,
    progress: bool | None = None,
    random_state: RandomState = None,
    **options: Any,
) -> Training:
    """Train a network privately, for records, elements or users.

    Args:
        module: the network, which is trained in place.
        loss: a function of outputs and targets, such as ``torch.nn.functional.cross_entropy``. It
            is called with one record at a time, so no loss can mix records.
        dataset: the records, a map-style data set of inputs and a target, ``(x, y)``; or of one
            tensor that is both.
        n_users: the public number of users in the known population, by which sums are divided; it
            is never counted from the records.
        users: (records,) the user id of each record; None to protect records.
        elements: (records,) the cell of each record in a public partition.
        unit: the protected unit: ``Record()``, ``Element()``, ``User()`` or
            ``User(max_elements=M)``; by default ``User()`` if users are passed, otherwise
            ``Record()``.
        relation: the neighbouring relation.
        epsilon: the ε of the guarantee for the whole training.
        delta: the δ of the guarantee.
        share: a share of the open budget, instead of ε and δ.
        steps: the number of steps; all are charged before the first record is read.
        sampling_rate: the public probability that a step includes a block; by default a tenth,
            limited to between 64 and 2,048 blocks on average.
        elements_per_user: the public number of blocks per user, by which sums are divided.
        max_grad_norm: the clipping bound of a block's mean gradient (l2 norm over all parameters);
            or an :class:`AdaptiveNorm`, which follows the norms.
        optimizer: a PyTorch optimizer of all trained parameters; by default Adam with a learning
            rate of 0.01.
        average: how the weights after each step are averaged; by default, mostly over the last
            tenth. ``dpgrain.optimize.Last()`` returns the last weights.
        evaluate: a function of the network in evaluation mode, which returns a number or several by
            name. It must read only records that are public, or belong to people outside
            ``dataset``; the guarantee does not cover its results for other records.
        example: a synthetic record, such as ``(torch.zeros(3), torch.tensor(0))``, to test the
            network and the loss before charging. By default, zeros in the shape of the tensors of a
            ``TensorDataset``, which is public. Without an example, other data sets are not tested,
            because their records are read only after charging.
        every: the number of steps between evaluations and between checkpoints; by default, a
            twentieth of all steps.
        checkpoint: a file that is written regularly, from which the same call resumes in a new
            process; a finished training is read from it.
        max_rows: the maximum number of rows that the network reads at a time; None for no limit.
        progress: True shows a progress bar, False does not; None shows one in a terminal.
        random_state: a seed for tests and research, which makes the training not private.
        **options: ``noise_multiplier`` instead of ε, ``sampling``, ``exact``, ``noise``, ``bands``,
            ``collate_fn`` and ``records_apart``, as in :meth:`PrivacyEngine.make_private`.

    Raises:
        ParameterError: if a parameter is out of range, a layer mixes records, the network or the
            loss fails on such records, or the open budget is insufficient; nothing is charged in
            these cases.

    Formal guarantee: the guarantee of :class:`PrivacyEngine`, for the network after every step,
    their average, and the whole result except :attr:`Training.seconds`. It assumes that layers and
    ``collate_fn`` process records separately and in order, and that no record makes reading, the
    network or the loss fail, such as an out-of-range class. Source: element-level paper, Algorithm
    1 and (15), with sampled pairs instead of users; docs/theory, "Gradient steps of networks".

    >>> import torch
    >>> data = torch.utils.data.TensorDataset(torch.ones(60, 3), torch.ones(60, 1))
    >>> trained = train(
    ...     torch.nn.Linear(3, 1), torch.nn.functional.mse_loss, data,
    ...     users=[row // 3 for row in range(60)], n_users=20, epsilon=2.0, steps=10, random_state=1)
    >>> trained
    Training(weights=4, steps=10)
    >>> trained.guarantee.epsilon() <= 2.0
    True
    """
    _check_module(module)
    _check_options(options)
    noise = options.get("noise_multiplier")
    _validate.exactly_one(epsilon=epsilon, share=share, noise_multiplier=noise)
    if epsilon is not None:
        _validate.positive(epsilon=epsilon)
    _validate.delta(allow_zero=False, delta=delta)
    rounds = _validate.integer(minimum=1, steps=steps)
    blocks = _validate.integer(minimum=1, n_users=n_users) * _validate.positive(
        elements_per_user=elements_per_user
    )
    rate = _rate(blocks) if sampling_rate is None else sampling_rate
    if progress is not None:
        _validate.boolean(progress=progress)
    interval = max(1, rounds // _EVALUATIONS) if every is None else every
    _check_evaluation(evaluate, interval)
    if optimizer is None:
        trained = [p for p in module.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(trained, lr=_LEARNING_RATE)
    inputs = _check_example(module, loss, dataset, example, options.get("collate_fn"))
    rule = _rule(average)
    observer = Observer(module, rule, evaluate, interval)
    settings: dict[str, Any] = {
        "n_users": n_users,
        "target_epsilon": epsilon,
        "target_delta": delta,
        "share": share,
        "steps": rounds,
        "sampling_rate": rate,
        "elements_per_user": elements_per_user,
        "max_grad_norm": max_grad_norm,
        "loss_reduction": "sum",
        **{name: value for name, value in options.items() if name not in _HOW_TO_READ},
    }
    reading: dict[str, Any] = {
        "module": module,
        "optimizer": optimizer,
        "dataset": dataset,
        "users": users,
        "elements": elements,
        "max_rows": max_rows,
        **{name: value for name, value in options.items() if name in _HOW_TO_READ},
    }
    unit = default_unit(unit, users)
    described = _describe({**settings, "average": rule, "unit": unit, "relation": relation})
    place = None if checkpoint is None else _validate.path(checkpoint=checkpoint)
    if place is not None and exists(place):
        engine, _, private, loader = PrivacyEngine.resume(place, **reading)
        _check_same(engine.extra.get("asked", {}), described)
        observer.load_state(engine.extra["observer"])
    else:
        engine = PrivacyEngine(unit=unit, relation=relation, random_state=random_state)
        template = None if inputs is None else RecordTemplate(inputs)
        _, private, loader = engine.make_private(**settings, **reading, example=template)
    keep = _Checkpoints(engine, place, observer, described, interval)
    guarantee = engine.guarantee
    if evaluate is not None:
        guarantee = replace(guarantee, public=(*guarantee.public, EVALUATED))
    began = time.monotonic()
    watched = optimizer.register_step_post_hook(observer.after_step)
    try:
        with annotate_interrupt("the training"), Progress(rounds, progress) as bar:
            observer.begin(loader, bar)
            keep.write()
            _run_steps(module, loss, private, loader, keep)
            keep.write()
    finally:
        loader.abandon()
        watched.remove()
    # The public numbers of the last step, with the final clipping bound.
    last: Any = engine.mean
    mean: ClippedMean = replace(last, clip=loader.published.get("bound", last.clip))
    return Training(
        module=module,
        guarantee=guarantee,
        history=observer.end(mean.noise_sd),
        mean=mean,
        settings=_settings(optimizer, blocks, rounds, rate, every=interval if evaluate else None),
        seconds=time.monotonic() - began,
    )


@dataclass
class _Checkpoints:
    """Checkpoints of a training; ``settings`` describes the requested public numbers."""

    engine: PrivacyEngine
    place: Path | None
    observer: Observer
    settings: Mapping[str, str]
    every: int
    _saved: int = -1

    def write(self) -> None:
        """Write the file, unless this step is already saved."""
        if self.place is not None and self._saved != self.observer.done:
            extra = {"asked": dict(self.settings), "observer": self.observer.state()}
            self.engine.save(self.place, extra=extra)
            self._saved = self.observer.done

    def after_step(self) -> None:
        """Write the file after every ``every`` steps."""
        if self.observer.done - self._saved >= self.every:
            self.write()


def _describe(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the stated public numbers as text for a checkpoint."""
    names = {"target_epsilon": "epsilon", "target_delta": "delta"}
    stated = {name: value for name, value in settings.items() if value is not None}
    return {names.get(name, name): repr(value) for name, value in stated.items()}


def _check_same(then: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Reject resuming a training with different settings."""
    for name in {**now, **then}:
        if then.get(name) != now.get(name):
            raise ParameterError(
                f"{name} must be the same as in the training in checkpoint, which cannot change; "
                "or pass another file, for another training.",
                name="checkpoint",
            )


def _run_steps(
    module: Any, loss: Loss, optimizer: Any, loader: PrivateLoader, keep: _Checkpoints
) -> None:
    """Make the remaining steps, if any."""
    module.train()
    for batch in loader if len(loader) else ():
        inputs, target = inputs_and_target(moved(batch, module))
        optimizer.zero_grad()
        record_losses(loss, module(*inputs), target).backward()
        if optimizer.step():
            keep.after_step()


def _check_options(options: dict[str, Any]) -> None:
    for name in options:
        if name not in _OPTIONS:
            raise ParameterError(
                f"{name} is not an option of train; the options are {', '.join(_OPTIONS)}: "
                "sampling_rate sets the share of blocks per step, steps the number of steps, and "
                "the optimizer the learning rate.",
                name=name,
            )


def _check_evaluation(evaluate: object, every: object) -> None:
    """Reject an invalid evaluation."""
    _validate.integer(minimum=1, every=every)
    if evaluate is not None and not callable(evaluate):
        raise ParameterError(
            "evaluate must be a function of the network, such as its accuracy on public records, "
            f"not {_validate.describe(evaluate)}.",
            name="evaluate",
        )


def _rate(blocks: float) -> float:
    """Return the default sampling rate for a public number of blocks."""
    return min(1.0, min(max(_SHARE, _FEWEST_BLOCKS / blocks), _MOST_BLOCKS / blocks))


def _check_module(module: Any) -> None:
    """Reject invalid networks and networks without trained parameters."""
    check_module(module)
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        raise ParameterError(
            "module must be a plain network; to train in several processes, use a custom loop "
            "with PrivacyEngine.",
            name="module",
        )
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ParameterError(
            "module has no trained parameter; set requires_grad for some.", name="module"
        )


def _rule(average: Average | None) -> Average:
    """Return a valid averaging rule."""
    if average is None:
        return Weighted(_POWER)
    if isinstance(average, type) or not callable(getattr(average, "weight", None)):
        raise ParameterError(
            "average must be a rule of dpgrain.optimize, such as Last() or Uniform(), not "
            f"{_validate.describe(average)}.",
            name="average",
        )
    return average


def _check_example(
    module: Any,
    loss: Loss,
    dataset: Any,
    example: Any,
    collate: Callable[[list[Any]], Any] | None,
) -> tuple[Any, ...] | None:
    """Run network and loss on a synthetic record first; return its inputs, or None."""
    check_dataset(dataset)
    if isinstance(dataset, tuple):
        raise ParameterError(
            "dataset must return records by index, such as torch.utils.data.TensorDataset(x, y), "
            "not be a tuple.",
            name="dataset",
        )
    if collate is not None:
        _validate.function(collate_fn=collate)
    record = _zero_record(dataset) if example is None else example
    if record is None:
        return None
    collate = torch.utils.data.default_collate if collate is None else collate
    inputs: tuple[Any, ...] = ()
    try:
        inputs, target = inputs_and_target(moved(collate([record]), module))
        with evaluating(module):
            outputs = module(*(torch.zeros_like(part) for part in inputs))
            record_losses(loss, outputs, torch.zeros_like(target))
    except ParameterError:
        raise
    except Exception as error:
        why = shorten(" ".join(str(error).split()), _ERROR_LETTERS).rstrip(".")
        raise ParameterError(
            "module and loss must accept a record of the data set, but zeros in the shape of one "
            f"raise a {type(error).__name__}: {why}{_other_type(inputs, module)}.",
            name="loss",
        ) from error
    return inputs


def _zero_record(dataset: Any) -> Any:
    """Return a record of zeros for a data set of tensors; None for other data sets.

    Shapes and types of tensors are public, and reading them reads no record.
    """
    if type(dataset) is torch.utils.data.Subset:
        return _zero_record(dataset.dataset)
    if type(dataset) is not torch.utils.data.TensorDataset:
        return None
    return tuple(torch.zeros(part.shape[1:], dtype=part.dtype) for part in dataset.tensors)


def _other_type(inputs: Sequence[Any], module: Any) -> str:
    """Describe inputs with another dtype than the network, if any."""
    own = next(iter(module.parameters())).dtype
    for part in inputs:
        if part.is_floating_point() and part.dtype != own:
            return (
                f" (inputs are {part.dtype}, and the network has {own}; convert the inputs by "
                f".to({own}))"
            )
    return ""


def _settings(
    optimizer: Any, blocks: float, steps: int, rate: float, *, every: int | None
) -> tuple[tuple[str, str], ...]:
    """Describe the requested settings."""
    rates = sorted({float(group["lr"]) for group in optimizer.param_groups})
    evaluated = "never" if every is None else f"every {every:,} steps"
    return (
        ("Steps", f"{steps:,}"),
        ("Probability of a block in a step", f"{rate:.4g}"),
        ("Blocks that sums are divided by", f"{rate * blocks:,.4g}"),
        ("Optimizer", type(optimizer).__name__),
        ("Learning rate", ", ".join(f"{value:g}" for value in rates)),
        ("Evaluated", evaluated),
    )
