"""Privacy settings of ``dpgrain.torch.Trainer``, and rejected settings of transformers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.noise import RandomState
from dpgrain.units import Relation, Unit, User, unit_level

#: Losses of :mod:`dpgrain.torch.losses`, by name.
LossName = Literal["causal_lm", "masked_lm", "seq2seq", "classification"]
_LOSSES = ("causal_lm", "masked_lm", "seq2seq", "classification")

# Rejected arguments of transformers: the only accepted values, and the reason.
_REJECTED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "fp16": ((False,), "its scale depends on gradients; use bf16"),
    "auto_find_batch_size": ((False,), "the required memory depends on records"),
    "include_num_input_tokens_seen": (("no", False), "the number of tokens depends on records"),
    "skip_memory_metrics": ((True,), "the memory in use depends on records"),
    "torch_compile": ((False,), "layers are recorded when they are called"),
    "neftune_noise_alpha": ((None,), "noise on embeddings depends on lengths"),
    "label_smoothing_factor": ((0.0,), "pass a custom function as loss="),
    "deepspeed": ((None,), "gradients are clipped before they are summed over processes"),
    "fsdp": (([], "", None), "each process has all weights"),
    "debug": (([], ""), "it prints values that the model computes from records"),
    "push_to_hub": (
        (False,),
        "the files of a run must stay with the data; push only the saved model",
    ),
}


@dataclass(frozen=True, kw_only=True)
class PrivacyArguments:
    """Privacy settings of a fine-tuning, next to ``transformers.TrainingArguments``.

    Args:
        n_users: the public number of users in the known population, by which sums are divided; it
            is never counted from the records.
        unit: the protected unit, which is clipped as one block; by default ``User()`` with
            ``users_column``, otherwise ``Record()``.
        target_epsilon: the ε of the guarantee for the whole fine-tuning; or instead
        noise_multiplier: noise sd ÷ clipping bound; or
        share: a share of the open budget, instead of ε and δ.
        target_delta: the δ of the guarantee.
        users_column: the column with the user id of each record.
        elements_column: the column with the cell of each record in a public partition; for
            ``Element()``, and for ``User(max_elements=M)``, which retains M cells of each user.
        clip: the clipping bound of a block's mean gradient (l2 norm over all parameters).
        sampling_rate: the public probability that a step includes a block; by default,
            ``per_device_train_batch_size × gradient_accumulation_steps`` blocks on average.
        elements_per_user: the public number of blocks per user, by which sums are divided.
        sampling: ``"pairs"`` samples each block independently; ``"users"`` samples a user with all
            blocks. ``"records"`` is for ``User(max_elements=M)`` without cells: each record is a
            block, sampled independently, and M different records of each user are retained; the
            user is protected.
        noise: as in :meth:`PrivacyEngine.make_private`.
        bands: as in :meth:`PrivacyEngine.make_private`.
        relation: the neighbouring relation.
        loss: the loss of each record: the name of a loss in :mod:`dpgrain.torch.losses`, or a
            function of the model's outputs and the labels that returns (records,); by default, the
            loss of the model's class.
        max_length: the maximum number of tokens of a record, which is then truncated; by default,
            the limit in the model's configuration. If it is set, the model is tested at this
            length.
        pad_to_max_length: True pads all records to this length, for models with results that depend
            on padding.
        eval_is_public: True states that the evaluation records are public, or belong to people
            outside the data set. Without it, nothing is evaluated. Rows selected, shuffled or
            wrapped from the data set are rejected; copies are not recognized.
        example: the inputs of the model for a few synthetic records, a dictionary of tensors, to
            test it before charging. By default synthetic texts if the model accepts them; otherwise
            the model is tested after charging, on random numbers with the shapes of the first
            batch.
        random_state: a seed for tests and research, which makes the run not private.

    Raises:
        ParameterError: if a number is out of range, if not exactly one of ε, noise and share is
            set, or if columns, unit and sampling are incompatible.

    >>> PrivacyArguments(n_users=1000, target_epsilon=8.0, users_column="author").target_delta
    1e-06
    """

    n_users: int
    unit: Unit | None = None
    target_epsilon: float | None = None
    noise_multiplier: float | None = None
    share: float | None = None
    target_delta: float = 1e-6
    users_column: str | None = None
    elements_column: str | None = None
    clip: float = 0.1
    sampling_rate: float | None = None
    elements_per_user: float = 1.0
    sampling: Literal["pairs", "users", "records"] = "pairs"
    noise: Literal["independent", "banded"] = "independent"
    bands: int | None = None
    relation: Relation = "zero_out"
    loss: LossName | Callable[[Any, Any], Any] | None = None
    max_length: int | None = None
    pad_to_max_length: bool = False
    eval_is_public: bool = False
    example: Any = None
    random_state: RandomState = None

    def __post_init__(self) -> None:
        _validate.integer(minimum=1, n_users=self.n_users)
        _validate.positive(clip=self.clip)
        _validate.positive(elements_per_user=self.elements_per_user)
        _validate.delta(allow_zero=False, target_delta=self.target_delta)
        if self.target_epsilon is not None:
            _validate.positive(target_epsilon=self.target_epsilon)
        _validate.exactly_one(
            target_epsilon=self.target_epsilon,
            noise_multiplier=self.noise_multiplier,
            share=self.share,
        )
        for name in ("pad_to_max_length", "eval_is_public"):
            _validate.boolean(**{name: getattr(self, name)})
        self._check_columns()
        if self.max_length is not None:
            _validate.integer(minimum=1, max_length=self.max_length)
        elif self.pad_to_max_length:
            raise ParameterError("pad_to_max_length requires max_length.", name="max_length")
        if self.loss is not None and not callable(self.loss):
            _validate.one_of(_LOSSES, loss=self.loss)

    def _check_columns(self) -> None:
        """Reject incompatible columns, unit and sampling."""
        _validate.one_of(("pairs", "users", "records"), sampling=self.sampling)
        for name in ("users_column", "elements_column"):
            if getattr(self, name) is not None:
                _validate.instance(str, **{name: getattr(self, name)})
        level = unit_level(self.unit, "record" if self.users_column is None else "user")
        limit = self.unit.max_elements if isinstance(self.unit, User) else None
        of_cells = level == "element" or limit is not None
        if self.users_column is None and (level != "record" or self.elements_column is not None):
            name = "unit" if self.elements_column is None else "elements_column"
            raise ParameterError(
                f"{name} requires users_column, the column of user ids.", name=name
            )
        if self.sampling == "records":
            if limit is None or self.elements_column is not None:
                raise ParameterError(
                    "sampling = 'records' requires unit=dg.User(max_elements=M), which retains M "
                    "records per user, and no elements_column; to protect single records, "
                    "'pairs' samples records.",
                    name="sampling",
                )
        elif of_cells != (self.elements_column is not None):
            raise ParameterError(
                f"elements_column is required with unit={self.unit!r}; pass the column with the "
                "cell of each record, by a public partition."
                if of_cells
                else "elements_column requires unit=dg.Element(), which protects a user's records "
                "in one cell, or unit=dg.User(max_elements=M), which retains M cells per "
                "user.",
                name="elements_column",
            )

    def rate(self, blocks: int) -> float:
        """Return the probability that a step includes a block.

        Args:
            blocks: the average number of blocks in a step if no rate is set.

        Raises:
            ParameterError: if ``blocks`` is not a positive integer.

        >>> PrivacyArguments(n_users=100, target_epsilon=1.0).rate(20)
        0.2
        """
        blocks = _validate.integer(minimum=1, blocks=blocks)
        if self.sampling_rate is not None:
            return self.sampling_rate
        return min(1.0, blocks / (self.n_users * self.elements_per_user))


def check_training_arguments(args: Any) -> None:
    """Reject arguments that log values of records, or invalidate the accounting."""
    for name, (plain, why) in _REJECTED.items():
        value = getattr(args, name, plain[0])
        if value not in plain:
            raise ParameterError(
                f"{name} must be {plain[0]!r} in args, not {_validate.describe(value)}: {why}.",
                name=name,
            )
    if args.n_gpu > 1:
        raise ParameterError(
            f"args must be for one device, not {args.n_gpu}, because a batch would be split "
            "between them; start one process per device, by torchrun --nproc-per-node.",
            name="args",
        )


def number_of_steps(args: Any, rate: float) -> int:
    """Return the number of steps, set directly or by an average number of epochs."""
    if args.max_steps > 0:
        return int(args.max_steps)
    return max(1, math.ceil(float(args.num_train_epochs) / rate))
