"""Their loop trains with our steps: the same weights, the promise, and nothing of records in logs."""

from __future__ import annotations

import json
import logging
import math
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.refusals import refuses
from tests.torch.families import FAMILIES, TOKENS, transformers
from tests.torch.library import torch
from tests.torch.trainers import RECORDS, USERS, datasets, texts, trainer, weights

# isort: split
import dpgrain as dg
from dpgrain.accounting import SampledGaussian
from dpgrain.errors import ParameterError
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.torch import losses
from dpgrain.torch.hf_adapters import GUARANTEE_FILE
from dpgrain.torch.privacy_engine import PrivacyEngine
from dpgrain.units import Element, Record, User

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.mark.parametrize("lora", [False, True], ids=["fully", "lora"])
def test_weights_equal_a_custom_loop(tmp_path: Path, lora: bool) -> None:
    theirs = trainer(tmp_path, lora=lora)
    result = theirs.train()
    assert result.global_step == theirs.state.global_step == 4
    assert math.isnan(result.training_loss)
    own, data = FAMILIES["gpt2"].made(lora=lora), texts()
    engine = PrivacyEngine(random_state=3)
    trained = [p for p in own.parameters() if p.requires_grad]
    _, optimizer, loader = engine.make_private(
        module=own,
        optimizer=torch.optim.SGD(trained, lr=0.1),
        dataset=data.select_columns(["input_ids", "labels"]),
        users=list(data["author"]),
        n_users=USERS,
        noise_multiplier=0.7,
        steps=4,
        sampling_rate=8 / USERS,
        max_grad_norm=0.1,
        max_rows=4,
        loss_reduction="sum",
        collate_fn=theirs._collator,
    )
    own.train()
    for batch in loader:
        labels = batch.pop("labels")
        losses.causal_lm(own(**batch), labels).sum().backward()
        optimizer.step()
    assert theirs.guarantee.public[-1].kind == "tried-padding"
    told = replace(theirs.guarantee, user="", public=theirs.guarantee.public[:-1])
    assert told == replace(engine.guarantee, user="")
    assert all(torch.equal(p, weights(own)[n]) for n, p in weights(theirs.model).items())


_SAMPLINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "records, billed for users": (
        {"unit": User(max_elements=2), "sampling": "records"},
        {"sampling": "pairs", "level": "element", "max_elements": 2},
    ),
    "users": ({"unit": User()}, {"sampling": "pairs", "level": "user"}),
    "users with their cells": (
        {"unit": User(max_elements=2), "elements_column": "day", "sampling": "users"},
        {"sampling": "users", "level": "element", "max_elements": 2},
    ),
    "cells": (
        {"unit": Element(), "elements_column": "day"},
        {"sampling": "pairs", "level": "element"},
    ),
    "records": ({"unit": Record()}, {"sampling": "pairs", "level": "record"}),
}


@pytest.mark.parametrize("name", _SAMPLINGS)
def test_the_promise_is_the_exact_one_of_the_sampler(tmp_path: Path, name: str) -> None:
    privacy, event = _SAMPLINGS[name]
    data = texts().add_column("day", [row % 3 % 2 for row in range(RECORDS)])
    theirs = trainer(tmp_path, data, privacy={**privacy, "sampling_rate": 0.3})
    theirs.train()
    exact = SampledGaussian(0.7, 0.3, 4, blocks="shared", **event)
    assert theirs.guarantee.event == exact
    assert theirs.guarantee.epsilon() == exact.epsilon(1e-6, unit=privacy["unit"])
    assert theirs.guarantee.user == "author"
    assert "author" in str(theirs.guarantee)


