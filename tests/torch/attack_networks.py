"""Networks with a record-independent tensor that has one row per record of the batch.

Each network is built around a table of k rows, equal or random, so that a test can let k be any size.
It states whether it must train: it does if it separates records for every batch size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from tests.torch import cases
from tests.torch.library import torch

# isort: split
from dpgrain.torch.linear_maps import through_linear_maps

nn, functional = torch.nn, torch.nn.functional
WIDTH, TOKENS = 4, 11
#: Largest number of records in a batch, and of rows in a table. A trial may have 3 and 4 records.
MOST = 8

#: ``"trains"``: separates records, and must train for every size. ``"rejected"``: mixes records, or
#: depends on their positions, and must be rejected for every batch of two or more. ``"either"``:
#: may be rejected; if it trains, its sums must be right.
Verdict = Literal["trains", "rejected", "either"]


@dataclass(frozen=True)
class Network:
    """A network around a table.

    Args:
        make: builds the module from a (k, WIDTH) table.
        draw: draws the input of ``rows`` records, next to a table of ``k`` rows.
        tables: numbers of rows of tables with equal rows, and of tables with random rows.
        uses_all: True if the loss uses every output with one row per record, not only the first.
        branches: True if the network itself does something else for some sizes of the batch.
    """

    make: Callable[[Any], Any]
    verdict: Verdict = "trains"
    draw: Callable[[int, int], Any] = lambda rows, _k: torch.randn(rows, WIDTH)
    tables: tuple[tuple[int, ...], tuple[int, ...]] = ((3, 5), (5,))
    uses_all: bool = False
    branches: bool = False


def sequences(rows: int, k: int) -> Any:
    return torch.randn(rows, k, WIDTH)


def words(rows: int, k: int) -> Any:
    return torch.randint(0, TOKENS, (rows, k))


class Meeting(torch.nn.Module):
    """Records and a table, each read by a trained layer, which then meet in a function.

    Args:
        table: (k, WIDTH) the table.
        meet: the function of hidden records and the table's vectors.
        source: builds the layer's input, from the table and the input; the table itself by default.
    """

    def __init__(self, table: Any, meet: Any, read: Any = None, source: Any = None) -> None:
        super().__init__()
        self.register_buffer("table", table)
        self.inside = nn.Linear(WIDTH, WIDTH)
        self.read = nn.Linear(WIDTH, WIDTH) if read is None else read
        self.meet, self.source = meet, source

    def forward(self, x: Any) -> Any:
        table = self.table if self.source is None else self.source(self.table, x)
        return self.meet(self.inside(x), self.read(table))


class Made(torch.nn.Module):
    """A network as a function of itself and of its input."""

    def __init__(self, run: Any, **parts: Any) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            if isinstance(part, nn.Module | nn.Parameter):
                setattr(self, name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, x: Any) -> Any:
        return self.run(self, x)


class OwnScale(torch.nn.Module):
    """A layer without a rule, with its own parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.randn(WIDTH)), nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: Any) -> Any:
        return x * self.scale + self.shift


class FirstOfTwo(torch.nn.Module):
    """A recurrent layer that reads a table as one sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(WIDTH, WIDTH, batch_first=True)
        through_linear_maps(self)

    def forward(self, table: Any) -> Any:
        return self.layer(table[None])[0][0]


class Convolved(torch.nn.Module):
    """A convolution along the rows of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)

    def forward(self, table: Any) -> Any:
        return self.layer(table.T[None])[0].T


def linear() -> Any:
    return nn.Linear(WIDTH, WIDTH)


def nearest(h: Any, t: Any) -> Any:
    """The row of a table that each record looks up."""
    return h.detach().square().sum(1).mul(10).long() % len(t)


