"""A backward pass starts from losses that separate records, and from no others."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from tests.refusals import refuses
from tests.torch.library import torch

# isort: split
from dpgrain.errors import ParameterError
from dpgrain.torch.clipping import clipped_sums
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.losses import record_losses
from dpgrain.torch.recorder import Recorder
from dpgrain.torch.tracked_outputs import (
    _RULES_BY_NAME,
    RULES,
    Output,
    Pass,
    Reduction,
    _functions,
    within_classes,
)

nn, functional = torch.nn, torch.nn.functional
RECORDS, TOKENS, CLASSES = 5, 3, 4
DOUBLE = torch.float64

# -- every loss of a loop, compared with a loop over records --


@dataclass(frozen=True)
class Batch:
    """Outputs, targets and weights, each with a row for each record."""

    out: Any
    numbers: Any
    shares: Any
    labels: Any
    mask: Any

    def record(self, place: int) -> Batch:
        return Batch(*(part[place : place + 1] for part in vars(self).values()))


def batch(tokens: bool, left_out: bool, seed: int = 1) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    each = (RECORDS, TOKENS) if tokens else (RECORDS,)
    out, numbers, shares = (
        torch.randn(*each, CLASSES, generator=generator, dtype=DOUBLE) for _ in range(3)
    )
    labels = torch.randint(0, CLASSES, each, generator=generator)
    # Each record has another number of labels that count.
    mask = torch.ones(each, dtype=DOUBLE)
    if tokens:
        mask = (torch.arange(TOKENS) <= torch.arange(RECORDS)[:, None] % TOKENS).to(DOUBLE)
    if left_out:
        labels = (
            labels.masked_fill(mask == 0, -100)
            if tokens
            else labels.index_fill(0, torch.tensor(1), -100)
        )
    return Batch(out, numbers, shares.softmax(-1), labels, mask)


WEIGHTS = torch.arange(1.0, CLASSES + 1, dtype=DOUBLE)
Kind = Callable[[Batch, str], Any]
KINDS: dict[str, Kind] = {
    "squares": lambda b, r: functional.mse_loss(b.out, b.numbers, reduction=r),
    "lengths": lambda b, r: nn.L1Loss(reduction=r)(b.out, b.numbers),
    "huber": lambda b, r: functional.huber_loss(b.out, b.numbers, reduction=r),
    "smooth": lambda b, r: functional.smooth_l1_loss(b.out, b.numbers, reduction=r),
    "binary": lambda b, r: functional.binary_cross_entropy_with_logits(
        b.out, b.shares, pos_weight=WEIGHTS, reduction=r
    ),
    "weighted binary": lambda b, r: functional.binary_cross_entropy(
        b.out.sigmoid(), b.shares, weight=WEIGHTS, reduction=r
    ),
    "weighted squares": lambda b, r: functional.mse_loss(
        b.out, b.numbers, reduction=r, weight=b.shares
    ),
    "divergence": lambda b, r: functional.kl_div(
        b.out.log_softmax(-1), b.shares, reduction="batchmean" if r == "mean" else r
    ),
    "counts": lambda b, r: functional.poisson_nll_loss(b.out, b.shares, reduction=r),
    "soft margin": lambda b, r: functional.soft_margin_loss(b.out, b.numbers.sign(), reduction=r),
    "classes": lambda b, r: functional.cross_entropy(_second(b.out), b.labels, reduction=r),
    "flat classes": lambda b, r: functional.cross_entropy(
        b.out.reshape(-1, CLASSES), b.labels.reshape(-1), reduction=r
    ),
    "swapped classes": lambda b, r: functional.cross_entropy(
        b.out.mT if b.out.dim() > 2 else b.out, b.labels, reduction=r
    ),
    "swapped": lambda b, r: _reduced((b.out.mT * 2.0).mH.square().mT, r),
    "swapped shares": lambda b, r: _reduced(b.out.mT.log_softmax(-1) * b.numbers.mT, r),
    "some classes": lambda b, r: functional.cross_entropy(
        _second(b.out), b.labels.clamp(min=1), ignore_index=1, reduction=r
    ),
    "smoothed classes": lambda b, r: nn.CrossEntropyLoss(label_smoothing=0.2, reduction=r)(
        _second(b.out), b.labels
    ),
    "weighted classes": lambda b, r: nn.CrossEntropyLoss(weight=WEIGHTS, reduction=r)(
        _second(b.out), b.labels
    ),
    "logarithms": lambda b, r: functional.nll_loss(
        _second(b.out.log_softmax(-1)), b.labels, reduction=r
    ),
    "shares of classes": lambda b, r: functional.cross_entropy(
        _second(b.out), _second(b.shares), reduction=r
    ),
    "of one's own": lambda b, r: _reduced((b.out - b.numbers).abs().clamp(max=1.0) ** 2, r),
    "largest": lambda b, r: _reduced(b.out.logsumexp(-1) - b.out[..., 0], r),
    "picked": lambda b, r: _reduced(-b.out.log_softmax(-1)[:, ..., 1:3] * 0.5, r),
    "contrastive": lambda b, r: _reduced(b.out.flatten(1) @ b.out.flatten(1).T, r),
    "centred": lambda b, r: _reduced((b.out - b.out.mean(0)).square(), r),
    "centred by what has no gradient": lambda b, r: _reduced(b.out - b.out.detach().mean(0), r),
    "centred by targets": lambda b, r: _reduced(b.out - b.numbers.mean(0), r),
    "times what others have": lambda b, r: _reduced(b.out * b.numbers.sum(0, keepdim=True), r),
    "softmax over records": lambda b, r: _reduced(b.out.softmax(0), r),
    "largest of all": lambda b, r: _reduced(b.out / b.out.abs().max(), r),
    "weighed by others": lambda b, r: _reduced(b.out * torch.softmax(b.out.detach(), 0), r),
    "of one record": lambda b, r: _reduced(b.out[:1] * 1.0, r),
    "sorted": lambda b, r: _reduced(b.out.sort(0).values * b.numbers, r),
    "turned round": lambda b, r: _reduced(b.out.flip(0) * b.numbers, r),
    "all pairs": lambda b, r: functional.mse_loss(
        b.out.flatten(1).sum(1, keepdim=True), b.numbers.flatten(1).sum(1), reduction=r
    ),
}


def _second(out: Any) -> Any:
    """Classes as the second dimension, as cross-entropy requires."""
    return out.transpose(1, 2) if out.dim() == 3 else out


def _reduced(each: Any, reduction: str) -> Any:
    return {"none": lambda: each, "sum": each.sum, "mean": each.mean}[reduction]()


def _rows(each: Any, mask: Any) -> tuple[Any, Any]:
    records = len(mask)
    each = each.reshape(records, -1)
    counted = mask.reshape(records, -1)
    counted = counted.repeat_interleave(each.shape[1] // counted.shape[1], 1)
    return each, counted


def _own(each: Any, mask: Any) -> Any:
    each, counted = _rows(each, mask)
    return (each * counted).sum(1) / counted.sum(1)


def _batch(each: Any, mask: Any) -> Any:
    each, counted = _rows(each, mask)
    return (each * counted).sum() / counted.sum()


ENDS: dict[str, Callable[[Any, Any], Any]] = {
    "records": lambda each, mask: each.flatten(1).mean(1) if each.dim() > 1 else each,
    "mean": lambda each, mask: each.mean(),
    "sum": lambda each, mask: each.sum(),
    "counted of each": lambda each, mask: _own(each, mask).mean(),
    "counted of all": _batch,
    "counted of all, as a number": lambda each, mask: each.sum() / mask.sum(),
    "counted of all, before": lambda each, mask: (each / mask.sum()).sum(),
    "by the number": lambda each, mask: each.sum() / len(each),
    "some": lambda each, mask: each[mask > 0].mean() if each.shape == mask.shape else each[0],
}
SCALES: dict[str, Callable[[Any], Any]] = {
    "plain": lambda loss: loss,
    "halved": lambda loss: loss / 2,
    "twice": lambda loss: loss + loss,
    "from nothing": lambda loss: sum([loss, loss]),
    "negative": lambda loss: -loss,
    "scaled": lambda loss: torch.amp.GradScaler("cpu", init_scale=4.0).scale(loss),
    "squared": lambda loss: loss * loss,
}
WRITTEN = [
    *(("none", end) for end in ENDS),
    *((reduction, "") for reduction in ("mean", "sum")),
]


def written(kind: str, reduction: str, end: str, scale: str, on: Batch) -> Any:
    """The loss of a loop."""
    loss = KINDS[kind](on, reduction)
    return SCALES[scale](ENDS[end](loss, on.mask) if end else loss)


def passed(found: Batch, reduction: Reduction, write: Callable[[Batch], Any]) -> Any:
    """The gradient by outputs of a sum over records, if the loss is accepted; else None."""
    leaf = found.out.clone().requires_grad_(True)
    of = Pass(RECORDS, reduction)
    known = of.output(leaf * 1.0, "rows")
    try:
        loss = write(Batch(known, *list(vars(found).values())[1:]))
    except (RuntimeError, IndexError):
        return None  # Shapes that do not go together.
    try:
        loss.backward()
    except ParameterError:
        return None
    return leaf.grad


def looped(found: Batch, write: Callable[[Batch], Any]) -> Any:
    """The same, from each record separately."""
    parts = []
    for place in range(RECORDS):
        one = found.record(place)
        leaf = one.out.clone().requires_grad_(True)
        write(Batch(leaf, *list(vars(one).values())[1:])).sum().backward()
        parts.append(leaf.grad)
    return torch.cat(parts)


#: Losses as commonly written: reduction, type, next operation.
ORDINARY = [
    ("mean", kind, "mean", "")
    for kind in ("squares", "lengths", "huber", "smooth", "binary", "counts", "shares of classes")
]
ORDINARY += [(r, "of one's own", r, "") for r in ("mean", "sum")]
ORDINARY += [("sum", kind, "sum", "") for kind in ("classes", "flat classes", "weighted classes")]
ORDINARY += [("mean", "weighted classes", "none", "mean"), ("sum", "classes", "none", "records")]
ORDINARY += [("mean", "flat classes", "none", "mean"), ("mean", "classes", "none", "records")]
ORDINARY += [("sum", "swapped classes", "sum", "")]


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("tokens", [False, True], ids=["records", "tokens"])
@pytest.mark.parametrize("left_out", [False, True], ids=["all labels", "labels left out"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("kind", KINDS)
def test_accepted_losses_equal_a_loop_over_records(
    kind: str, reduction: Reduction, tokens: bool, left_out: bool
) -> None:
    found, accepted = batch(tokens, left_out), set()
    for (own, end), scale in product(WRITTEN, SCALES):

        def write(on: Batch, own: str = own, end: str = end, scale: str = scale) -> Any:
            return written(kind, own, end, scale, on)

        gradient = passed(found, reduction, write)
        if gradient is None:
            continue
        accepted.add((own, end, scale))
        apart = looped(found, write)
        # A single record without a counted label has an undefined mean, and no gradient here.
        counts = torch.isfinite(apart)
        assert gradient[~counts].eq(0).all()
        torch.testing.assert_close(gradient[counts], apart[counts], rtol=1e-9, atol=1e-12)
    for which, of, own, end in ORDINARY:
        if (which, of) == (reduction, kind):
            assert (own, end, "plain") in accepted


@pytest.mark.parametrize("left_out", [False, True])
def test_mean_over_single_labels_equals_mean_over_records(left_out: bool) -> None:
    found = batch(False, left_out)
    gradient = passed(found, "mean", lambda on: functional.cross_entropy(on.out, on.labels))
    for place in range(RECORDS):
        one = found.record(place)
        leaf = one.out.clone().requires_grad_(True)
        functional.cross_entropy(leaf, one.labels, reduction="sum").backward()
        torch.testing.assert_close(gradient[place], leaf.grad[0])


MIXING = {
    "tokens of the batch": ("classes", "mean", "", True),
    "flat tokens of the batch": ("flat classes", "mean", "", True),
    "labels that the caller leaves out": ("some classes", "mean", "", False),
    "weights of classes": ("weighted classes", "mean", "", False),
    "counted of all": ("classes", "none", "counted of all", True),
    "divided by what counts": ("classes", "none", "counted of all, as a number", True),
    "divided by what counts before": ("classes", "none", "counted of all, before", True),
    "divided by the number of records": ("squares", "none", "by the number", False),
    "picked by a mask": ("classes", "none", "some", True),
}


@pytest.mark.parametrize("name", MIXING)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_losses_divided_by_other_records_are_rejected(name: str, reduction: Any) -> None:
    kind, own, end, tokens = MIXING[name]
    found = batch(tokens, True)
    assert passed(found, reduction, lambda on: written(kind, own, end, "plain", on)) is None


# -- every function of the list separates records --

X, Y = (2 + torch.rand(2, RECORDS, TOKENS, CLASSES, dtype=DOUBLE)).unbind(0)
PLACES = torch.randint(0, TOKENS, (RECORDS, 2, CLASSES))
#: How functions are called that take more than one tensor, or more than the place of a dimension.
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    **dict.fromkeys(
        ["softmax", "log_softmax", "logsumexp", "cumsum", "amax", "amin"], lambda f, x, y: f(x, 1)
    ),
    **dict.fromkeys(["sum", "mean"], lambda f, x, y: f(x, -1)),
    **dict.fromkeys(["chunk", "split"], lambda f, x, y: f(x, 2, 1)[0]),
    **dict.fromkeys(["clamp", "clip", "clamp_min"], lambda f, x, y: f(x, 2.5)),
    "clamp_max": lambda f, x, y: f(x, 2.5),
    "view": lambda f, x, y: f(x, -1, CLASSES),
    "reshape": lambda f, x, y: f(x, (-1, CLASSES)),
    "flatten": lambda f, x, y: f(x, 1),
    "unflatten": lambda f, x, y: f(x, 2, (2, 2)),
    "unsqueeze": lambda f, x, y: f(x, 1),
    "squeeze": lambda f, x, y: f(x[:, :1]),
    **dict.fromkeys(["transpose", "swapaxes"], lambda f, x, y: f(x, 1, 2)),
    "permute": lambda f, x, y: f(x, (0, 2, 1)),
    "__getitem__": lambda f, x, y: f(x, (slice(None), slice(1, None))),
    "gather": lambda f, x, y: f(x, 1, PLACES),
    "where": lambda f, x, y: f(x, y > 2.5, y) if f is torch.Tensor.where else f(x > 2.5, x, y),
    "masked_fill": lambda f, x, y: f(x, y > 2.5, 0.0),
    "to": lambda f, x, y: f(x, torch.float32),
    "type": lambda f, x, y: f(x, torch.float32),
    "cross_entropy": lambda f, x, y: f(x, PLACES[:, 0, :], reduction="none"),
    "nll_loss": lambda f, x, y: f(x, PLACES[:, 0, :], reduction="none"),
    "binary_cross_entropy": lambda f, x, y: f(x / 4, y / 4, reduction="none"),
    **dict.fromkeys(
        ["logical_and", "logical_or", "__and__", "__or__"], lambda f, x, y: f(x > 2, y > 2)
    ),
    **dict.fromkeys(["logical_not", "__invert__"], lambda f, x, y: f(x > 2.5)),
    "normalize": lambda f, x, y: f(x),
}
CALLS |= dict.fromkeys(
    [
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "binary_cross_entropy_with_logits",
        "kl_div",
        "poisson_nll_loss",
        "soft_margin_loss",
    ],
    lambda f, x, y: f(x, y, reduction="none"),
)
_PAIRS = """
    sub subtract rsub mul multiply div divide true_divide pow maximum minimum fmax fmin eq ne lt le gt
    ge add __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __div__ __rdiv__
    __pow__ __rpow__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__
