"""Operations of a step on the code path of a GPU, which is bound by their number."""

from __future__ import annotations

import pytest
from tests.torch.library import torch
from tests.torch.operations import MODELS, as_on_gpu, batch, per_layer, plain_step, private_step

# isort: split
from dpgrain.torch.layout import BlockLayout

SIZES = {"equal": (2,) * 4, "ragged": (1, 1, 2, 4)}


@pytest.mark.parametrize("autocast", [False, True], ids=["single", "half"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("name", MODELS)
def test_layer_has_few_more_operations_than_plain(
    name: str, sizes: tuple[int, ...], autocast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_on_gpu(monkeypatch)
    plain, private = per_layer(name, sizes, autocast=autocast)
    # In single precision, blocks of each size have a product of their own.
    assert private.total - plain.total <= 30
    assert not private.waits - plain.waits
    assert private.clip.total() == 0


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("name", MODELS)
def test_a_step_never_waits_for_the_device(
    name: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    as_on_gpu(monkeypatch)
    layout = BlockLayout(sizes)
    torch.manual_seed(1)
    module, inputs = MODELS[name](1), batch(layout)
    plain = plain_step(module, inputs, False)
    private = private_step(module, inputs, False, layout)
    assert private.waits["_local_scalar_dense"] == 0
    # The sizes of blocks are copied from pinned memory, which waits for nothing.
    assert (private.waits - plain.waits).keys() <= {"lift_fresh"}
    assert private.waits["lift_fresh"] <= plain.waits["lift_fresh"] + 1
    assert private.clip.total() <= 40