MEETINGS: Mapping[str, Callable[[Any, Any], Any]] = {
    "einsum": lambda h, t: torch.einsum("bd,kd->bk", h, t),
    "einsum of three": lambda h, t: torch.einsum("bd,kd,kd->bk", h, t, t),
    "linear": lambda h, t: functional.linear(h, t),
    "linear with bias": lambda h, t: functional.linear(h, t, t.sum(1)),
    "matmul": lambda h, t: h @ t.T,
    "mm": lambda h, t: h.mm(t.t()),
    "mT": lambda h, t: torch.matmul(h, t.mT),
    "inner": torch.inner,
    "tensordot": lambda h, t: torch.tensordot(h, t, dims=([1], [1])),
    "addmm": lambda h, t: torch.addmm(t.sum(1), h, t.T),
    "bmm": lambda h, t: torch.bmm(h[:, None], t.T.expand(len(h), -1, -1))[:, 0],
    "matmul from the left": lambda h, t: torch.matmul(t, h.unsqueeze(-1)).squeeze(-1),
    "rows one by one": lambda h, t: torch.stack([(h * row).sum(1) for row in t], 1),
    "cdist": torch.cdist,
    "softmax over prototypes": lambda h, t: torch.softmax(-torch.cdist(h, t), 1),
    "kernel": lambda h, t: torch.exp(-(h[:, None] - t[None]).square().sum(-1)),
    "pairwise distance": lambda h, t: functional.pairwise_distance(h[:, None], t[None]),
    "cosine": lambda h, t: functional.cosine_similarity(h[:, None], t[None], dim=-1),
    "normalized": lambda h, t: functional.normalize(h, dim=1) @ functional.normalize(t, dim=1).T,
    "logsumexp over classes": lambda h, t: h @ t.T - 0.5 * (h @ t.T).logsumexp(1, keepdim=True),
    "log-softmax": lambda h, t: functional.log_softmax(functional.linear(h, t), dim=1),
    "soft mixture": lambda h, t: torch.einsum("bk,kd->bd", torch.softmax(h @ t.T, 1), t),
    "memory": lambda h, t: torch.softmax(h @ t.T / 2, -1) @ t,
    "attention": lambda h, t: functional.scaled_dot_product_attention(
        h[:, None], t.expand(len(h), *t.shape), t.expand(len(h), *t.shape)
    )[:, 0],
    "tokens before": lambda h, t: torch.cat((t.expand(len(h), -1, -1), h[:, None]), 1).sin().sum(1),
    "tokens repeated": lambda h, t: torch.cat((h[:, None], t.repeat(len(h), 1, 1)), 1).sin().sum(1),
    "flattened beside": lambda h, t: torch.cat((h, t.flatten().expand(len(h), -1)), 1).sin(),
    "outer": lambda h, t: torch.outer(h[:, 0], t[:, 0]),
    "broadcast": lambda h, t: (h[:, None] * t).sin(),
    "mean added": lambda h, t: h + t.mean(0),
    "largest added": lambda h, t: h + t.amax(0),
    "softmax of the table": lambda h, t: h @ torch.softmax(t, 0).T,
    "scale and shift": lambda h, t: h * t.square().mean(0) + t.sum(0),
    "norm of all": lambda h, t: h * t.norm(),
    "first row": lambda h, t: h * t[0],
    "first rows kept": lambda h, t: h * t[:1],
    "picked by records": lambda h, t: h * t[nearest(h, t)],
    "embedding": lambda h, t: h * functional.embedding(nearest(h, t), t),
    "one-hot": lambda h, t: h + functional.one_hot(nearest(h, t), len(t)).to(h) @ t,
    "codebook": lambda h, t: h + (t[torch.cdist(h, t).argmin(1)] - h).tanh(),
    "filters": lambda h, t: functional.conv1d(h[:, None], t[:, None, :2]),
    "layer norm by it": lambda h, t: functional.layer_norm(h, (WIDTH,), t.mean(0)),
    "where": lambda h, t: torch.where(h > 0, h, h * t.sum(0)),
    "gram": lambda h, t: h @ (t.T @ t),
    "turned and back": lambda h, t: h @ t.T.contiguous() @ t.clone(),
    "reshaped": lambda h, t: h @ t.reshape(-1).view(t.shape).T,
    "in double": lambda h, t: (h.double() @ t.double().T).to(h.dtype),
    "like it": lambda h, t: h @ (t + torch.zeros_like(t)).T,
    "sorted classes": lambda h, t: (h @ t.T).sort(dim=1).values,
    "running sum of classes": lambda h, t: (h @ t.T).cumsum(1),
}