"""
PAIRS = set(_PAIRS.split())


@pytest.mark.parametrize("func", [f for f in RULES if f is not torch.Tensor.cuda])
def test_no_listed_function_mixes_records(func: Any) -> None:
    (name, *_) = [
        name for name, rule in _RULES_BY_NAME.items() if func in [*_functions(name, rule)]
    ]
    call = CALLS.get(name, (lambda f, x, y: f(x, y)) if name in PAIRS else (lambda f, x, y: f(x)))
    of = Pass(RECORDS, "mean")

    def made(x: Any, y: Any) -> Any:
        found = call(func, of.output(x, "rows"), of.output(y, "rows"))
        assert isinstance(found, Output)
        assert found.origin is not None
        assert found.origin.form == "rows", found.origin.why
        return found.as_subclass(torch.Tensor)

    before = made(X, Y)
    for place in range(RECORDS):
        x, y = X.clone(), Y.clone()
        x[place], y[place] = 3 + torch.rand(2, TOKENS, CLASSES, dtype=DOUBLE)
        rows = torch.arange(len(before)) * RECORDS // len(before) != place
        assert torch.equal(made(x, y)[rows], before[rows])


# -- what else may not reach a layer --


class Speaking(torch.nn.Module):
    """A small language model called like Hugging Face's, with labels and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(9, 6), nn.Linear(6, 9)

    def forward(self, input_ids: Any, labels: Any = None) -> Any:
        logits, loss = self.out(torch.tanh(self.table(input_ids))), None
        if labels is not None:
            loss = functional.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=-100
            )
        return types.SimpleNamespace(loss=loss, logits=logits)


