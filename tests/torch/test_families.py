"""Models of Hugging Face's families have the clipped sums of a loop over blocks, and mix no records.

Two families run in the default tests, all others with ``make test-all``. All are created from
configurations: nothing is downloaded.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from tests.torch.families import FAMILIES, LENGTH, Family, every
from tests.torch.library import torch

# isort: split
from tests.products import covering

from dpgrain.torch.clipping import clipped_sums, overshoot, vector_norm
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.recorder import Recorder

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
SIZES = {
    "records": (1, 1, 1),
    "blocks": (1, 1, 2, 3),
    "one record": (1,),
    "as many as tokens": (1,) * LENGTH,
    "as many as decoded": (1, 2, 2),
}
families = every("gpt2", "vit")


def losses(module: Any, batch: Any) -> Any:
    return module(**batch).logits.float().square().flatten(1).mean(1)


def of_rows(batch: Any, rows: Any) -> Any:
    return {name: tensor[rows] for name, tensor in batch.items()}


@contextmanager
def recorded(module: Any, layout: BlockLayout) -> Iterator[Recorder]:
    recorder = Recorder(module, (), lambda: layout)
    try:
        yield recorder
    finally:
        recorder.remove()


def summed(module: Any, batch: Any, layout: BlockLayout, bound: float) -> dict[str, Any]:
    """The sums of clipped blocks, by parameter, in double precision."""
    with recorded(module, layout) as recorder:
        losses(module, batch).sum().backward()
        assert all(parameter.grad is None for parameter in module.parameters())
        sums = clipped_sums(recorder.uses, layout, bound)
    return {name: sums[p].double() for name, p in module.named_parameters() if p in sums}


def looped(module: Any, batch: Any, layout: BlockLayout, bound: float) -> dict[str, Any]:
    """The same by a loop over blocks, in double precision."""
    module = copy.deepcopy(module).double()
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    sums: dict[str, Any] = {}
    for block in range(layout.blocks):
        own = of_rows(batch, layout.block_slice(block))
        own = {n: t.double() if t.is_floating_point() else t for n, t in own.items()}
        out = module(**own).logits.square().flatten(1).mean(1).mean()
        parts = torch.autograd.grad(out, list(trained.values()), allow_unused=True)
        norm = math.sqrt(sum(float(part.square().sum()) for part in parts if part is not None))
        for name, part in zip(trained, parts, strict=True):
            if part is not None:
                sums[name] = sums.get(name, 0) + part * min(1.0, bound / norm)
    return sums


@families
@pytest.mark.parametrize("lora", [False, True], ids=["fully", "lora"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_sums_agree_with_a_loop(family: Family, lora: bool, sizes: tuple[int, ...]) -> None:
    module, layout = family.made(lora=lora), BlockLayout.of(sizes)
    torch.manual_seed(1)
    batch = family.draw(layout.rows)
    for bound in (0.01, 1e6):
        sums = summed(module, batch, layout, bound)
        wanted = looped(module, batch, layout, bound)
        # Parameters without a gradient in one record have zero in all.
        assert sums.keys() <= {n for n, p in module.named_parameters() if p.requires_grad}
        reach = math.sqrt(sum(float(part.square().sum()) for part in wanted.values()))
        for name, part in wanted.items():
            assert torch.allclose(sums.get(name, torch.zeros(())), part, atol=2e-5 * reach), name


def additions(module: Any, layout: BlockLayout, *batches: Any) -> list[list[dict[str, Any]]]:
    """The contribution of each block of each batch, by parameter, formed separately."""
    names, found = {p: name for name, p in module.named_parameters()}, []
    with recorded(module, layout) as recorder:
        for batch in batches:
            torch.manual_seed(2)
            losses(module, batch).sum().backward()
            uses = recorder.uses.items()
            found.append(
                [
                    {names[p]: sum(use.block_gradient(block) for use in of) for p, of in uses}
                    for block in range(layout.blocks)
                ]
            )
    return found


@families
@pytest.mark.parametrize("lora", [False, True], ids=["fully", "lora"])
def test_record_affects_no_other(family: Family, lora: bool) -> None:
    module = family.made(lora=lora)
    for rows in (4, LENGTH):
        layout = BlockLayout((1,) * rows)
        torch.manual_seed(3)
        batch, other = family.draw(rows), family.draw(rows)
        changed = {name: tensor.clone() for name, tensor in batch.items()}
        for name, tensor in other.items():
            changed[name][1] = tensor[1]
        pairs = list(zip(*additions(module, layout, batch, changed), strict=True))
        for row, (one, another) in enumerate(pairs):
            assert one.keys() == another.keys()
            moved = max(float((one[name] - another[name]).abs().max()) for name in one)
            reach = max(float(part.abs().max()) for part in one.values())
            assert (moved > 1e-3 * reach) if row == 1 else (moved <= 1e-5 * reach)


OPTIONS = {
    "name": ("gpt2", "bert", "qwen"),
    "lora": (False, True),
    "mask": ("none", "right", "left"),
    "dropout": (0.0, 0.3),
    "checkpointing": (False, True),
    "autocast": (False, True),
    "rows": (2, 5, LENGTH),
}
_DROPOUT = {
    "gpt2": ("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "qwen": ("attention_dropout",),
}


@pytest.mark.parametrize(
    "chosen",
    [
        # A network that draws is tried from many seeds.
        pytest.param(
            case, marks=pytest.mark.slow(full=True) if case["dropout"] and case["lora"] else ()
        )
        for case in covering(OPTIONS, strength=2)
    ],
    ids=str,
)
def test_no_option_lets_a_record_move_another_one(chosen: Any) -> None:
    family, rows = FAMILIES[chosen["name"]], chosen["rows"]
    dropout = dict.fromkeys(_DROPOUT[chosen["name"]], chosen["dropout"])
    module = family.made(lora=chosen["lora"], **dropout)
    if chosen["checkpointing"]:
        module.gradient_checkpointing_enable({"use_reentrant": False})
        if chosen["lora"]:
            module.enable_input_require_grads()
    torch.manual_seed(4)
    batch, other = family.draw(rows), family.draw(rows)
    for drawn in (batch, other):
        if chosen["mask"] == "none":
            del drawn["attention_mask"]
        elif chosen["mask"] == "left":
            drawn.update({name: tensor.flip(1) for name, tensor in drawn.items()})
    changed = {name: torch.cat([other[name][:1], batch[name][1:]]) for name in batch}
    layout = BlockLayout((1,) * rows)
    half = torch.autocast("cpu", torch.bfloat16) if chosen["autocast"] else nullcontext()
    with half:
        found = additions(module, layout, batch, changed)
    rounding = 0.05 if chosen["autocast"] else 1e-4
    for one, another in zip(*(each[1:] for each in found), strict=True):
        reach = math.sqrt(sum(float(part.square().sum()) for part in one.values()))
        for name in one:
            assert float((one[name] - another[name]).norm()) <= rounding * reach
    bound = 1e-5
    with half:
        for row in range(min(rows, 3)):
            sums = _clipped_alone(module, of_rows(batch, slice(row, row + 1)), bound)
            assert vector_norm(sums) <= bound * (1 + overshoot(torch.float32))


def _clipped_alone(module: Any, record: Any, bound: float) -> Any:
    """One record's contribution, with norm above the bound before clipping."""
    with recorded(module, BlockLayout((1,))) as recorder:
        losses(module, record).sum().backward()
        found: list[Any] = []
        sums = clipped_sums(recorder.uses, BlockLayout((1,)), bound, found.append)
    assert found[0][0] > bound
    return sums