#: Functions that may mix, or that no rule needs to know: rejected or right.
DOUBTFUL: Mapping[str, Callable[[Any, Any], Any]] = {
    "stacked": lambda h, t: (torch.stack([t] * len(h)) * h[:, None]).sin().sum(1),
    "records second": lambda h, t: torch.cdist(h[None], t[None])[0],
    "turned result": lambda h, t: (t @ h.T).T,
    "einsum turned": lambda h, t: torch.einsum("kd,bd->kb", t, h).T,
    "put together": lambda h, t: torch.cat((h, t), 0).sin()[: len(h)],
    "put before": lambda h, t: torch.cat((t, h), 0).sin()[len(t) :],
    "products of all": lambda h, t: torch.kron(h, t),
    "meshgrid": lambda h, t: torch.meshgrid(h[:, 0], t[:, 0], indexing="ij")[0] * h[:, :1],
    "all pairs": lambda h, t: torch.cartesian_prod(h[:, 0], t[:, 0]).view(len(h), -1) * 1.0,
    "combined and split": lambda h, t: (
        (h.repeat_interleave(len(t), 0) * t.repeat(len(h), 1)).view(len(h), len(t), -1).sum(1)
    ),
    "transformed": lambda h, t: torch.vmap(lambda one: t @ one)(h),
}

#: Functions that depend on the place of a record, or on the number of records.
PLACED: Mapping[str, Callable[[Any, Any], Any]] = {
    "added row by row": lambda h, t: h + t,
    "multiplied row by row": lambda h, t: h * t,
    "as many rows": lambda h, t: h + t[: len(h)],
    "as many rows of the shape": lambda h, t: h * t[: h.shape[0]],
    "beside row by row": lambda h, t: torch.cat((h, t), 1),
    "dot row by row": lambda h, t: torch.einsum("bd,bd->b", h, t)[:, None] * h,
    "cosine row by row": lambda h, t: functional.cosine_similarity(h, t)[:, None] * h,
    "batched": lambda h, t: torch.bmm(h[:, None], t[:, :, None])[:, 0] * h,
    "row of the place": lambda h, t: h + t[torch.arange(len(h)) % len(t)],
    "rolled": lambda h, t: h + t.roll(1, 0)[: len(h)],
    "interpolated": lambda h, t: torch.lerp(h, t[: len(h)], 0.5),
    "other sum, if as many": lambda h, t: h + t if len(h) == len(t) else h + t.mean(0),
    "mean if as many": lambda h, t: h - h.mean(0) if h.shape[0] == len(t) else h + 0 * t.mean(),
}

#: Functions that mix records, next to a correctly used table.
MIXING: Mapping[str, Callable[[Any, Any], Any]] = {
    "mean": lambda h, t: (h - h.mean(0)) @ t.T,
    "mean without gradient": lambda h, t: (h - h.detach().mean(0)) @ t.T,
    "variance": lambda h, t: h / (1 + h.var(0, unbiased=False)) @ t.T,
    "softmax over records": lambda h, t: torch.softmax(h @ t.T, 0),
    "cumulated": lambda h, t: h.cumsum(0) @ t.T,
    "rolled": lambda h, t: (h + h.roll(1, 0)) @ t.T,
    "sorted": lambda h, t: h.sort(dim=0).values @ t.T,
    "flipped": lambda h, t: (h + h.flip(0)) @ t.T,
    "first record": lambda h, t: (h + h[:1]) @ t.T,
    "last record": lambda h, t: (h + h[-1]) @ t.T,
    "largest": lambda h, t: h / (1 + h.abs().max()) @ t.T,
    "norm of all": lambda h, t: h / (1 + h.norm()) @ t.T,
    "divided by the number": lambda h, t: h / len(h) @ t.T,
    "times the number": lambda h, t: h * h.shape[0] @ t.T,
    "place of the record": lambda h, t: h * torch.arange(1.0, len(h) + 1).to(h)[:, None] @ t.T,
    "attention over records": lambda h, t: torch.softmax(h @ h.T, -1) @ h @ t.T,
    "gram of records": lambda h, t: h @ (h.T @ h) @ t.T,
    "products of records": lambda h, t: h @ h.T + (h @ t.T).sum(1, keepdim=True),
    "normalized over records": lambda h, t: functional.normalize(h, dim=0) @ t.T,
    "other shape": lambda h, t: h.T.reshape(h.shape) @ t.T,
    "logsumexp over records": lambda h, t: h @ t.T - 0.5 * (h @ t.T).logsumexp(0),
    "batch norm": lambda h, t: functional.batch_norm(h, None, None, training=True) @ t.T,
    "mean of the mixture": lambda h, t: h + (torch.softmax(h @ t.T, 1) @ t).mean(0),
    "table and records": lambda h, t: h + torch.cat((t, h), 0).mean(0),
    "balance of experts": lambda h, t: h @ t.T * torch.softmax(h @ t.T, 1).mean(0),
}