def recorded(module: Any, reduction: Reduction = "mean") -> Recorder:
    return Recorder(module, (), lambda: BlockLayout((1,) * RECORDS), reduction=reduction)


TOKENS_OF = torch.randint(0, 9, (RECORDS, TOKENS))
LABELS = TOKENS_OF.masked_fill(torch.arange(TOKENS) > torch.arange(RECORDS)[:, None] % TOKENS, -100)


def test_loss_computed_by_the_model_is_rejected() -> None:
    module = Speaking()
    recorder = recorded(module)
    out = module(input_ids=TOKENS_OF, labels=LABELS)
    with refuses("loss", "5"):
        out.loss.backward()
    with refuses("loss", "number"):
        (out.loss * 0.5 + out.logits.sum()).backward()
    assert not recorder.uses
    assert out.loss.item() > 0


def per_token(logits: Any, labels: Any) -> Any:
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def test_losses_of_records_take_its_place() -> None:
    module = Speaking().double()
    recorder = recorded(module)
    labels = LABELS.clone()
    labels[:, 1] = 3
    out = module(input_ids=TOKENS_OF, labels=labels)
    losses = record_losses(per_token, out.logits, labels)
    losses.backward()
    total = sum(use.weighted_sum(torch.ones(RECORDS)) for use in recorder.uses[module.out.bias])
    recorder.remove()
    plain = module(input_ids=TOKENS_OF).logits
    each = [per_token(plain[i : i + 1], labels[i : i + 1]) for i in range(RECORDS)]
    (wanted,) = torch.autograd.grad(torch.stack(each).sum(), [module.out.bias])
    torch.testing.assert_close(total, wanted)


