"""What all records share meets each of them by itself, whatever sizes happen to agree."""

from __future__ import annotations

from typing import Any

import pytest
from tests.refusals import refuses
from tests.torch.library import torch

# isort: split
from dpgrain.torch.shared import Copies, Rows, copies_as, each_apart, plain, rows_as

RECORDS, LENGTH, WIDTH = 3, 5, 4


def shared(*shape: int, records: int = RECORDS) -> tuple[Any, Any]:
    """Copies of a random tensor, and where their gradients arrive."""
    torch.manual_seed(1)
    copies = torch.randn(shape).expand(records, *shape).clone().requires_grad_(True)
    return copies_as(copies), copies


USES: dict[str, tuple[tuple[int, ...], Any]] = {
    "a scale": ((WIDTH,), lambda x, own: x * own),
    "added from the left": ((WIDTH,), lambda x, own: own + x),
    "positions": ((LENGTH, WIDTH), lambda x, own: x + own),
    "positions of a batch of one": ((1, LENGTH, WIDTH), lambda x, own: x + own),
    "a map": ((WIDTH, 2), lambda x, own: x @ own),
    "a map of torch": ((2, WIDTH), lambda x, own: torch.nn.functional.linear(x, own)),
    "a token before others": (
        (1, 1, WIDTH),
        lambda x, own: torch.cat((own.expand(len(x), -1, -1), x), dim=1),
    ),
    "a vector before others": (
        (WIDTH,),
        lambda x, own: torch.cat((own.expand(len(x), 1, -1), x), 1),
    ),
    "repeated": ((1, 1, WIDTH), lambda x, own: x * own.repeat(len(x), 1, 1)),
    "turned": ((WIDTH, LENGTH), lambda x, own: x + own.T),
    "picked": ((9, WIDTH), lambda x, own: x + own[2 : 2 + x.shape[1]]),
    "in place": ((LENGTH, WIDTH), lambda x, own: (x * 1).add_(own)),
    "of its type": ((LENGTH, WIDTH), lambda x, own: x + own.type_as(x).to(x.device)),
    "scaled by a constant table": (
        (WIDTH,),
        lambda x, own: x + torch.arange(x.shape[1] * WIDTH).view(-1, WIDTH) * own,
    ),
    "attention's bias": (
        (2, LENGTH, LENGTH),
        lambda x, own: torch.nn.functional.scaled_dot_product_attention(
            *(x.unflatten(2, (2, -1)).transpose(1, 2),) * 3, attn_mask=own.unsqueeze(0)
        ).flatten(1),
    ),
}


@pytest.mark.parametrize("records", [1, 2, RECORDS, WIDTH, LENGTH, 9])
@pytest.mark.parametrize("name", USES)
def test_copies_get_the_gradients_of_their_records(name: str, records: int) -> None:
    shape, use = USES[name]
    own, copies = shared(*shape, records=records)
    x = torch.randn(records, LENGTH, WIDTH)
    out = use(rows_as(x), own)
    assert type(out) is Rows
    one = copies.detach()[0].requires_grad_(True)
    wanted = [use(x[i : i + 1], one) for i in range(records)]
    assert torch.allclose(plain(out), torch.cat(wanted), atol=1e-6)
    plain(out).square().sum().backward()
    for i, alone in enumerate(wanted):
        (gradient,) = torch.autograd.grad(alone.square().sum(), one)
        assert torch.allclose(copies.grad[i], gradient, atol=1e-4)


def test_shapes_and_types_are_those_of_the_shared() -> None:
    own, _ = shared(1, LENGTH)
    assert (own.shape, own.dim(), len(own), own.dtype) == ((1, LENGTH), 2, 1, torch.float32)
    assert own.copies.shape == (RECORDS, 1, LENGTH)
    assert own.expand(7, -1).shape == (7, LENGTH)
    assert type(own.exp()) is Copies
    assert type(rows_as(torch.ones(3)).sum()) is Rows


@pytest.mark.parametrize(
    ("use", "word"),
    [
        (lambda x, own: own.mul_(2), "mul_"),
        (lambda x, own: x.sum() + own, "first dimension"),
        (lambda x, own: x[:1] * own, "3 records"),
        (lambda x, own: x + own[own > 0].sum(), "vmap"),
        (lambda x, own: (x * own).sum() + own, "first dimension"),
    ],
)
def test_what_may_mix_is_refused(use: Any, word: str) -> None:
    own, _ = shared(LENGTH, WIDTH)
    with refuses("module", word):
        use(rows_as(torch.randn(RECORDS, LENGTH, WIDTH)), own)


def test_rows_of_a_record_follow_each_other() -> None:
    own, copies = shared(WIDTH)
    x = torch.randn(2 * RECORDS, WIDTH)
    plain(rows_as(x) * own).sum().backward()
    assert torch.allclose(copies.grad, x.unflatten(0, (RECORDS, 2)).sum(1))


def test_what_is_drawn_for_records_is_drawn_for_each() -> None:
    dropped = each_apart(
        torch.nn.functional.dropout, (rows_as(torch.ones(RECORDS, 40)),), {}, "here", RECORDS
    )
    assert not torch.equal(plain(dropped)[0], plain(dropped)[1])
    own, _ = shared(40)
    same = torch.nn.functional.dropout(own).copies
    assert torch.equal(same[0], same[1])


def test_what_is_no_tensor_comes_out_as_it_is() -> None:
    def function(x: Any) -> Any:
        return {"out": x + 1, "words": "as they are", "none": None}

    found = each_apart(function, (rows_as(torch.ones(RECORDS, 2)),), {}, "here", RECORDS)
    assert (found["words"], found["none"], found["out"].shape) == (
        "as they are",
        None,
        (RECORDS, 2),
    )