READERS: Mapping[str, Callable[[], Any]] = {
    "layer norm": lambda: nn.LayerNorm(WIDTH),
    "group norm": lambda: nn.GroupNorm(2, WIDTH),
    "root mean square": lambda: nn.RMSNorm(WIDTH),
    "two layers": lambda: nn.Sequential(linear(), nn.Tanh(), linear()),
    "norm and map": lambda: nn.Sequential(nn.LayerNorm(WIDTH), nn.ReLU(), linear()),
    "own scale": OwnScale,
    "own scale and map": lambda: nn.Sequential(OwnScale(), linear()),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(linear()),
    "map and frozen map": lambda: nn.Sequential(linear(), linear().requires_grad_(False)),
    "recurrent": FirstOfTwo,
    "convolution": Convolved,
    "without bias": lambda: nn.Linear(WIDTH, WIDTH, bias=False),
}

#: The layer's input instead of a buffer of k rows, from the buffer and the input.
SOURCES: Mapping[str, Callable[[Any, Any], Any]] = {
    "ones in forward": lambda t, _x: torch.ones(len(t), WIDTH, dtype=t.dtype),
    "full in forward": lambda t, _x: torch.full((len(t), WIDTH), 0.5, dtype=t.dtype),
    "zeros in forward": lambda t, _x: torch.zeros(len(t), WIDTH, dtype=t.dtype),
    "eye in forward": lambda t, _x: torch.eye(len(t), WIDTH, dtype=t.dtype),
    "like the table": lambda t, _x: torch.ones_like(t),
    "list in forward": lambda t, _x: torch.tensor([[0.5] * WIDTH] * len(t), dtype=t.dtype),
    "row expanded": lambda t, _x: t[:1].expand(len(t), -1),
    "row repeated": lambda t, _x: t[:1].repeat(len(t), 1),
    "linspace": lambda t, _x: torch.linspace(-1, 1, len(t), dtype=t.dtype)[:, None].expand_as(t),
    "detached": lambda t, _x: t.detach().clone() * 2,
}

#: Inputs that only look as if they came from the batch.
TYPED: Mapping[str, Callable[[Any, Any], Any]] = {
    "of the input's kind": lambda t, x: x.new_ones(len(t), WIDTH),
    "moved": lambda t, x: t.to(x).contiguous(),
    "of the input's type": lambda t, x: t.type_as(x),
    "zeros of the records": lambda t, x: t + 0 * x.sum(),
    "like some records": lambda t, x: torch.ones_like(x.sum(0)).expand(len(t), -1),
}

#: Inputs with a row for each record, because their size was read from the batch.
SIZED: Mapping[str, Callable[[Any, Any], Any]] = {
    "full of the shape": lambda t, x: torch.full((x.shape[0], WIDTH), 0.5, dtype=t.dtype),
    "ones of the length": lambda t, x: torch.ones(len(x), WIDTH, dtype=t.dtype),
    "zeros of the size": lambda t, x: torch.zeros(x.size(0), WIDTH, dtype=t.dtype),
    "new": lambda _t, x: x.new_full((len(x), WIDTH), 0.5),
    "like the input": lambda _t, x: torch.ones_like(x),
    "row expanded": lambda t, x: t[:1].expand(len(x), -1),
    "row repeated": lambda t, x: t[:1].repeat(x.shape[0], 1),
    "row expanded as": lambda t, x: t[:1].expand_as(x),
    "row picked": lambda t, x: t[torch.zeros(len(x), dtype=torch.int64)],
}