@pytest.mark.parametrize("captured", ["an output", "a sum over records"])
def test_record_loss_includes_nothing_of_others(captured: str) -> None:
    module = nn.Linear(3, 2)
    recorded(module)
    out = module(torch.randn(RECORDS, 3))
    beside = out if captured == "an output" else out.sum()
    with refuses("loss", "outputs"):
        record_losses(lambda o, t: (o * beside.mean()).sum() + t.sum(), out, torch.ones(RECORDS, 2))


def penalty(module: Any, x: Any) -> None:
    x = x.requires_grad_(True)
    (slope,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
    slope.square().sum().backward()


def twice(module: Any, x: Any) -> None:
    loss = module(x).mean()
    loss.backward()
    loss.backward()


def again(module: Any, x: Any) -> None:
    out = module(x)
    out.mean().backward()
    out.square().mean().backward()


def held(module: Any, x: Any) -> None:
    inner: list[Any] = []
    hook = module[0].register_forward_hook(lambda _m, _i, out: inner.append(out))
    try:
        module(x)
    finally:
        hook.remove()
    inner[-1].sum().backward()


def dual(module: Any, x: Any) -> None:
    with torch.autograd.forward_ad.dual_level():
        module(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))


def slope(module: Any, x: Any) -> None:
    module(x).register_hook(lambda gradient: gradient / gradient.norm())


