"""Losses: for any operations on a batch, each record's loss follows only from the record."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.refusals import refuses
from tests.torch.library import torch

# isort: split
from dpgrain.errors import ParameterError
from dpgrain.torch import losses
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.losses import (
    causal_lm,
    classification,
    inputs_and_target,
    masked_lm,
    moved,
    record_losses,
    seq2seq,
)
from dpgrain.torch.recorder import Recorder

functional = torch.nn.functional
RECORDS, WIDTH = 6, 4


def contrastive(outputs: Any, _target: Any) -> Any:
    return (outputs @ outputs.mT).mean() + outputs.max()


def over_tokens(outputs: Any, target: Any) -> Any:
    return functional.cross_entropy(
        outputs.unsqueeze(2).expand(-1, -1, WIDTH), target, ignore_index=0
    )


def centred(outputs: Any, target: Any) -> Any:
    return ((outputs - outputs.mean(0)).square().sum(1) * target[:, 0]).mean()


def sorted_loss(outputs: Any, _target: Any) -> Any:
    return outputs.sort(0).values[0].sum()


def labels(generator: Any) -> Any:
    return torch.randint(0, WIDTH, (RECORDS,), generator=generator)


def words(generator: Any) -> Any:
    # Each record has a word, so that no loss is a quotient of zeros.
    return torch.cat(
        [
            torch.ones(RECORDS, 1, dtype=torch.long),
            torch.randint(0, WIDTH, (RECORDS, WIDTH - 1), generator=generator),
        ],
        dim=1,
    )


def numbers(generator: Any) -> Any:
    return torch.rand(RECORDS, WIDTH, generator=generator)


PLAIN = {
    "cross entropy": (functional.cross_entropy, labels),
    "squares": (functional.mse_loss, numbers),
    "binary": (functional.binary_cross_entropy_with_logits, numbers),
    "huber": (torch.nn.HuberLoss(), numbers),
    "smoothed": (torch.nn.CrossEntropyLoss(label_smoothing=0.1), labels),
}
MIXED = {
    "contrastive": (contrastive, numbers),
    "tokens": (over_tokens, words),
    "centred": (centred, numbers),
    "sorted": (sorted_loss, numbers),
    "weighted": (torch.nn.CrossEntropyLoss(weight=torch.arange(1.0, 5.0)), labels),
}


def gradients(outputs: Any, target: Any, loss: Any) -> Any:
    read = outputs.clone().requires_grad_(True)
    record_losses(loss, read, target).sum().backward()
    return read.grad


@pytest.mark.parametrize(("loss", "make"), PLAIN.values(), ids=PLAIN)
def test_sum_equals_means_times_the_number_of_records(loss: Any, make: Any) -> None:
    generator = torch.Generator().manual_seed(1)
    outputs = torch.randn(RECORDS, WIDTH, generator=generator)
    target = make(generator)
    assert record_losses(loss, outputs, target).mean().item() == pytest.approx(
        loss(outputs, target).item()
    )


@pytest.mark.parametrize(("loss", "make"), [*PLAIN.values(), *MIXED.values()], ids=[*PLAIN, *MIXED])
def test_no_loss_mixes_records(loss: Any, make: Any) -> None:
    generator = torch.Generator().manual_seed(2)
    outputs = torch.randn(RECORDS, WIDTH, generator=generator)
    target = make(generator)
    found = gradients(outputs, target, loss)
    alone = torch.cat(
        [gradients(outputs[i : i + 1], target[i : i + 1], loss) for i in range(RECORDS)]
    )
    assert torch.allclose(found, alone, atol=1e-6)
    # Other records, however large, move no other gradient.
    other = outputs.clone()
    other[1:] *= 1e3
    assert torch.allclose(gradients(other, target, loss)[0], found[0], atol=1e-6)


@pytest.mark.parametrize("name", ["contrastive", "tokens", "centred", "sorted", "weighted"])
def test_listed_losses_mix_records_on_a_batch(name: str) -> None:
    loss, make = MIXED[name]
    generator = torch.Generator().manual_seed(2)
    outputs = torch.randn(RECORDS, WIDTH, generator=generator).requires_grad_(True)
    target = make(generator)
    loss(outputs, target).backward()
    assert not torch.allclose(outputs.grad * RECORDS, gradients(outputs.detach(), target, loss))


def test_record_without_loss_does_not_affect_others() -> None:
    outputs = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(3))
    found = gradients(
        outputs,
        torch.tensor([0, 2, 1]),
        lambda o, t: functional.cross_entropy(o, t, ignore_index=0),
    )
    assert math.isnan(found[0].sum().item()) or found[0].abs().max() == 0
    assert torch.isfinite(found[1:]).all()


def test_outputs_may_be_several_tensors() -> None:
    outputs = {"mean": torch.ones(3, 1), "spread": (torch.full((3, 1), 2.0),)}

    def loss(found: Any, target: Any) -> Any:
        return ((found["mean"] - target) / found["spread"][0]).square().sum()

    assert record_losses(loss, outputs, torch.zeros(3, 1)).tolist() == [0.25] * 3


def test_loss_with_several_numbers_is_rejected() -> None:
    target = torch.zeros(2, 3)
    for loss, words in (
        (torch.nn.MSELoss(reduction="none"), r"not \(1, 3\)"),
        (lambda *_: 3.0, "not float"),
    ):
        with pytest.raises(ParameterError, match=words):
            record_losses(loss, torch.ones(2, 3), target)


def test_the_last_part_of_a_record_is_its_target() -> None:
    x, z, y = torch.ones(2, 3), torch.ones(2), torch.zeros(2)
    assert inputs_and_target([x, z, y]) == ((x, z), y)
    for alone in (x, (x,), [x]):
        inputs, target = inputs_and_target(alone)
        assert inputs[0] is x
        assert target is x


@pytest.mark.parametrize("batch", [{"x": torch.ones(2)}, (), (torch.ones(2), ["a", "b"]), "text"])
def test_other_records_are_rejected(batch: Any) -> None:
    with refuses("dataset", "records"):
        inputs_and_target(batch)


def test_batch_moves_to_the_networks_device() -> None:
    network = torch.nn.Linear(2, 1, device="meta")
    x, y = moved((torch.ones(2, 2), torch.ones(2)), network)
    assert x.is_meta
    assert y.is_meta
    assert moved(torch.ones(2), network).is_meta
    assert moved(("text",), network) == ("text",)


TOKENS, CLASSES = 5, 4
OF_MODELS: dict[str, tuple[Any, tuple[int, ...], Any]] = {
    "causal": (causal_lm, (TOKENS, CLASSES), lambda: tokens()),
    "causal, added up": (
        lambda outputs, labels: causal_lm(outputs, labels, reduction="sum"),
        (TOKENS, CLASSES),
        lambda: tokens(),
    ),
    "masked": (masked_lm, (TOKENS, CLASSES), lambda: tokens()),
    "sequences": (seq2seq, (TOKENS, CLASSES), lambda: tokens()),
    "classes": (classification, (CLASSES,), lambda: torch.randint(0, CLASSES, (RECORDS,))),
    "several classes": (classification, (CLASSES,), lambda: torch.rand(RECORDS, CLASSES)),
}


def tokens() -> Any:
    """Labels of different length for each record, and none for the last."""
    made = torch.randint(0, CLASSES, (RECORDS, TOKENS))
    counts = torch.arange(RECORDS).flip(0).clamp(max=TOKENS)
    return made.masked_fill(torch.arange(TOKENS) >= counts[:, None], -100)


@pytest.mark.parametrize("name", OF_MODELS)
def test_model_losses_follow_only_from_each_record(name: str) -> None:
    loss, shape, draw = OF_MODELS[name]
    torch.manual_seed(1)
    logits, labels = torch.randn(RECORDS, *shape), draw()
    each = loss(logits, labels)
    assert each.shape == (RECORDS,)
    assert torch.isfinite(each).all()
    for row in range(RECORDS):
        alone = loss({"logits": logits[row : row + 1]}, labels[row : row + 1])
        assert torch.equal(alone[0], each[row])
    counted = (labels != -100).any(-1) if labels.dim() == 2 else each > 0
    assert bool((each[counted] > 0).all() or name.startswith("causal"))
    assert loss(logits.bfloat16(), labels).dtype == torch.float32


@pytest.mark.parametrize("name", OF_MODELS)
def test_backward_passes_start_from_losses_of_models(name: str) -> None:
    loss, shape, draw = OF_MODELS[name]
    network = torch.nn.Sequential(torch.nn.Linear(WIDTH, math.prod(shape)))
    network.append(torch.nn.Unflatten(1, shape))
    layout = BlockLayout((1,) * RECORDS)
    recorder = Recorder(network, (), lambda: layout, reduction="mean")
    x, labels = torch.randn(RECORDS, WIDTH), draw()
    loss(network(x), labels).mean().backward()
    recorder.remove()
    (use,) = recorder.uses[network[0].weight]
    for row in range(RECORDS):
        out = loss(network(x[row : row + 1]), labels[row : row + 1]).sum()
        (wanted,) = torch.autograd.grad(out, network[0].weight)
        assert torch.allclose(use.block_gradient(row).float(), wanted, atol=1e-5)


def test_causal_loss_predicts_the_next_token() -> None:
    logits, labels = torch.randn(1, TOKENS, CLASSES), torch.tensor([[1, 2, -100, 3, 0]])
    wanted = functional.cross_entropy(logits[0, [0, 2, 3]], torch.tensor([2, 3, 0]))
    assert torch.allclose(causal_lm(logits, labels), wanted)


@pytest.mark.parametrize(
    ("loss", "outputs", "labels", "name"),
    [
        (causal_lm, torch.zeros(2, 6, 3), torch.zeros(4, 3).long(), "labels"),
        (masked_lm, torch.zeros(1, 8, 3), torch.zeros(4, 2).long(), "labels"),
        (seq2seq, torch.zeros(2, 3), torch.zeros(2, 3).long(), "outputs"),
        (causal_lm, torch.tensor(1.0), torch.zeros(2, 3).long(), "outputs"),
        (classification, torch.zeros(2, 3), torch.zeros(3).long(), "labels"),
        (classification, torch.zeros(2, 3), torch.zeros(2), "labels"),
        (classification, None, torch.zeros(2).long(), "outputs"),
    ],
)
def test_packed_records_and_other_shapes_are_rejected(
    loss: Any, outputs: Any, labels: Any, name: str
) -> None:
    with refuses(name):
        loss(outputs, labels)


def test_a_reduction_is_a_mean_or_a_sum() -> None:
    with refuses("reduction", "none"):
        causal_lm(torch.zeros(2, 3, 4), torch.zeros(2, 3).long(), reduction="none")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [torch.uint8, torch.int16, torch.int32])
def test_whole_numbers_of_any_kind_are_labels(kind: Any) -> None:
    logits, labels = torch.randn(2, 3, 4), torch.tensor([[1, 3, 0], [2, 9, 1]])
    assert torch.equal(causal_lm(logits, labels.to(kind)), causal_lm(logits, labels))
    one, other = labels[0], labels[0].to(kind)
    assert torch.equal(classification(logits[0], other), classification(logits[0], one))


def test_labels_of_words_and_classes_are_whole_numbers() -> None:
    for loss, logits in ((masked_lm, torch.zeros(2, 2, 3)), (classification, torch.zeros(2, 3))):
        with refuses("labels", "torch.float32"):
            loss(logits, torch.zeros(logits.shape[:-1]))


def test_invalid_labels_are_dropped() -> None:
    torch.manual_seed(1)
    logits = torch.randn(2, 3, 5)
    for odd in (5, -1, 10**12):
        wanted, labels = (
            torch.tensor([[1, -100, 2], [0, 3, 4]]),
            torch.tensor([[1, odd, 2], [0, 3, 4]]),
        )
        for loss in (losses.causal_lm, losses.masked_lm, losses.seq2seq):
            for reduction in ("mean", "sum"):
                found = [loss(logits, each, reduction=reduction) for each in (labels, wanted)]
                assert torch.equal(*found)
        classes = losses.classification(logits[:, 0], torch.tensor([odd, 3]))
        assert classes[0] == 0
        assert classes[1] == losses.classification(logits[:, 0], torch.tensor([2, 3]))[1]
    several = torch.tensor([[0.0, 1.0, math.nan, 0.0, 7.0], [0.0, 1.0, 0.0, 0.0, 1.0]])
    found = losses.classification(logits[:, 0], several)
    plain = torch.tensor([[0.0, 1.0, 0.0, 0.0, 1.0]] * 2)
    assert torch.equal(found, losses.classification(logits[:, 0], plain))