def meeting(meet: Any, **others: Any) -> Callable[[Any], Any]:
    """A builder of a network with records that meet a table."""

    def make(table: Any) -> Any:
        read = others.get("read")
        return Meeting(table, meet, None if read is None else read(), others.get("source"))

    return make


def placed(run: Any) -> Network:
    """A network with a table of positions, which reads tokens."""

    def make(table: Any) -> Any:
        return Made(
            run,
            words=nn.Embedding(TOKENS, WIDTH),
            places=nn.Embedding(len(table), WIDTH),
            map=linear(),
        )

    return Network(make, draw=words)


def _of_one_row(net: Any, x: Any) -> Any:
    return net.map(x) @ net.row(torch.zeros(len(net.table), dtype=torch.int64)).T


def _labels_matched(net: Any, x: Any) -> Any:
    return net.map(x) @ net.read(net.words(net.ids).mean(1)).T


def _recurrent(net: Any, x: Any) -> Any:
    state = net.state.expand(1, x.shape[0], WIDTH)[0]
    for step in range(x.shape[1]):
        state = torch.tanh(net.map(x[:, step]) + net.read(state))
    return state


def _relative(net: Any, x: Any) -> Any:
    place = torch.arange(x.shape[1])
    bias = net.bias(place[:, None] - place + x.shape[1] - 1)[..., 0]
    h = net.map(x)
    return torch.softmax(h @ h.mT + bias, -1) @ h


def _experts(net: Any, x: Any) -> Any:
    gates = torch.softmax(net.map(x) @ net.read(net.table).T, 1)
    each = torch.einsum("bd,kde->bke", x, net.experts)
    return torch.einsum("bk,bke->be", gates, each)


def _hyper(net: Any, x: Any) -> Any:
    return functional.linear(x, net.read(net.table))


def _hyper_of_records(net: Any, x: Any) -> Any:
    weights = net.read(x).unflatten(1, (len(net.table), WIDTH))
    return torch.bmm(weights, net.map(x)[:, :, None])[:, :, 0]


def _adapted(net: Any, x: Any) -> Any:
    return net.base(x) + net.up(net.down(x)) @ net.read(net.table).T @ net.table


def _latents(net: Any, x: Any) -> Any:
    latents = net.latents.repeat(x.shape[0], 1, 1)
    h = net.map(x)
    seen = functional.scaled_dot_product_attention(net.read(latents), h, h)
    return net.out(seen.mean(1))


def _prefixed(net: Any, x: Any) -> Any:
    prefix = net.read(net.prefix(torch.arange(len(net.table)))).expand(x.shape[0], -1, -1)
    h = torch.cat((prefix, net.map(x)[:, None]), 1)
    return functional.scaled_dot_product_attention(h, h, h)[:, -1]


def _class_token(net: Any, x: Any) -> Any:
    h = torch.cat((net.token.expand(len(x), -1, -1), net.map(x)), 1)
    return functional.scaled_dot_product_attention(h, h, h)[:, 0]


def _queries(net: Any, x: Any) -> Any:
    queries = net.queries(torch.arange(len(net.table)))[None].expand(x.shape[0], -1, -1)
    h = net.map(x)
    return torch.softmax(queries @ h.mT, -1) @ h


def _temperature(net: Any, x: Any) -> Any:
    return net.map(x) @ net.read(net.table).T * net.scale.exp()


def _named(logits: Any, **others: Any) -> Any:
    return {"logits": logits, **others}


def made(run: Any, **parts: Any) -> Callable[[Any], Any]:
    """A builder of a network that is a function, with the table as a buffer."""

    def make(table: Any) -> Any:
        return Made(run, table=table, **{name: part(table) for name, part in parts.items()})

    return make