class Centred(torch.autograd.Function):
    """The identity, with a gradient centred over records."""

    @staticmethod
    def forward(_ctx: Any, out: Any) -> Any:
        return out * 1.0

    @staticmethod
    def backward(_ctx: Any, gradient: Any) -> Any:
        return gradient - gradient.mean(0)


def centre(gradients: tuple[Any, ...]) -> tuple[Any]:
    return (gradients[0] - gradients[0].mean(0),)


func, edge_of = torch.func, torch.autograd.graph.get_gradient_edge
#: Ways for gradients, or their gradients, to reach layers outside one backward pass of a loss.
WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "gradient penalty": penalty,
    "autograd.grad": lambda m, x: torch.autograd.grad(m(x.requires_grad_(True)).mean(), x),
    "autograd.backward": lambda m, x: torch.autograd.backward(m(x).mean()),
    "autograd.backward of records": lambda m, x: torch.autograd.backward(
        m(x), torch.ones(RECORDS, 2)
    ),
    "jacobian": lambda m, x: torch.autograd.functional.jacobian(m, x),
    "hessian": lambda m, x: torch.autograd.functional.hessian(lambda z: m(z).sum(), x),
    "autograd.functional.vjp": lambda m, x: torch.autograd.functional.vjp(
        m, x, torch.ones(RECORDS, 2)
    ),
    "func.grad": lambda m, x: func.grad(lambda z: m(z).sum())(x),
    "func.vjp": lambda m, x: func.vjp(m, x)[1](torch.ones(RECORDS, 2)),
    "func.jvp": lambda m, x: func.jvp(m, (x,), (x,)),
    "func.hessian": lambda m, x: func.hessian(lambda z: m(z).sum())(x),
    "func.vmap": lambda m, x: func.vmap(m)(x[:, None]),
    "forward mode": dual,
    "create_graph": lambda m, x: m(x).mean().backward(create_graph=True),
    "retain_graph": lambda m, x: m(x).mean().backward(retain_graph=True),
    "inputs": lambda m, x: m(x).mean().backward(inputs=[*m.parameters()]),
    "a gradient of one's own": lambda m, x: m(x).sum(1).backward(torch.ones(RECORDS)),
    "twice": twice,
    "again": again,
    "a hook": slope,
    "a hook of the graph": lambda m, x: m(x).grad_fn.register_prehook(centre),
    "a hook of an edge": lambda m, x: edge_of(m(x)).node.register_prehook(centre),
    "a function of one's own": lambda m, x: Centred.apply(m(x)).mean().backward(),
    "a function of a loss": lambda m, x: Centred.apply(m(x).mean(1)).backward(),
    "a function of a sum": lambda m, x: Centred.apply(m(x).mean()).backward(),
    "what a module keeps": held,
    "as a plain tensor": lambda m, x: m(x).as_subclass(torch.Tensor).mean().backward(),
    "its data": lambda m, x: setattr(m(x), "data", x[:, :2]),
    "written elsewhere": lambda m, x: torch.zeros(RECORDS, 2).copy_(m(x)),
    "changed in place": lambda m, x: m(x).mul_(2).mean().backward(),
    "rows without a mean": lambda m, x: m(x).backward(),
    "a sum": lambda m, x: m(x).sum().backward(),
}


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("name", WAYS)
def test_no_other_gradient_reaches_a_layer(name: str) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    recorder = recorded(module)
    recorder.check_example(((torch.randn(4, 3),), {}), 4)
    # PyTorch does not compute with tensors of a finished pass.
    with pytest.raises(RuntimeError if name == "what a module keeps" else ParameterError):
        WAYS[name](module, torch.randn(RECORDS, 3))
    used = {"twice", "again"}
    assert bool(recorder.uses) == (name in used)


