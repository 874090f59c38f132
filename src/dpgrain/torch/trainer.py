"""Private fine-tuning of Hugging Face models with ``transformers.Trainer``.

The loop, arguments, callbacks, schedules, evaluation and saving are Hugging Face's. Each of their
steps is a step of a :class:`PrivacyEngine`: its blocks are sampled, read in batches of bounded
size, clipped, added up and published with noise. Logs that depend on records are suppressed.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpgrain import _validate
from dpgrain._lazy_import import require
from dpgrain._validate import MISFIT_ERRORS
from dpgrain.errors import DpgrainError, ParameterError
from dpgrain.means.user_mean import MeanOfUsers, mean_of_users
from dpgrain.noise import RandomState
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.torch import losses
from dpgrain.torch.collation import (
    Labels,
    ReadableDataset,
    RecordCollator,
    is_per_token,
    synthetic_record,
    synthetic_rows,
)
from dpgrain.torch.gradient_precision import is_half
from dpgrain.torch.hf_adapters import (
    RUN_FOLDER,
    DatasetColumn,
    PrivateStep,
    RecordHashes,
    StepLoader,
    SteppedOptimizer,
    run_file,
    shares_rows,
    write_guarantee,
)
from dpgrain.torch.hf_labels import base_model, decoder_inputs, losses_on, record_loss
from dpgrain.torch.library import torch
from dpgrain.torch.loader import PrivateLoader
from dpgrain.torch.preflight import FEW_RECORDS, evaluating, is_close
from dpgrain.torch.privacy_arguments import (
    PrivacyArguments,
    check_training_arguments,
    number_of_steps,
)
from dpgrain.torch.privacy_engine import PrivacyEngine
from dpgrain.torch.training_result import EVALUATED

require("transformers")
import transformers  # noqa: E402

# Logged values, which do not depend on records. Measures of public evaluations are added.
_LOGGED = frozenset(("learning_rate", "epoch", "step"))
# Losses with a label for each token.
_OF_TOKENS = (losses.causal_lm, losses.masked_lm, losses.seq2seq)
# Numbers of tokens of synthetic records, read separately and padded together.
_LENGTHS = (2, 3, 5, 8, 13)


class Trainer(transformers.Trainer):  # type: ignore[misc, unused-ignore]
    """A ``transformers.Trainer`` with privacy for records, elements or users.

    Args:
        model: the model, which must be built from public data.
        args: ``transformers.TrainingArguments``. A step samples ``per_device_train_batch_size ×
            gradient_accumulation_steps`` blocks on average per process, and reads at most
            ``per_device_train_batch_size`` records at a time. ``max_grad_norm`` is ignored: it
            would clip the noisy gradient again.
        privacy: the privacy settings.
        **others: other arguments of ``transformers.Trainer``, such as ``train_dataset``,
            ``eval_dataset``, ``data_collator``, ``processing_class`` and ``callbacks``.

    Attributes:
        privacy: the privacy settings.

    Raises:
        ParameterError: if an argument would log or save values that depend on records, or would
            make the accounting invalid.

    Formal guarantee: :attr:`guarantee`, for the model after every step, all checkpoints, the state
    of the trainer, model cards, logs and callbacks. It has the assumptions of
    :class:`PrivacyEngine`, and assumes that padding does not change the model's result for a
    record. Each record is collated separately, then padded to the longest of its batch. Source:
    docs/theory, "Gradient steps of networks".

    >>> import tempfile
    >>> sizes = {"vocab_size": 8, "n_embd": 4, "n_layer": 1, "n_head": 1, "n_positions": 4}
    >>> model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    >>> rows = [{"input_ids": [1, 2, 3], "labels": [1, 2, 3]} for _ in range(20)]
    >>> args = transformers.TrainingArguments(tempfile.mkdtemp(), max_steps=2, report_to=[])
    >>> privacy = PrivacyArguments(n_users=20, target_epsilon=8.0)
    >>> trainer = Trainer(model, args, privacy=privacy, train_dataset=rows)
    >>> trainer.train().global_step, trainer.guarantee.epsilon() <= 8.0
    (2, True)
    """

    optimizer: Any
    data_collator: Any

    def __init__(
        self, model: Any = None, args: Any = None, *, privacy: PrivacyArguments, **others: Any
    ) -> None:
        if not isinstance(privacy, PrivacyArguments):
            raise ParameterError(
                f"privacy must be PrivacyArguments, not {type(privacy).__name__}.", name="privacy"
            )
        if model is not None or others.get("model_init") is None:
            _validate.instance(torch.nn.Module, model=model)
        if others.get("compute_loss_func") is not None:
            raise ParameterError(
                "compute_loss_func must be omitted, because it returns one number per batch; "
                "pass the loss of each record as loss= of PrivacyArguments.",
                name="compute_loss_func",
            )
        args = transformers.TrainingArguments() if args is None else copy.copy(args)
        _validate.instance(transformers.TrainingArguments, args=args)
        check_training_arguments(args)
        self.privacy = privacy
        self._blocks = (
            args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
        )
        rate = privacy.rate(self._blocks)
        args.max_steps = number_of_steps(args, rate)
        args.gradient_accumulation_steps, args.max_grad_norm = 1, 0.0
        # Records are sampled in each step, so there is no position to resume from.
        args.ignore_data_skip = True
        self._engine: PrivacyEngine | None = None
        self._loader: PrivateLoader | None = None
        self._checkpoint: Path | None = None
        # Hugging Face's trainer disables caches permanently.
        self._use_cache = getattr(getattr(model, "config", None), "use_cache", None)
        super().__init__(model=model, args=args, **others)
        if self.eval_dataset is not None:
            self._check_public(self.eval_dataset, "eval_dataset")
        # The speed of a progress bar depends on the sampled blocks.
        for callback in list(self.callback_handler.callbacks):
            if type(callback).__name__.endswith("ProgressCallback"):
                self.remove_callback(callback)
        self.add_callback(_SaveCallback(self))
        self._loss = record_loss(self.model, privacy.loss)
        self._padding_checked = False
        if getattr(self.data_collator, "seed", None) is not None:
            raise ParameterError(
                "data_collator must have no seed, because its draws would depend on the records "
                "read before; omit seed, and the run's own generator is used.",
                name="data_collator",
            )
        self._collator = self._create_collator()

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the whole fine-tuning, whichever of its checkpoints is published.

        Raises:
            ParameterError: if nothing has been trained yet.
        """
        if self._engine is None:
            raise ParameterError("this trainer has no run yet; call train first.")
        guarantee = self._engine.guarantee
        padded = Fact("tried-padding" if self._padding_checked else "padding")
        public = [
            *([] if self.privacy.pad_to_max_length else [padded]),
            *([EVALUATED] if self.privacy.eval_is_public else []),
        ]
        return replace(guarantee, public=(*guarantee.public, *public))

    def train(self, resume_from_checkpoint: Any = None, **others: Any) -> Any:
        """Fine-tune the model, optionally from a checkpoint.

        Args:
            resume_from_checkpoint: the folder of a checkpoint; True for the last one.
            **others: passed to ``transformers.Trainer.train``.

        Returns:
            the ``TrainOutput`` with the number of steps. Its loss is NaN, because it would depend
            on records.

        Raises:
            ParameterError: if this trainer has been used before, no folder is set, or
                :class:`PrivacyEngine` rejects the run.
            DataError: if the checkpoint has no run.
        """
        if self._engine is not None:
            raise ParameterError(
                "a trainer has only one run; create another Trainer for another run."
            )
        folder = self._folder(resume_from_checkpoint)
        if folder is not None:
            self._checkpoint = run_file(Path(folder))
        if self._use_cache is not None:
            self.model.config.use_cache = False
        try:
            result = super().train(resume_from_checkpoint=folder, **others)
        finally:
            if self._use_cache is not None:
                self.model.config.use_cache = self._use_cache
            if self._loader is not None:
                self._loader.abandon()
        return result._replace(training_loss=math.nan, metrics={})

    def _folder(self, stated: Any) -> str | None:
        """Return the folder of the checkpoint to resume; None for a new run."""
        if stated is True:
            last: str | None = transformers.trainer_utils.get_last_checkpoint(self.args.output_dir)
            return last
        if stated is None or stated is False or (isinstance(stated, str) and not stated):
            return None
        return str(_validate.path(resume_from_checkpoint=stated))

    def create_optimizer(self, *args: Any, **others: Any) -> Any:
        """Create the optimizer, and charge or resume the run."""
        super().create_optimizer(*args, **others)
        if self._engine is not None or self.train_dataset is None:
            return self.optimizer
        dataset = self.train_dataset
        users = DatasetColumn.of(dataset, self.privacy.users_column, "users_column")
        elements = (
            RecordHashes(dataset)
            if self.privacy.sampling == "records"
            else DatasetColumn.of(dataset, self.privacy.elements_column, "elements_column")
        )
        self._check_padding()
        reading: dict[str, Any] = {
            "module": self._wrapped_model(),
            "optimizer": self.optimizer,
            "dataset": ReadableDataset(self._with_used_columns(dataset)),
            "users": users,
            "elements": elements,
            "max_rows": self.args.per_device_train_batch_size,
            "collate_fn": self._collator,
        }
        if self._checkpoint is not None:
            engine, _, private, loader = PrivacyEngine.resume(self._checkpoint, **reading)
        else:
            engine = PrivacyEngine(
                unit=self.privacy.unit,
                relation=self.privacy.relation,
                random_state=self.privacy.random_state,
            )
            _, private, loader = engine.make_private(**reading, **self._run_parameters())
        self._engine, self._loader, self._private = engine, loader, private
        self.optimizer = SteppedOptimizer(private)
        return self.optimizer

    def _wrapped_model(self) -> Any:
        """Return the model; with several processes, in the wrapper that identifies them."""
        if self.args.world_size == 1:
            return self.model
        return torch.nn.parallel.DistributedDataParallel(self.model)

    def get_train_dataloader(self) -> Any:
        """Return the remaining steps, each of which samples its own records.

        Raises:
            ParameterError: if there is no ``train_dataset``.
        """
        if self.train_dataset is None:
            raise ParameterError("train_dataset is required.", name="train_dataset")
        return StepLoader(self)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return batches of public records, padded as in training.

        Args:
            eval_dataset: the records; by default, the trainer's.

        Raises:
            ParameterError: if the records are not declared public, or are rows of
                ``train_dataset``.
        """
        self._check_public(eval_dataset, "eval_dataset")
        with self._padding():
            return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Return batches of public records, padded as in training.

        Args:
            test_dataset: the records.

        Raises:
            ParameterError: if the records are not declared public, or are rows of
                ``train_dataset``.
        """
        self._check_public(test_dataset, "test_dataset")
        with self._padding():
            return super().get_test_dataloader(test_dataset)

    @contextmanager
    def _padding(self) -> Iterator[None]:
        """Make loaders created inside pad records of different lengths."""
        collator = self.data_collator
        self.data_collator = replace(self._collator, collator=collator).padded
        try:
            yield
        finally:
            self.data_collator = collator

    def training_step(self, model: Any, inputs: Any, *_others: Any, **_named: Any) -> Any:
        """Make a step: read its batches, and step with the noisy sum of clipped blocks.

        Args:
            model: the wrapped model. The inner model is called instead, because the run itself
                combines the processes' sums.
            inputs: the step.

        Returns:
            zero, because the loss of a batch depends on records.
        """
        model.train()
        for batch in inputs.batches:
            prepared = dict(self._prepare_inputs(batch))
            self._record_losses(self.model, prepared).sum().backward()
            self._private.step()
        return torch.zeros((), device=self.args.device)

    def floating_point_ops(self, inputs: Any) -> int:  # noqa: ARG002 - as they have it
        """Return 0, because the number of operations of a batch depends on records."""
        return 0

    def num_examples(self, dataloader: Any) -> int:
        """Return the number of records; for private ones, the public number of users."""
        if isinstance(dataloader, StepLoader):
            return self.privacy.n_users
        return int(super().num_examples(dataloader))

    def log(self, logs: dict[str, float], *others: Any, **named: Any) -> None:
        """Log values independent of private records: rates, steps, public measures.

        Args:
            logs: the values to log.
            *others: passed to ``transformers.Trainer.log``.
            **named: passed to ``transformers.Trainer.log``.
        """
        public = {name: value for name, value in logs.items() if self._is_public(name)}
        if public:
            super().log(public, *others, **named)

    def evaluate(self, eval_dataset: Any = None, *others: Any, **named: Any) -> Any:
        """Evaluate the model on records that are declared public.

        Args:
            eval_dataset: the records; by default, the trainer's.
            *others: passed to ``transformers.Trainer.evaluate``.
            **named: passed to ``transformers.Trainer.evaluate``.

        Raises:
            ParameterError: if the records are not declared public, or cannot be evaluated.
        """
        self._check_public(eval_dataset, "eval_dataset")
        with _measured("eval_dataset"):
            return super().evaluate(eval_dataset, *others, **named)

    def release_loss(
        self,
        dataset: Any,
        *,
        largest: float,
        epsilon: float | None = None,
        delta: float = 1e-6,
        share: float | None = None,
        n_users: int | None = None,
        random_state: RandomState = None,
    ) -> MeanOfUsers:
        """Publish the model's loss on private records as a separate release.

        Args:
            dataset: the records, with the trainer's column of users; without one, each record is a
                user.
            largest: the upper bound of a record's loss, such as the logarithm of the vocabulary
                size for a loss per token. Unreadable records have loss 0.
            epsilon: the ε of the guarantee, in addition to the training's.
            delta: the δ of the guarantee.
            share: a share of the open budget, instead of ε and δ.
            n_users: the public number of these users, if it is known.
            random_state: a seed for tests and research, which makes the release not private.

        Returns:
            the mean over users of the mean loss of their records, with its error and guarantee.

        Raises:
            ParameterError: if a number is out of range, the open budget is insufficient, or there
                are several processes.

        Formal guarantee: the guarantee of :func:`dpgrain.mean_of_users`, if the model processes
        records separately. A budget or ledger accounts for the training and this release together.
        """
        _validate.positive(largest=largest)
        if self.args.world_size > 1:
            raise ParameterError(
                "release_loss must be called in a single process, because each of several would "
                "publish separate noise, and only one would be charged; load the saved model "
                "there."
            )
        users = DatasetColumn.of(dataset, self.privacy.users_column, "users_column")
        losses = losses_on(
            ReadableDataset(self._with_used_columns(dataset)),
            self._collator,
            lambda batch: self._record_losses(self.model, dict(self._prepare_inputs(batch))),
            self.args.per_device_eval_batch_size,
            self.model,
        )
        return mean_of_users(
            losses.clip(0.0, largest)[:, None],
            users=users,
            bound=largest,
            epsilon=epsilon,
            delta=delta if share is None else 0.0,
            share=share,
            relation=self.privacy.relation,
            n_users=n_users,
            random_state=random_state,
        )

    def push_to_hub(self, *_others: Any, **_named: Any) -> Any:
        """Reject uploads of the folder, because it contains the files of the run.

        Raises:
            ParameterError: always.
        """
        raise ParameterError(
            "push_to_hub would publish the files of the run, which can be used to test guesses "
            "of its labels; save_model to a separate folder, and upload that."
        )

    def predict(self, test_dataset: Any, *others: Any, **named: Any) -> Any:
        """Predict records that are declared public, and measure the predictions.

        Args:
            test_dataset: the records.
            *others: passed to ``transformers.Trainer.predict``.
            **named: passed to ``transformers.Trainer.predict``.

        Raises:
            ParameterError: if the records are not declared public, or cannot be predicted.
        """
        self._check_public(test_dataset, "test_dataset")
        with _measured("test_dataset"):
            return super().predict(test_dataset, *others, **named)

    def hyperparameter_search(self, *_others: Any, **_named: Any) -> Any:
        """Reject a hyperparameter search, because its runs would not be accounted for.

        Raises:
            ParameterError: always.
        """
        raise ParameterError(
            "hyperparameter_search starts runs without accounting; charge each to a "
            "budget, with share=, and compare them on public records."
        )

    def save_model(self, output_dir: str | None = None, *others: Any, **named: Any) -> None:
        """Save the model, with its guarantee in the model card and a separate file.

        Args:
            output_dir: the folder; by default, the folder in the arguments.
            *others: passed to ``transformers.Trainer.save_model``.
            **named: passed to ``transformers.Trainer.save_model``.

        Raises:
            ParameterError: if it is not a path.
        """
        if output_dir is not None:
            output_dir = str(_validate.path(output_dir=output_dir))
        super().save_model(output_dir, *others, **named)
        if self._engine is not None and self.args.should_save:
            write_guarantee(Path(output_dir or self.args.output_dir), self.guarantee)

    def create_model_card(self, *others: Any, **named: Any) -> None:
        """Write the model card, including the guarantee.

        Args:
            *others: passed to ``transformers.Trainer.create_model_card``.
            **named: passed to ``transformers.Trainer.create_model_card``.
        """
        super().create_model_card(*others, **named)
        if self._engine is not None and self.args.should_save:
            write_guarantee(Path(self.args.output_dir), self.guarantee)

    def save_run(self) -> None:
        """Save the run next to the checkpoint of this step, for resuming."""
        if self._engine is not None and self.args.should_save:
            folder = Path(self.args.output_dir)
            (folder / RUN_FOLDER).mkdir(parents=True, exist_ok=True)
            self._engine.save(folder / RUN_FOLDER / f"run-{self.state.global_step}.pt")
            for file in (folder / RUN_FOLDER).glob("run-*.pt"):
                if not (folder / f"checkpoint-{file.stem.removeprefix('run-')}").exists():
                    file.unlink()

    def remaining_steps(self) -> Iterator[Any]:
        """Yield the remaining steps, each with its batches."""
        loader = self._loader
        for batches in loader.by_step() if loader is not None and len(loader) else ():
            yield PrivateStep(batches)

    def _save_rng_state(self, output_dir: str) -> None:
        """Save no generators, because their state depends on the positions of records."""

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Load no generators."""

    def _run_parameters(self) -> dict[str, Any]:
        privacy = self.privacy
        return {
            "n_users": privacy.n_users,
            "steps": self.args.max_steps,
            "sampling_rate": privacy.rate(self._blocks),
            "elements_per_user": privacy.elements_per_user,
            "max_grad_norm": privacy.clip,
            "noise_multiplier": privacy.noise_multiplier,
            "target_epsilon": privacy.target_epsilon,
            "target_delta": privacy.target_delta,
            "share": privacy.share,
            # Each record is then a separate cell.
            "sampling": "pairs" if privacy.sampling == "records" else privacy.sampling,
            "noise": privacy.noise,
            "bands": privacy.bands,
            "example": self._example(),
            "loss_reduction": "sum",
        }

    def _with_used_columns(self, dataset: Any) -> Any:
        """Return records with the columns that the model uses."""
        if not hasattr(dataset, "column_names"):
            return dataset
        try:
            return self._remove_unused_columns(dataset, description="training")
        except MISFIT_ERRORS as error:
            name = "train_dataset" if dataset is self.train_dataset else "dataset"
            raise ParameterError(
                f"{name} must be a data set with columns that the model accepts, but selecting "
                f"them raises a {type(error).__name__}.",
                name=name,
            ) from error

    def _create_collator(self) -> RecordCollator:
        """Return the collation of records, tested on a synthetic record."""
        config, privacy = getattr(self.model, "config", None), self.privacy
        padding = getattr(self.processing_class, "pad_token_id", None)
        if padding is None:
            padding = getattr(config, "pad_token_id", None)
        most = privacy.max_length or getattr(config, "max_position_embeddings", None)
        result = RecordCollator(
            self._get_collator_with_removed_columns(self.data_collator, "training"),
            padding or 0,
            labels=self._labels(),
            masks="attention_mask" in self._forward_parameters(),
            most=most,
            fixed=privacy.pad_to_max_length,
        )
        dataset = self.train_dataset
        record = None if dataset is None else synthetic_record(self._with_used_columns(dataset))
        return result if record is None else result.with_template(record, "labels")

    def _labels(self) -> Labels:
        """Return the type of the loss's labels."""
        if self._loss in _OF_TOKENS:
            return "tokens"
        return "whole" if self._loss is losses.classification else "real"

    def _forward_parameters(self) -> Mapping[str, Any]:
        return inspect.signature(base_model(self.model).forward).parameters

    def _vocabulary_size(self) -> int:
        """Return the vocabulary size."""
        return int(base_model(self.model).get_input_embeddings().num_embeddings)

    def _example(self) -> Any:
        """Return the example, or synthetic texts of a length that the model can read."""
        length = self.privacy.max_length
        if self.privacy.example is not None or "input_ids" not in self._forward_parameters():
            return self.privacy.example
        if length is None and not self._padding_checked:
            return None
        like = self._collator.template
        if like is None:
            names = ["input_ids", *(["attention_mask"] if self._collator.masks else [])]
            like = {name: torch.ones(1, 1, dtype=torch.long) for name in names}
        like = {name: value for name, value in like.items() if not name.startswith("label")}
        if not all(is_per_token(name, value, "real") for name, value in like.items()):
            return None
        if length is None:
            batch = self._collator.padded_batch(
                synthetic_rows(like, self._lengths(), self._vocabulary_size())
            )
        else:
            lengths = [max(1, length // part) for part in range(1, FEW_RECORDS + 1)]
            rows = synthetic_rows(like, lengths, self._vocabulary_size())
            batch = replace(self._collator, fixed=True, most=length).padded_batch(rows)
        if self._loss is losses.seq2seq:
            batch.setdefault("decoder_input_ids", batch["input_ids"])
        return {name: tensor.to(self.args.device) for name, tensor in batch.items()}

    def _check_padding(self) -> None:
        """Reject a model with a loss that changes if a synthetic record is padded."""
        like = self._collator.template
        if like is None or "input_ids" not in like or self.privacy.pad_to_max_length:
            return
        try:
            rows = synthetic_rows(like, self._lengths(), self._vocabulary_size())
            with evaluating(self.model):
                alone = torch.cat([self._synthetic_losses([row]) for row in rows])
                together = self._synthetic_losses(rows)
        except Exception:
            # A model that needs other records is tested on its example only.
            return
        if not is_close(alone, together, half=is_half(next(self.model.parameters()).dtype)):
            raise ParameterError(
                "model must compute the same outputs for a padded record, but did not for "
                "synthetic records; pad all records to one length, with pad_to_max_length=True "
                "and max_length of PrivacyArguments.",
                name="model",
            )
        self._padding_checked = True

    def _lengths(self) -> list[int]:
        """Return the lengths of synthetic texts, up to the model's limit."""
        most = self._collator.most or max(_LENGTHS)
        return [length for length in _LENGTHS if length <= most]

    def _synthetic_losses(self, rows: list[dict[str, Any]]) -> Any:
        inputs = self._prepare_inputs(self._collator.padded_batch(rows))
        return self._record_losses(self.model, dict(inputs))

    def _record_losses(self, model: Any, inputs: dict[str, Any]) -> Any:
        names = [name for name in ("labels", "label") if name in inputs]
        if not names:
            raise ParameterError(
                "train_dataset (or data_collator) must provide labels, because the loss needs "
                "them.",
                name="train_dataset",
            )
        labels = inputs.pop(names[0])
        if self._loss is losses.seq2seq and "decoder_input_ids" not in inputs:
            inputs["decoder_input_ids"] = decoder_inputs(self.model, labels)
        return self._loss(model(**inputs), labels)

    def _is_public(self, name: str) -> bool:
        if name in _LOGGED:
            return True
        timed = name.endswith(("_runtime", "_per_second"))
        return self.privacy.eval_is_public and name.startswith(("eval_", "test_")) and not timed

    def _check_public(self, dataset: Any, name: str) -> None:
        parts = list(dataset.values()) if isinstance(dataset, dict) else [dataset]
        private = self.train_dataset
        # A name refers to one of the trainer's data sets.
        known = [part for part in parts if part is not None and not isinstance(part, str)]
        if any(getattr(part, "shape", None) == () for part in known):
            raise ParameterError(f"{name} must contain records, not one number.", name=name)
        if private is not None and any(shares_rows(private, part) for part in known):
            raise ParameterError(
                f"{name} must not contain rows of train_dataset, because measures on them are not "
                "charged; pass records of other people, or use release_loss.",
                name=name,
            )
        if not self.privacy.eval_is_public:
            raise ParameterError(
                f"{name} must contain public records, or people outside train_dataset; confirm "
                "this by eval_is_public=True of PrivacyArguments, because these measures are not "
                "charged, or use release_loss, which publishes the loss on private records with "
                "noise.",
                name=name,
            )


class _SaveCallback(transformers.TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Callback that saves the run with each Hugging Face checkpoint."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def on_save(self, *_of_the_trainer: Any, **_named: Any) -> None:
        self._trainer.save_run()


@contextmanager
def _measured(name: str) -> Iterator[None]:
    """Raise an error about parameter ``name`` if its records cannot be evaluated."""
    try:
        yield
    except (DpgrainError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, *MISFIT_ERRORS) as error:
        raise ParameterError(
            f"{name} must contain records that the model, data_collator and compute_metrics "
            f"accept, but one raises a {type(error).__name__}.",
            name=name,
        ) from error