_MAPS: dict[str, Any] = {"map": lambda _t: linear(), "read": lambda _t: linear()}
_OWN: Mapping[str, Network] = {
    "embedding of one row": Network(
        made(_of_one_row, map=lambda _t: linear(), row=lambda _t: nn.Embedding(1, WIDTH))
    ),
    "classes looked up": Network(
        made(
            lambda net, x: net.map(x) @ net.classes(torch.arange(len(net.table))).T,
            map=lambda _t: linear(),
            classes=lambda t: nn.Embedding(len(t), WIDTH),
        )
    ),
    "equal labels": Network(
        made(
            _labels_matched,
            **_MAPS,
            words=lambda _t: nn.Embedding(TOKENS, WIDTH),
            ids=lambda t: torch.full((len(t), 2), 3),
        )
    ),
    "other labels": Network(
        made(
            _labels_matched,
            **_MAPS,
            words=lambda _t: nn.Embedding(TOKENS, WIDTH),
            ids=lambda t: torch.arange(2 * len(t)).view(-1, 2) % TOKENS,
        )
    ),
    "learned prototypes": Network(
        made(
            lambda net, x: torch.cdist(net.map(x), net.prototypes),
            map=lambda _t: linear(),
            prototypes=lambda t: nn.Parameter(t.clone()),
        )
    ),
    "learned prototypes, read": Network(
        made(
            lambda net, x: net.map(x) @ net.read(net.prototypes).T,
            **_MAPS,
            prototypes=lambda t: nn.Parameter(t.clone()),
        )
    ),
    "frozen prototypes, read": Network(
        made(
            lambda net, x: net.map(x) @ net.read(net.prototypes).T,
            **_MAPS,
            prototypes=lambda t: nn.Parameter(t.clone(), requires_grad=False),
        )
    ),
    "one layer for both": Network(
        made(lambda net, x: net.map(x) @ net.map(net.table).T, map=lambda _t: linear())
    ),
    "table first": Network(
        made(lambda net, x: (net.read(net.table) @ net.map(x).T).T, **_MAPS), "either"
    ),
    "one-hot classes": Network(
        made(
            lambda net, x: net.map(x) @ net.read(torch.eye(len(net.table), dtype=x.dtype)).T,
            map=lambda _t: linear(),
            read=lambda t: nn.Linear(len(t), WIDTH),
        )
    ),
    "experts": Network(
        made(
            _experts,
            **_MAPS,
            experts=lambda t: nn.Parameter(torch.randn(len(t), WIDTH, WIDTH)),
        )
    ),
    "hypernetwork": Network(made(_hyper, read=lambda _t: linear())),
    "hypernetwork of records": Network(
        made(
            _hyper_of_records,
            map=lambda _t: linear(),
            read=lambda t: nn.Linear(WIDTH, len(t) * WIDTH),
        )
    ),
    "adapter": Network(
        made(
            _adapted,
            base=lambda _t: linear().requires_grad_(False),
            down=lambda _t: nn.Linear(WIDTH, 2, bias=False),
            up=lambda _t: nn.Linear(2, WIDTH, bias=False),
            read=lambda _t: linear(),
        )
    ),
    "latents": Network(
        made(_latents, **_MAPS, latents=lambda t: nn.Parameter(t.clone()), out=lambda _t: linear()),
        draw=sequences,
    ),
    "latents of a buffer": Network(
        made(_latents, **_MAPS, latents=lambda t: t.clone(), out=lambda _t: linear()),
        draw=sequences,
    ),
    "prefix": Network(
        made(_prefixed, **_MAPS, prefix=lambda t: nn.Embedding(len(t), WIDTH)),
    ),
    "class token": Network(
        made(
            _class_token,
            map=lambda _t: linear(),
            token=lambda _t: nn.Parameter(torch.randn(1, 1, WIDTH)),
        ),
        draw=sequences,
    ),
    "class tokens": Network(
        made(_class_token, map=lambda _t: linear(), token=lambda t: nn.Parameter(t[None].clone())),
        draw=sequences,
    ),
    "queries": Network(
        made(_queries, map=lambda _t: linear(), queries=lambda t: nn.Embedding(len(t), WIDTH)),
        draw=sequences,
    ),
    "learned first state": Network(
        made(_recurrent, **_MAPS, state=lambda _t: nn.Parameter(torch.randn(1, 1, WIDTH))),
        draw=sequences,
    ),
    "relative places": Network(
        made(_relative, map=lambda _t: linear(), bias=lambda t: nn.Embedding(2 * len(t), 1)),
        draw=sequences,
    ),
    "temperature": Network(
        made(_temperature, **_MAPS, scale=lambda _t: nn.Parameter(torch.tensor(0.5)))
    ),
    "bilinear": Network(
        made(
            lambda net, x: net.both(net.map(x), net.map(x)) @ net.read(net.table).T,
            **_MAPS,
            both=lambda _t: nn.Bilinear(WIDTH, WIDTH, WIDTH),
        )
    ),
    "places, one batch": placed(
        lambda net, x: (
            net.map(net.words(x) + net.places(torch.arange(x.shape[1])[None])).sin().sum(1)
        )
    ),
    "places, no batch": placed(
        lambda net, x: net.map(net.words(x) + net.places(torch.arange(x.shape[1]))).sin().sum(1)
    ),
    "places expanded": placed(
        lambda net, x: (
            net.map(net.words(x) + net.places(torch.arange(x.shape[1]).expand(x.shape[0], -1)))
            .sin()
            .sum(1)
        )
    ),
    "places expanded as": placed(
        lambda net, x: net.map(
            net.words(x) + net.places(torch.arange(x.size(1)).expand_as(x))
        ).mean(1)
    ),
    "places repeated": placed(
        lambda net, x: (
            net.map(net.words(x) + net.places(torch.arange(x.shape[1]).repeat(len(x), 1)))
            .sin()
            .sum(1)
        )
    ),
    "places all alike": placed(
        lambda net, x: net.map(net.words(x) + net.places(torch.zeros_like(x))).sin().sum(1)
    ),
    "places all alike, no batch": placed(
        lambda net, x: (
            net.map(net.words(x) + net.places(torch.zeros(x.shape[1], dtype=torch.int64)))
            .sin()
            .sum(1)
        )
    ),
}

