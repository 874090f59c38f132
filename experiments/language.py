"""A small language model on a chat: examples, users or elements drawn, at equal cost.

Charles and others ("Fine-tuning large language models with user-level differential privacy", 2024)
compare two ways to one guarantee for whole users: *examples* sampled and clipped separately, at
most G per user, and *users* sampled, with their clipped mean gradient over G examples. Here a third
way is in between, *elements*: a user's messages within ten minutes are clipped as one, and a user
has at most M of these. The fourth curve has elements with a guarantee only for each of them. All
sample the same average number of messages per step, so that all cost the same.

The model reads characters: two layers of width 32 with random weights, on the 95 printable ones of
ASCII and a sign for others. A message's loss is the mean over its first 48 characters, so that a
message counts as one. Test messages are of other users.

    python experiments/language.py [--steps 250] [--messages-a-step 100] [--epsilons 3 inf]
        [--out experiments/out]

A finished cell is stored in a file, and the same command continues with the next one. The messages
(Kummerfeld and others, 2019, CC BY 4.0) are read from the folder in DPGRAIN_DATA.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from networks import (
    Asked,
    Curve,
    IntArray,
    Line,
    Records,
    draw,
    kept,
    options,
    private,
    said,
    tables,
)
from numpy.typing import NDArray
from results import write

from dpgrain.units import Element, User

nn, functional = torch.nn, torch.nn.functional

FILE = "irc_ubuntu.parquet"
# Symbols: 95 printable characters from the space on, one for all others, and the start of a
# message.
_FIRST, _OTHER, _START, SIGNS = 32, 95, 96, 97
LENGTH, WIDTH, HEADS = 48, 32, 2
# Messages (G) and elements (M) used per user in user-level guarantees.
MESSAGES, ELEMENTS = 8, 4
# An element is a user's messages within this number of minutes of one day.
MINUTES = 10
# One in this many users belongs to the test.
_TESTED = 10


# Messages --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chat:
    """Messages with their users and elements, in the order of time.

    Args:
        signs: (m, LENGTH + 1) the start and the characters of each; −1 after its end.
        users: (m,) 0 to n−1.
        elements: (m,) a day and ten of its minutes.
        tested: (m', LENGTH + 1) messages of other users.
    """

    signs: Any
    users: IntArray
    elements: IntArray
    n_users: int
    tested: Any

    @staticmethod
    def read(
        folder: Path, device: str = "cpu", most: int | None = None, tested: int = 1000
    ) -> Chat:
        """Read the messages of people, or the first ones, and ``tested`` ones for the test."""
        columns = ["user_id", "date", "minute", "is_bot", "text"]
        table = pq.read_table(folder / FILE, columns=columns).slice(0, most)
        day = table["date"].to_numpy().astype("datetime64[D]").astype(np.int64)
        minute = table["minute"].to_numpy().astype(np.int64)
        order = np.lexsort((minute, day))
        order = order[~table["is_bot"].to_numpy()[order]]
        names, person = np.unique(table["user_id"].to_numpy()[order], return_inverse=True)
        window = (day * 1440 + minute)[order] // MINUTES
        rng = np.random.default_rng(0)
        rank = rng.permutation(len(names))
        test = rank[person] < len(names) // _TESTED
        texts = np.array(table["text"].to_pylist(), dtype=object)[order]
        held = np.flatnonzero(~test)
        asked = rng.permutation(np.flatnonzero(test))[:tested]
        _, users = np.unique(person[held], return_inverse=True)
        _, elements = np.unique(window[held], return_inverse=True)
        n = int(users.max()) + 1
        signs, others = (torch.from_numpy(coded(texts[rows])).to(device) for rows in (held, asked))
        return Chat(signs, users.astype(np.int64), elements.astype(np.int64), n, others)

    def loss(self, module: Any, places: Any) -> Any:
        """The mean over messages of the mean cross-entropy of their characters."""
        return message_loss(module, self.signs[places.to(self.signs.device)])

    def figure(self, module: Any, whole: bool) -> float:
        """The loss of the test in nats a character, on the way of a fifth of it."""
        training = module.training
        module.eval()
        some = self.tested if whole else self.tested[: len(self.tested) // 5]
        with torch.no_grad():
            sums = [float(message_loss(module, part)) * len(part) for part in some.split(100)]
        module.train(training)
        return sum(sums) / len(some)


def coded(texts: NDArray[Any]) -> IntArray:
    """(m, LENGTH + 1) the signs of messages: the start, characters, and −1 after the end."""
    found = np.full((len(texts), LENGTH + 1), -1, dtype=np.int64)
    found[:, 0] = _START
    for row, text in enumerate(texts):
        points = np.frombuffer(text[:LENGTH].encode("utf-32-le"), dtype="<u4").astype(np.int64)
        signs = points - _FIRST
        found[row, 1 : len(signs) + 1] = np.where((signs < 0) | (signs >= _OTHER), _OTHER, signs)
    return found


def message_loss(module: Any, signs: Any) -> Any:
    """The mean over messages of their mean losses."""
    told, truth = signs[:, :-1].clamp(min=0), signs[:, 1:]
    each = functional.cross_entropy(
        module(told).transpose(1, 2), truth, ignore_index=-1, reduction="none"
    )
    return (each.sum(1) / (truth >= 0).sum(1).clamp(min=1)).mean()


# The model -------------------------------------------------------------------------------------


class Layer(torch.nn.Module):
    """Attention to earlier characters, and two linear maps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.maps, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        heads = (
            t.unflatten(2, (HEADS, -1)).transpose(1, 2)
            for t in self.maps(self.first(x)).chunk(3, 2)
        )
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Model(torch.nn.Module):
    """Two layers that predict the next character at each position."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(SIGNS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.Sequential(Layer(), Layer())
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, SIGNS)

    def forward(self, signs: Any) -> Any:
        places = torch.arange(signs.shape[1], device=signs.device).expand(len(signs), -1)
        return self.out(self.norm(self.layers(self.table(signs) + self.places(places))))


def model(seed: int) -> Any:
    """The model with random weights."""
    torch.manual_seed(seed)
    return Model()


# Ways ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """One way of drawing and clipping.

    Args:
        records: the participating messages, with their clipped groups as elements.
        blocks: the number of blocks of all users; a step samples some.
        messages: the number of messages of all blocks.
    """

    name: str
    records: Records
    unit: User | Element
    blocks: int
    messages: int

    def asked(self, epsilon: float, steps: int, messages: float) -> Asked:
        """The public numbers of a run that reads this average number of messages per step.

        The rate and the divisor are set by hindsight from the table, so that all ways cost the same.
        """
        n = self.records.n_users
        rate = messages / self.messages
        return Asked(
            self.unit, epsilon, n, self.blocks / n, steps, rate, learning_rate=2.0, drift=15.0
        )


def ways(chat: Chat) -> tuple[Way, ...]:
    """The four ways."""
    number = place_within(chat.users)
    first = np.flatnonzero(number < MESSAGES)
    pair = chat.users * (int(chat.elements.max()) + 1) + chat.elements
    each = np.flatnonzero(place_within(pair) < MESSAGES)
    # The position of an element among its user's, in order of time.
    some = first[rank_within(chat.users[first], chat.elements[first]) < ELEMENTS]
    whole = User(max_elements=ELEMENTS)
    return (
        _way("examples", chat, first, number, User(max_elements=MESSAGES)),
        _way("users", chat, first, np.zeros_like(number), User()),
        _way("elements", chat, some, chat.elements, whole),
        _way("elements, promised each", chat, each, chat.elements, Element()),
    )


def _way(name: str, chat: Chat, rows: IntArray, elements: IntArray, unit: User | Element) -> Way:
    records = Records(rows, chat.users[rows], elements[rows], chat.n_users)
    blocks = round(records.blocks_per_user * chat.n_users)
    return Way(name, records, unit, blocks, len(rows))


def place_within(groups: IntArray) -> IntArray:
    """(m,) how many earlier rows have the same group."""
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], groups[order])
    found = np.empty(len(groups), dtype=np.int64)
    found[order] = np.arange(len(groups)) - starts
    return found


def rank_within(users: IntArray, elements: IntArray) -> IntArray:
    """(m,) how many smaller elements the same user has."""
    pairs, inverse = np.unique(np.column_stack([users, elements]), axis=0, return_inverse=True)
    return place_within(pairs[:, 0])[inverse.reshape(-1)]


# Tables and pictures ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Args:
        epsilon: the promised ε at δ = 1e-6.
        loss: of the test after the last step, in nats a character.
        noise_multiplier: noise sd ÷ clipping bound.
        noise: noise sd ÷ the most that all expected blocks add up to, times 1,000.
        seconds: the time of the processor for a run.
    """

    way: str
    promised: str
    epsilon: float
    loss: float
    noise_multiplier: float
    noise: float
    messages: float
    seconds: float


HEADER = (
    "| drawn and clipped       | promised |  ε  |  loss | noise ÷ bound | noise ÷ all, ‰ | s a run |\n"
    "| ----------------------- | -------- | --: | ----: | ------------: | -------------: | ------: |"
)


def line(row: Row) -> str:
    """A row of the table."""
    return (
        f"| {row.way:23} | {row.promised:8} | {said(row.epsilon):>3} | {row.loss:.3f} | "
        f"{row.noise_multiplier:13.3f} | {row.noise:14.1f} | {row.seconds:7.0f} |"
    )


def row(way: Way, asked: Asked, curve: Curve, messages: float) -> Row:
    """A row from a run."""
    noise = 1000 * curve.noise_multiplier / (asked.rate * way.blocks)
    return Row(
        way.name, way.unit.level, asked.epsilon, curve.last, curve.noise_multiplier, noise,
        messages, curve.seconds,
    )  # fmt: skip


_COLOURS = ("tab:red", "tab:blue", "tab:green", "tab:olive")


def trained(chat: Chat, way: Way, asked: Asked, device: str, max_rows: int) -> Curve:
    """Train the model in one way."""
    return private(
        model(0).to(device), chat.loss, chat.figure, way.records, asked,
        seed=0, max_rows=max_rows,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the cells that are missing, print the table, write it and the picture."""
    parser = options(__doc__ or "", steps=250)
    parser.set_defaults(max_rows=128)
    parser.add_argument("--messages-a-step", type=float, default=100, help="expected")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[3.0, math.inf])
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    chat = Chat.read(tables(FILE), given.device, 4000 if given.quick else None)
    steps, messages = (3, 50.0) if given.quick else (given.steps, given.messages_a_step)
    out = given.out / "language" / f"{steps}_steps_{messages:g}_messages"
    print(HEADER)
    table, panels = [], {}
    for epsilon in given.epsilons:
        lines = []
        for way, colour in zip(ways(chat), _COLOURS, strict=True):
            asked = way.asked(epsilon, steps, messages)
            name = f"{way.name.replace(', ', '_').replace(' ', '_')}_eps{epsilon:g}"
            make = partial(trained, chat, way, asked, given.device, given.max_rows)
            curve = kept(out, name, make)
            table.append(row(way, asked, curve, messages))
            print(line(table[-1]), flush=True)
            lines.append(Line(way.name, [curve], colour))
        panels[f"ε = {said(epsilon)}"] = lines
    write(given.out, "language", table)
    draw(given.out / "language.png", panels, y="loss in the test, nats a character", highest=3.5)


if __name__ == "__main__":
    main()