def test_records_are_sampled_individually_up_to_the_charged_number(tmp_path: Path) -> None:
    sizes = []
    for kept in (1, 2, 3, 9):
        asked = {"unit": User(max_elements=kept), "sampling": "records", "sampling_rate": 1.0}
        theirs = trainer(tmp_path / str(kept), privacy=asked, args={"max_steps": 1})
        theirs.train()
        assert theirs._loader is not None
        blocks = theirs._loader._blocks
        sizes.append((blocks.blocks, len(blocks.rows)))
    assert sizes == [(kept * USERS, kept * USERS) for kept in (1, 2, 3, 3)]


def test_guarantee_is_in_the_card_and_model_folder(tmp_path: Path) -> None:
    asked = {"noise_multiplier": None, "target_epsilon": 3.0}
    theirs = trainer(tmp_path, privacy=asked)
    theirs.train()
    theirs.save_model()
    for folder in (tmp_path, tmp_path / "checkpoint-2", tmp_path / "checkpoint-4"):
        text = (folder / GUARANTEE_FILE).read_text()
        assert Guarantee.from_json(text) == theirs.guarantee
        assert str(theirs.guarantee) in (folder / "README.md").read_text()
        assert (folder / "README.md").read_text().count("## Privacy") == 1
    assert theirs.guarantee.level == "user"
    assert 2.7 < theirs.guarantee.epsilon() <= 3.0
    theirs.save_model()
    assert (tmp_path / "README.md").read_text().count("## Privacy") == 1


def _without_names(content: bytes) -> bytes:
    """A file without randomly assigned ids."""
    return re.sub(rb"#[0-9a-f]{8}", b"#", content)