#: Networks that return more than the prediction, with a loss of the first output or of all of them.
_STATISTICS: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    "mean": lambda h, t, s: (s, (h @ t.T).mean(0)),
    "mean by name": lambda h, t, s: _named(s, mean=(h @ t.T).mean(0)),
    "variance": lambda h, t, s: (s, (h @ t.T).var(0, unbiased=False)),
    "counts": lambda h, t, s: [s, torch.softmax(h @ t.T, 1).sum(0)],
    "gram of classes": lambda h, t, s: (s, (h @ t.T).T @ (h @ t.T)),
    "table": lambda _h, t, s: (s, t),
    "table by name": lambda _h, t, s: _named(s, table=t),
    "norms of the table": lambda _h, t, s: (s, t.square().sum(1)),
    "rows turned": lambda h, t, s: (s, (h @ t.T).T),
    "constant": lambda _h, t, s: (s, s.new_ones(len(t))),
}


def _statistics(function: Any) -> Callable[[Any], Any]:
    return meeting(lambda h, t: function(h, t, torch.cdist(h, t)))


def remembering(how: str, table: Any) -> Any:
    return Remembering(table, how)


def without_table(make: Callable[[], Any], _table: Any) -> Any:
    return make()


def without_table_rows(draw: Callable[[int], Any], rows: int, _k: int) -> Any:
    return draw(rows)


class Remembering(torch.nn.Module):
    """A network that keeps the batch before, in an attribute, a list or a closure."""

    seen: Any

    def __init__(self, table: Any, how: str) -> None:
        super().__init__()
        self.register_buffer("table", table)
        self.map, self.read, self.how, self.last = linear(), linear(), how, None
        self.register_buffer("seen", torch.zeros(WIDTH))
        held: list[Any] = []
        self.held: Callable[[], list[Any]] = lambda: held

    def forward(self, x: Any) -> Any:
        h = self.map(x)
        if self.how == "attribute":
            h, self.last = h if self.last is None else h + self.last.mean(0), h.detach()
        elif self.how == "closure":
            before = self.held()
            h, now = h + before[0] if before else h, h.detach().mean(0)
            before[:] = [now]
        elif self.how == "buffer":
            self.seen.mul_(0.9).add_(h.detach().mean(0))
            h = h + self.seen
        else:
            self.seen = 0.9 * self.seen + h.detach().mean(0)
            h = h + self.seen
        return h @ self.read(self.table).T


class Large(torch.nn.Module):
    """A network that mixes records only in batches of more than four."""

    def __init__(self, table: Any) -> None:
        super().__init__()
        self.register_buffer("table", table)
        self.map, self.read = linear(), linear()

    def forward(self, x: Any) -> Any:
        h = self.map(x)
        h = h - h.mean(0) if len(x) > 4 else h
        return h @ self.read(self.table).T