@pytest.mark.parametrize("name", ["mT", "mH"])
def test_an_attribute_does_not_swap_records_with_columns(name: str) -> None:
    module = torch.nn.Linear(2, RECORDS)
    recorder = recorded(module, "sum")
    try:
        with refuses("loss", "moves the dimension of records"):
            getattr(module(torch.randn(RECORDS, 2)), name).softmax(-1).sum().backward()
    finally:
        recorder.remove()


def test_changes_in_place_are_known_under_every_name() -> None:
    of = Pass(RECORDS, "mean")
    leaf = torch.randn(RECORDS, 2, requires_grad=True)
    out = of.output(leaf * 1.0, "rows")
    same = out[:, :]
    part = out.detach()
    part -= part.mean(0)
    for known in (out, same):
        with refuses("loss", "place"):
            known.mean().backward()


def test_outputs_of_another_batch_are_rejected() -> None:
    first, second = (
        Pass(RECORDS, "mean").output(torch.randn(RECORDS, 2, requires_grad=True) * 1.0, "rows")
        for _ in range(2)
    )
    for loss in (
        (first + second).mean(),
        first.mean() + second.mean(),
        (first * second.detach()).mean(),
    ):
        with refuses("loss", "several"):
            loss.backward()


def test_a_loop_may_look_at_everything() -> None:
    module = nn.Linear(3, 2)
    recorded(module)
    total, device_total, right, kept = 0.0, torch.zeros(()), 0, []
    for _ in range(3):
        out = module(torch.randn(RECORDS, 3))
        labels = torch.randint(0, 2, (RECORDS,))
        loss = functional.cross_entropy(out, labels)
        total += loss.item()
        device_total += loss.detach()
        right += (out.argmax(1) == labels).sum()
        kept.append(out.detach().cpu())
        assert f"{loss:.3f}"
        assert "Output" in repr(loss)
        assert out.detach().numpy().shape == (RECORDS, 2)
        # Functions of entries that return something else than entries.
        assert (out.type(), len(torch.where(out > 0))) == ("torch.FloatTensor", 2)
        loss.backward()
    assert torch.cat(kept).shape == (3 * RECORDS, 2)
    assert 0 <= int(right) <= 3 * RECORDS
    assert float(device_total) == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("records", [1, 2])