@pytest.mark.parametrize("lora", [False, True], ids=["fully", "lora"])
@pytest.mark.parametrize("name", ["gpt2", pytest.param("t5", marks=pytest.mark.slow(full=True))])
def test_recomputed_activations_give_the_same(name: str, lora: bool) -> None:
    family, layout = FAMILIES[name], BlockLayout((1, 1, 2))
    module = family.made(lora=lora)
    torch.manual_seed(5)
    batch = family.draw(layout.rows)
    kept = summed(module, batch, layout, 0.01)
    module.gradient_checkpointing_enable({"use_reentrant": False})
    if lora:
        module.enable_input_require_grads()
    again = summed(module, batch, layout, 0.01)
    assert kept.keys() == again.keys()
    assert all(torch.allclose(kept[name], again[name], atol=1e-7) for name in kept)


def test_models_are_restored() -> None:
    module, layout = FAMILIES["gpt2"].made(), BlockLayout((1, 1))
    batch = FAMILIES["gpt2"].draw(2)
    before = copy.deepcopy(module.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        summed(module, batch, layout, 1.0)
    assert all(torch.equal(before[name], now) for name, now in module.state_dict().items())
    assert not any("forward" in vars(part) for part in module.modules())
    assert all(type(p) is torch.nn.Parameter for p in module.parameters())