#: Networks that run next to tables of every length, by the beginnings of their names.
EVERY_LENGTH = """
    meets: einsum|meets: linear|meets: matmul|meets: cdist|meets: softmax over prototypes|meets: kernel
    meets: logsumexp over classes|meets: soft mixture|meets: memory|meets: attention
    meets: tokens before|meets: flattened beside|meets: outer|meets: broadcast|meets: mean added
    meets: picked by records|meets: one-hot|meets: filters|reads: layer norm|reads: group norm
    reads: two layers|reads: own scale|reads: recurrent|reads by attention: layer norm
    made: ones|made: full|made: zeros|made: eye|made: row expanded|made: like
    sized: full|sized: new|sized: row expanded|sized: row repeated|own: embedding of one row
    own: equal labels|own: learned prototypes|own: frozen prototypes|own: one-hot classes
    own: experts|own: hypernetwork|own: adapter|own: latents|own: prefix|own: class token|own: queries
    own: learned first state|own: relative places|own: places|returns: mean|returns: table
    returns: constant|loss of all: mean|loss of all: table|loss of all: counts|by place: added
    by place: as many rows|by place: beside|by place: mean if as many|mixes: large batches
"""


def _with_tables(name: str, network: Network) -> Network:
    """A network with the lengths of its tables."""
    begins = tuple(part.strip() for line in EVERY_LENGTH.split("\n") for part in line.split("|"))
    if network.tables[1] and name.startswith(tuple(part for part in begins if part)):
        return replace(network, tables=(tuple(range(1, MOST + 1)), (5,)))
    if network.verdict == "rejected":
        # Next to equal rows some of them mix nothing.
        return replace(network, tables=((), (3, 5)))
    return network


_NETWORKS: Mapping[str, Network] = {
    **{f"meets: {name}": Network(meeting(meet)) for name, meet in MEETINGS.items()},
    **{
        f"reads: {name}": Network(
            meeting(MEETINGS["einsum"], read=read),
            "either" if name in ("group norm", "convolution") else "trains",
        )
        for name, read in READERS.items()
    },
    **{
        f"reads by attention: {name}": Network(meeting(MEETINGS["memory"], read=READERS[name]))
        for name in ("layer norm", "two layers", "own scale")
    },
    **{
        f"made: {name}": Network(meeting(MEETINGS["linear"], source=source))
        for name, source in SOURCES.items()
    },
    **{
        f"typed: {name}": Network(meeting(MEETINGS["linear"], source=source), "either")
        for name, source in TYPED.items()
    },
    **{
        f"sized: {name}": Network(meeting(lambda h, t: h + t, source=source))
        for name, source in SIZED.items()
    },
    **{f"own: {name}": network for name, network in _OWN.items()},
    **{
        f"returns: {name}": Network(_statistics(function)) for name, function in _STATISTICS.items()
    },
    **{
        f"loss of all: {name}": Network(_statistics(function), "either", uses_all=True)
        for name, function in _STATISTICS.items()
    },
    **{f"doubtful: {name}": Network(meeting(meet), "either") for name, meet in DOUBTFUL.items()},
    **{
        f"by place: {name}": Network(meeting(meet), "either", branches=name.endswith("if as many"))
        for name, meet in PLACED.items()
    },
    **{f"mixes: {name}": Network(meeting(meet), "rejected") for name, meet in MIXING.items()},
    **{
        f"remembers: {how}": Network(partial(remembering, how), "rejected")
        for how in ("attribute", "closure", "buffer", "new buffer")
    },
    "mixes: large batches": Network(Large, "either", branches=True),
    "mixes: batch norm layer": Network(
        meeting(MEETINGS["matmul"], read=lambda: nn.BatchNorm1d(WIDTH)), "rejected"
    ),
    **{
        f"trains: {name}": Network(
            partial(without_table, make),
            draw=partial(without_table_rows, draw),
            tables=((1,), ()),
        )
        for name, (make, draw) in cases.NETWORKS.items()
    },
}

#: All of them, by purpose.
NETWORKS: Mapping[str, Network] = {
    name: _with_tables(name, network) for name, network in _NETWORKS.items()
}