def test_saved_and_logged_values_do_not_follow_records(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    class Watching(transformers.TrainerCallback):
        """A callback that stores all logs."""

        def on_log(
            self, _args: Any, _state: Any, _control: Any, logs: Any = None, **_: Any
        ) -> None:
            seen.append(dict(logs))

    found: list[dict[str, bytes]] = []
    for data in (texts(1), texts(7, longest=4)):
        # Weights are unchanged, so that nothing else is published.
        args = {"learning_rate": 0.0}
        theirs = trainer(tmp_path / "run", data, args=args, callbacks=[Watching()])
        theirs.train()
        theirs.save_model()
        files = [file for file in sorted((tmp_path / "run").rglob("*")) if file.is_file()]
        kept = [file for file in files if file.suffix != ".steps" and "run-" not in file.name]
        found.append({str(file): _without_names(file.read_bytes()) for file in kept})
        shutil.rmtree(tmp_path / "run")
    assert found[0].keys() == found[1].keys()
    assert [name for name in found[0] if found[0][name] != found[1][name]] == []
    assert any(name.endswith("trainer_state.json") for name in found[0])
    assert not any("rng_state" in name for name in found[0])
    assert seen
    assert all(logs.keys() <= {"learning_rate", "epoch", "step"} for logs in seen)


class Recording(transformers.TrainerCallback):
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *passed, **named: self.keep(name, passed, named)
        return super().__getattribute__(name)

    def keep(self, name: str, passed: Any, named: dict[str, Any]) -> None:
        _, state, control = passed
        # Objects, such as the model, are also passed.
        plain = {
            of: told for of, told in named.items() if isinstance(told, dict | float | int | str)
        }
        self.seen.append((name, repr([vars(state), vars(control), plain])))


def test_numbers_of_records_change_no_output(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Logs, metrics, progress, events and results, bit for bit, with unchanged weights."""
    found = []
    library = logging.getLogger("transformers")
    monkeypatch.setattr(library, "propagate", True)
    for name in ("time", "perf_counter"):
        monkeypatch.setattr(time, name, lambda: 1.0)
    for authors in (USERS, 5):
        recording, folder = Recording(), tmp_path / "run"
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "transformers"):
            theirs = trainer(
                folder,
                texts(authors).select(range(authors * 3)),
                args={"learning_rate": 0.0, "eval_strategy": "steps", "eval_steps": 2},
                privacy={"sampling_rate": 0.5, "eval_is_public": True},
                eval_dataset=texts(5, longest=2),
                callbacks=[recording],
            )
            result = theirs.train()
            metrics = theirs.evaluate()
        printed = capfd.readouterr()
        found.append(
            {
                "result": repr(result),
                "metrics": repr(metrics),
                "history": repr(theirs.state.log_history),
                "events": recording.seen,
                "logs": [
                    (each.name, each.getMessage())
                    for each in caplog.records
                    # Other modules log what they find once in a process.
                    if each.name.startswith(("transformers.trainer", "dpgrain"))
                ],
                # The progress bar of written files has another clock.
                "printed": re.sub(r"\[[^]]*it/s\]", "", printed.out + printed.err),
                "guarantee": str(theirs.guarantee),
            }
        )
        shutil.rmtree(folder)
    assert found[0] == found[1]
    assert "eval_loss" in found[0]["metrics"]
    assert any("Num examples" in text for _, text in found[0]["logs"])
    assert {"on_log", "on_step_end", "on_save"} <= {name for name, _ in found[0]["events"]}


def test_run_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole")
    whole.train()

    class Killed(transformers.TrainerCallback):
        """A callback that ends the process after three steps."""

        def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            if state.global_step == 3:
                raise KeyboardInterrupt

    first = trainer(tmp_path / "run", callbacks=[Killed()])
    with pytest.raises(KeyboardInterrupt):
        first.train()
    again = trainer(tmp_path / "run")
    result = again.train(resume_from_checkpoint=True)
    assert result.global_step == 4
    assert replace(again.guarantee, user="") == replace(whole.guarantee, user="")
    assert all(torch.equal(p, weights(whole.model)[n]) for n, p in weights(again.model).items())
    assert sorted(path.name for path in (tmp_path / "run" / "_run").glob("run-*.pt")) == [
        "run-2.pt",
        "run-4.pt",
    ]


def test_empty_steps_are_made(tmp_path: Path) -> None:
    theirs = trainer(tmp_path, privacy={"sampling_rate": 0.02}, args={"max_steps": 20})
    before = weights(theirs.model)
    assert theirs.train().global_step == 20
    assert not any(torch.equal(p, weights(theirs.model)[name]) for name, p in before.items())


def test_epochs_are_steps_on_average(tmp_path: Path) -> None:
    theirs = trainer(tmp_path, args={"max_steps": -1, "num_train_epochs": 2})
    assert theirs.args.max_steps == math.ceil(2 / (8 / USERS))


def test_half_precision_trains(tmp_path: Path) -> None:
    theirs = trainer(tmp_path, args={"bf16": True})
    assert theirs.train().global_step == 4


def test_a_model_generates_as_before(tmp_path: Path) -> None:
    model = FAMILIES["gpt2"].made()
    model.config.use_cache = True
    theirs = trainer(tmp_path, model=model)
    theirs.train()
    assert model.config.use_cache is True
    model.eval()
    start = torch.randint(3, TOKENS, (1, 3))
    assert model.generate(start, max_new_tokens=4, do_sample=False).shape[1] <= 7
    assert not any("forward" in vars(part) for part in model.modules() if part is not model)


def test_measured_records_are_public(tmp_path: Path) -> None:
    data = texts()
    with refuses("eval_dataset", "eval_is_public"):
        trainer(tmp_path, data, eval_dataset=texts(5))
    with refuses("eval_dataset", "train_dataset"):
        trainer(tmp_path, data, eval_dataset=data, privacy={"eval_is_public": True})
    with refuses("eval_dataset", "train_dataset"):
        trainer(tmp_path, data, eval_dataset={"a": data}, privacy={"eval_is_public": True})
    with refuses("test_dataset", "eval_is_public"):
        trainer(tmp_path, data).predict(texts(5))
    theirs = trainer(
        tmp_path,
        data,
        eval_dataset=texts(5, longest=2),
        privacy={"eval_is_public": True},
        args={"eval_strategy": "steps", "eval_steps": 2},
    )
    theirs.train()
    measured = [logs for logs in theirs.state.log_history if "eval_loss" in logs]
    assert len(measured) == 2
    assert not any("runtime" in name for logs in measured for name in logs)
    assert "the records for evaluating the network" in str(theirs.guarantee)


PARTS: dict[str, Any] = {
    "selected": lambda data: data.select([1, 5, 7]),
    "a slice": lambda data: data.select(range(4, 9)),
    "shuffled": lambda data: data.shuffle(seed=1),
    "filtered": lambda data: data.filter(lambda row: len(row["labels"]) > 3),
    "columns": lambda data: data.remove_columns("author"),
    "among others": lambda data: datasets.concatenate_datasets([texts(5), data.select([2])]),
    "a subset": lambda data: torch.utils.data.Subset(data, [1, 2]),
}


@pytest.mark.parametrize("part", PARTS)
def test_parts_of_the_training_records_are_not_public(tmp_path: Path, part: str) -> None:
    data = texts()
    private, own = PARTS[part](data), {"eval_is_public": True}
    uses: dict[str, list[Callable[[], Any]]] = {
        "test_dataset": [
            lambda: trainer(tmp_path, data, privacy=own).predict(private),
            lambda: trainer(tmp_path, data, privacy=own).get_test_dataloader(private),
        ],
        "eval_dataset": [
            lambda: trainer(tmp_path, data, privacy=own, eval_dataset=private),
            lambda: trainer(tmp_path, data, privacy=own).evaluate(private),
            lambda: trainer(tmp_path, data, privacy=own).get_eval_dataloader({"a": private}),
        ],
    }
    for name, use in [(name, use) for name, of in uses.items() for use in of]:
        with refuses(name, "train_dataset"):
            use()
    # A loader of training records must not be had without the statement, either.
    with refuses("eval_dataset", "eval_is_public"):
        trainer(tmp_path, data).get_eval_dataloader(texts(5))


def test_public_records_may_have_several_lengths(tmp_path: Path) -> None:
    theirs = trainer(
        tmp_path,
        privacy={"eval_is_public": True},
        args={"per_device_eval_batch_size": 5},
    )
    public, alone = texts(5), []
    for row in public.to_list():
        tokens = torch.tensor([row["input_ids"]])
        with torch.no_grad():
            alone.append(theirs.model.eval()(input_ids=tokens, labels=tokens).logits[0])
    found = theirs.predict(public)
    longest = max(len(logits) for logits in alone)
    assert found.predictions.shape[:2] == (len(public), longest)
    for logits, labels, wanted in zip(found.predictions, found.label_ids, alone, strict=True):
        assert torch.allclose(torch.tensor(logits[: len(wanted)]), wanted, atol=1e-5)
        assert (labels[len(wanted) :] == -100).all()
    assert math.isfinite(theirs.evaluate(public)["eval_loss"])


@pytest.mark.parametrize("kind", ["reduce_lr_on_plateau", "greedy"])
def test_a_plateau_is_one_of_public_records(tmp_path: Path, kind: str) -> None:
    if kind not in {str(known.value) for known in transformers.SchedulerType}:
        pytest.skip("this version of transformers does not have it")
    args = {
        "lr_scheduler_type": kind,
        "lr_scheduler_kwargs": {"patience": 0, "factor": 0.5},
        "metric_for_best_model": "loss",
        "eval_strategy": "steps",
        "eval_steps": 1,
    }
    with refuses("eval_dataset", "eval_is_public"):
        trainer(tmp_path, args=args, eval_dataset=texts(5))
    theirs = trainer(tmp_path, args=args, eval_dataset=texts(5), privacy={"eval_is_public": True})
    theirs.train()
    measured = [logs["eval_loss"] for logs in theirs.state.log_history if "eval_loss" in logs]
    assert theirs.lr_scheduler.best in measured


@pytest.mark.parametrize(
    ("args", "name"),
    [
        ({"include_num_input_tokens_seen": True}, "include_num_input_tokens_seen"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size"),
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor"),
        ({"skip_memory_metrics": False}, "skip_memory_metrics"),
        ({"neftune_noise_alpha": 5.0}, "neftune_noise_alpha"),
        ({"debug": "underflow_overflow"}, "debug"),
        ({"push_to_hub": True}, "push_to_hub"),
    ],
)
def test_settings_revealing_records_are_rejected(
    tmp_path: Path, args: dict[str, Any], name: str
) -> None:
    with refuses(name):
        trainer(tmp_path, args=args)


def test_other_runs_are_rejected(tmp_path: Path) -> None:
    with refuses("users_column", "'nobody'"):
        trainer(tmp_path, privacy={"users_column": "nobody"}).train()
    with refuses("compute_loss_func"):
        trainer(tmp_path, compute_loss_func=lambda *_: 0)
    theirs = trainer(tmp_path)
    for use, words in (
        (lambda: theirs.guarantee, "no run yet"),
        (theirs.hyperparameter_search, "without accounting"),
        (theirs.push_to_hub, "files of the run"),
    ):
        with pytest.raises(ParameterError, match=words):
            use()
    theirs.train()
    with pytest.raises(ParameterError, match="one run"):
        theirs.train()


def pictures(rows: int = 4) -> Any:
    made = FAMILIES["vit"].draw(rows)["pixel_values"].tolist()
    return datasets.Dataset.from_dict({"pixel_values": made, "labels": [1] * rows})


def test_a_class_without_a_known_loss_states_one(tmp_path: Path) -> None:
    model = FAMILIES["vit"].made()
    assert trainer(tmp_path, pictures(), model=model)._loss is losses.classification
    base, args = model.vit, {"label_names": ["labels"]}
    with refuses("loss", "ViTModel"):
        trainer(tmp_path, pictures(), model=base, args=args)
    own = lambda outputs, labels: labels  # noqa: E731
    made = trainer(tmp_path, pictures(), model=base, args=args, privacy={"loss": own})
    assert made._loss is own


def test_states_are_json(tmp_path: Path) -> None:
    theirs = trainer(tmp_path)
    theirs.train()
    state = json.loads((tmp_path / "checkpoint-4" / "trainer_state.json").read_text())
    assert state["total_flos"] == state["num_input_tokens_seen"] == 0
    assert all(logs.keys() <= {"learning_rate", "epoch", "step"} for logs in state["log_history"])


class Looking(transformers.TrainerCallback):
    """A callback that notes whether the model has changed before a step begins, and its mode after."""

    def __init__(self) -> None:
        self.seen: list[tuple[bool, bool]] = []

    def on_train_begin(self, *_: Any, model: Any, **__: Any) -> None:
        self.last = weights(model)

    def on_step_begin(self, *_: Any, model: Any, **__: Any) -> None:
        now = weights(model)
        self.seen.append((any(not torch.equal(p, now[n]) for n, p in self.last.items()), True))

    def on_step_end(self, *_: Any, model: Any, **__: Any) -> None:
        self.last = weights(model)
        self.seen.append((False, model.training))


@pytest.mark.parametrize("evaluated", [False, True])
def test_callbacks_do_not_see_empty_samples(tmp_path: Path, evaluated: bool) -> None:
    """One record would be present with certainty if a step differed from others."""
    seen = []
    for rows in (0, 1):
        callback = Looking()
        args: dict[str, Any] = {"max_steps": 8, "learning_rate": 1.0, "save_strategy": "no"}
        privacy: dict[str, Any] = {"sampling_rate": 0.3, "n_users": 100, "noise_multiplier": 2.0}
        more: dict[str, Any] = {}
        if evaluated:
            args |= {"eval_strategy": "steps", "eval_steps": 1}
            privacy["eval_is_public"] = True
            more["eval_dataset"] = texts(5, longest=2)
        trainer(
            tmp_path / str(rows), texts().select(range(rows)), callbacks=[callback], args=args,
            privacy=privacy, **more,
        ).train()  # fmt: skip
        seen.append(callback.seen)
    assert seen[0] == seen[1]
    assert len(seen[0]) == 16


def test_collator_with_a_custom_generator_is_rejected(tmp_path: Path) -> None:
    class Seeded:
        seed = 7

        def __call__(self, records: Any) -> Any:
            return transformers.default_data_collator(records)

    with refuses("data_collator", "seed"):
        trainer(tmp_path, data_collator=Seeded())


# Records of any column type, and their values by the fixed rules.
_ODD: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"input_ids": None, "labels": None}, {"input_ids": [0], "labels": [-100]}),
    ({"input_ids": [4, None], "labels": [4, 5]}, {"input_ids": [0], "labels": [-100]}),
    ({"input_ids": [4, 5], "labels": None}, {"input_ids": [0], "labels": [-100]}),
    ({"input_ids": [], "labels": []}, {"input_ids": [0], "labels": [-100]}),
    (
        {"input_ids": [10**9, -4, 5, 6], "labels": [4, 4, 5, 6]},
        {"input_ids": [0, 0, 5, 6], "labels": [4, 4, 5, 6]},
    ),
    (
        {"input_ids": [4, 5, 6, 7], "labels": [4, TOKENS, -3, 7]},
        {"input_ids": [4, 5, 6, 7], "labels": [4, -100, -100, 7]},
    ),
    (
        {"input_ids": [5, 6] * 40, "labels": [5, 6] * 40},
        {"input_ids": [5, 6] * 8, "labels": [5, 6] * 8},
    ),
]


def test_no_record_ends_a_training_or_moves_another_one(tmp_path: Path) -> None:
    found = []
    for odd in (True, False):
        rows = texts().to_list()
        for place, (one, plain) in enumerate(_ODD):
            rows[5 * place] |= one if odd else plain
        asked = {"sampling_rate": 1.0, "users_column": None}
        theirs = trainer(tmp_path / str(odd), datasets.Dataset.from_list(rows), privacy=asked)
        assert theirs.train().global_step == 4
        found.append(weights(theirs.model))
    for name, part in found[0].items():
        torch.testing.assert_close(part, found[1][name], rtol=1e-5, atol=1e-6)


def test_steps_without_readable_records_are_made(tmp_path: Path) -> None:
    # One author has more records than are read at a time.
    rows = [{"input_ids": None, "labels": None, "author": row // 5} for row in range(6)]
    data = datasets.Dataset.from_list(rows, features=texts().features)
    theirs = trainer(tmp_path, data, privacy={"sampling_rate": 1.0})
    before = weights(theirs.model)
    assert theirs.train().global_step == 4
    assert not any(torch.equal(p, weights(theirs.model)[name]) for name, p in before.items())


def test_mismatched_schema_is_rejected_before_reading_rows(tmp_path: Path) -> None:
    with refuses("train_dataset", "labels"):
        trainer(tmp_path, texts().remove_columns("labels"))
    # Text without tokenization.
    words = texts().add_column("input", ["a"] * RECORDS).remove_columns("input_ids")
    words = words.rename_column("input", "input_ids")
    with refuses("data_collator", "'input_ids'"):
        trainer(tmp_path, words)


def fnet() -> Any:
    """A model that mixes a record's tokens with its padding."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 8}
    config = transformers.FNetConfig(vocab_size=TOKENS, max_position_embeddings=16, **sizes)
    return transformers.FNetForMaskedLM(config)


def test_model_seeing_padding_pads_records_to_one_length(tmp_path: Path) -> None:
    with refuses("model", "pad_to_max_length"):
        trainer(tmp_path, model=fnet()).train()
    theirs = trainer(tmp_path, model=fnet(), privacy={"max_length": 6, "pad_to_max_length": True})
    lengths = []
    forward = theirs.model.forward

    def watched(**given: Any) -> Any:
        lengths.append(given["input_ids"].shape[1])
        return forward(**given)

    theirs.model.forward = watched
    theirs.train()
    assert set(lengths) == {6}
    assert not any("padding" in fact.kind for fact in theirs.guarantee.public)


def test_a_model_is_tried_at_the_stated_length(tmp_path: Path) -> None:
    theirs = trainer(tmp_path, privacy={"max_length": 5})
    theirs.train()
    example, _, records = theirs._loader._run._recorder._example  # type: ignore[union-attr, misc]
    assert records == 4
    assert example[1]["input_ids"].shape == (4, 5)
    assert example[1]["attention_mask"].sum(1).tolist() == [5, 2, 1, 1]
    assert theirs.guarantee.public[-1].kind == "tried-padding"
    # A shorter table of positions is detected before anything is charged.
    bert = FAMILIES["distilbert"].made()
    data = texts().map(lambda row: {"labels": row["input_ids"]})
    with pytest.raises(ParameterError):
        trainer(tmp_path, data, model=bert, privacy={"max_length": 17}).train()


class TemperedLMHeadModel(transformers.GPT2LMHeadModel):  # type: ignore[misc, unused-ignore]
    """A language model with a scalar temperature parameter."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.temperature = torch.nn.Parameter(torch.tensor(0.3))

    def forward(
        self, input_ids: Any = None, attention_mask: Any = None, labels: Any = None, **named: Any
    ) -> Any:
        assert labels is None
        result = super().forward(input_ids=input_ids, attention_mask=attention_mask, **named)
        result.logits = result.logits * self.temperature.exp()
        return result


@pytest.mark.parametrize("frozen", [False, True], ids=["whole", "temperature alone"])
def test_a_temperature_is_trained(tmp_path: Path, frozen: bool) -> None:
    model = TemperedLMHeadModel(FAMILIES["gpt2"].made().config)
    if frozen:
        model.requires_grad_(False)
        model.temperature.requires_grad_(True)
    theirs = trainer(tmp_path, model=model)
    theirs.train()
    assert abs(float(model.temperature) - 0.3) > 1e-6
    # The model was tried before the charge, on texts of lengths that it has read.
    _, _, records = theirs._loader._run._recorder._example  # type: ignore[union-attr, misc]
    assert records > 1


def test_loss_on_private_records_is_a_separate_release(tmp_path: Path) -> None:
    rows = texts(5).to_list()
    # An unreadable record has loss 0, with others and without.
    rows[7] |= {"input_ids": None, "labels": None}
    data = datasets.Dataset.from_list(rows, features=texts().features)
    theirs = trainer(tmp_path, privacy={"noise_multiplier": None, "share": 0.9})
    with dg.budget(3.0, 1e-5) as budget:
        theirs.train()
        assert 0.09 < budget.left < 0.11
        theirs.release_loss(data, largest=4.0, share=0.05, n_users=USERS)
        assert 0.04 < budget.left < 0.06
        with pytest.raises(ParameterError, match="has no room"):
            theirs.release_loss(data, largest=4.0, epsilon=3.0)
    found = theirs.release_loss(data, largest=4.0, epsilon=1e4, n_users=USERS, random_state=1)
    own = []
    theirs.model.eval()
    for row in rows:
        if row["input_ids"] is None:
            own.append(0.0)
            continue
        tokens = torch.tensor([row["input_ids"]])
        own.append(float(losses.causal_lm(theirs.model(input_ids=tokens), tokens)))
    wanted = sum(min(loss, 4.0) for loss in own) / RECORDS
    assert abs(float(found.value[0]) - wanted) < max(6 * found.std_error, 1e-3)
    assert wanted > 1.0
    assert found.std_error < 0.2
    assert found.guarantee.level == "user"
    assert found.guarantee.user == theirs.guarantee.user == "author"
    with refuses("largest"):
        theirs.release_loss(data, largest=0.0, epsilon=1.0)