def test_dimension_of_one_is_dropped_except_the_records(records: int) -> None:
    of = Pass(records, "mean")
    out = of.output(torch.randn(records, 1, requires_grad=True) * 1.0, "rows")
    loss = functional.mse_loss(out.squeeze(), torch.zeros(records))
    assert out.squeeze().shape == (records,)
    loss.backward()


def test_returned_values_retain_their_form() -> None:
    @dataclass
    class Both:
        logits: Any
        loss: Any
        name: str = "both"

    class Several(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            out = self.map(x)
            return Both(out, out.sum()), {"x": out}, None

    module = Several()
    recorder = recorded(module)
    found = module(torch.randn(RECORDS, 2))
    recorder.remove()
    both, named, nothing = found
    assert isinstance(both, Both)
    assert both.name == "both"
    assert nothing is None
    forms = [t.origin.form for t in (both.logits, both.loss, named["x"])]
    assert forms == ["rows", "neither", "rows"]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("label", [3, -1, 10**12])
def test_invalid_class_label_adds_nothing(reduction: str, label: int) -> None:
    """It would end the run, and show that it is there."""
    torch.manual_seed(1)
    x, layout = torch.randn(4, 2), BlockLayout((1,) * 4)
    added = []
    for odd in (label, -100):
        net = torch.nn.Linear(2, 3)
        torch.nn.init.ones_(net.weight)
        torch.nn.init.zeros_(net.bias)
        recorder = Recorder(
            net, (), lambda: layout, reduction="mean" if reduction == "mean" else "sum"
        )
        target = torch.tensor([0, odd, 2, 1])
        torch.nn.functional.cross_entropy(net(x), target, reduction=reduction).backward()
        added.append(clipped_sums(recorder.uses, layout, 1.0)[net.weight])
        recorder.remove()
    assert torch.equal(*added)
    assert float(added[0].abs().sum()) > 0


def test_unknown_labels_are_ignored() -> None:
    labels = torch.tensor([0, 2, 3, -1, -100])
    assert within_classes(labels, 3).tolist() == [0, 2, -100, -100, -100]
