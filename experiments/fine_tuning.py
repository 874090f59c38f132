"""Private fine-tuning of a small GPT: texts, users or days drawn, and an attack by canaries.

"Fine-tuning large language models with user-level differential privacy" (Charles and others, 2024)
compares two ways to one guarantee for whole users, and "Mind the privacy unit!" (Chua and others,
2024) the units themselves. Here a GPT-2 trained openly on speeches of Congress learns the language
of a public chat, from protected messages:

- *texts drawn* (ELS): each message is sampled and clipped separately; a user has at most G of them,
  all covered by the guarantee;
- *users drawn* (ULS): the mean gradient of a user's G messages is clipped;
- *users drawn, banded*: the same, with noise that cancels over steps;
- *days*: a person's messages of one day are clipped as one and protected, and no more.

Every ε is the accountant's, from the dominating pair of the run. The ε of the first run by the
general group rule is next to it. All ways read the same average number of messages per step.

Canaries are synthetic users who repeat a secret of random tokens in all messages. Coins decide
which of them participate. The attacker sees the open and the published model, and guesses the coins
and the secrets; the guesses bound ε from below.

    python experiments/fine_tuning.py [--steps 40] [--messages-a-step 320] [--seeds 3]
        [--epsilons 1 3 8] [--trained last] [--width 128] [--layers 2] [--words 1024]
        [--open-steps 4000] [--out experiments/out] [--plot docs/pictures/fine-tuning.png]

It needs ``pip install dpgrain[transformers]``. A finished run is stored in a file, and the same
command continues with the next one. Speeches (public domain) and messages (Kummerfeld and others,
2019, CC BY 4.0) are read from the folder in DPGRAIN_DATA.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pyarrow.parquet as pq
import tokenizers
import torch
import transformers
from language import place_within
from networks import DELTA, IntArray, options, said, tables
from numpy.typing import NDArray
from results import write

import dpgrain as dg
from dpgrain.accounting import BandedGaussian, Event, SampledGaussian
from dpgrain.auditing.epsilon_bounds import one_run_epsilon
from dpgrain.means import ClippedMean
from dpgrain.optimize import Weighted
from dpgrain.torch import PrivacyEngine, losses
from dpgrain.torch.observer import AveragedWeights
from dpgrain.units import Element, Level, User

FloatArray = NDArray[np.float64]

SPEECHES, MESSAGES = "congress_speeches.parquet", "irc_ubuntu.parquet"
# Tokens read per message, with its ends; and the model's context length.
LENGTH, CONTEXT = 20, 32
# The token between messages, before the first and after the last; and the label of padding.
END, LEFT_OUT = 0, -100
# Public numbers of the chat: enrolled users, days of a user, and messages of a user (of at most G) and
# of a day (of at most G) on average. Wrong ones would scale gradients, and break no promise.
ENROLLED, DAYS, OF_USER, OF_DAY = 16_000, 1.3, 4.5, 4.4
# Messages read per user (G), or per user's day.
MOST = 8
# One in this many users belongs to the test.
_TESTED = 10
# The noise multiplier for ε = ∞, without a guarantee.
_HARDLY_ANY_NOISE = 2.0**-10
# Digits of the least δ of one message that the general rule for groups is tried with.
_MOST_DIGITS = 290.0
# Largest learning rate of open training.
_OPEN_RATE = 3e-3
# Numbers of blocks with a reported ε, and the most days of a person.
UNITS, MOST_DAYS = (1, 2, 4), 57
# Exponent of the weights of steps in the published average.
_POWER = 8.0


# Texts -----------------------------------------------------------------------------------------


def vocabulary(texts: Sequence[str], words: int) -> Any:
    """The public vocabulary: pairs of bytes that are frequent in public texts."""
    found = tokenizers.Tokenizer(tokenizers.models.BPE())
    found.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = tokenizers.decoders.ByteLevel()
    found.train_from_iterator(
        texts,
        tokenizers.trainers.BpeTrainer(
            vocab_size=words,
            special_tokens=["<end>"],
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return found


def coded(texts: Sequence[str], words: Any) -> IntArray:
    """(m, LENGTH) the tokens of messages between ends, cut; LEFT_OUT after the last."""
    found = np.full((len(texts), LENGTH), LEFT_OUT, dtype=np.int64)
    for row, code in enumerate(words.encode_batch(list(texts))):
        tokens = [END, *code.ids, END][:LENGTH]
        found[row, : len(tokens)] = tokens
    return found


@dataclass(frozen=True)
class Chat:
    """Messages with their users and days, in the order of time.

    Args:
        tokens: (m, LENGTH) the tokens of each, as :func:`coded` makes them.
        users: (m,) 0 to n−1.
        days: (m,) whole numbers.
        tested: (m', LENGTH) messages of other users.
    """

    tokens: Any
    users: IntArray
    days: IntArray
    tested: Any
    enrolled: int = ENROLLED

    @staticmethod
    def read(
        folder: Path, words: Any, most: int | None = None, tested: int = 2000, device: str = "cpu"
    ) -> Chat:
        """Read the messages of people, or the first ones, and ``tested`` ones for the test."""
        columns = ["user_id", "date", "minute", "is_bot", "text"]
        table = pq.read_table(folder / MESSAGES, columns=columns).slice(0, most)
        day = table["date"].to_numpy().astype("datetime64[D]").astype(np.int64)
        order = np.lexsort((table["minute"].to_numpy(), day))
        order = order[~table["is_bot"].to_numpy()[order]]
        names, person = np.unique(table["user_id"].to_numpy()[order], return_inverse=True)
        rng = np.random.default_rng(0)
        test = rng.permutation(len(names))[person] < len(names) // _TESTED
        texts = np.array(table["text"].to_pylist(), dtype=object)[order]
        held, asked = np.flatnonzero(~test), rng.permutation(np.flatnonzero(test))[:tested]
        _, users = np.unique(person[held], return_inverse=True)
        own, others = (
            torch.from_numpy(coded(texts[rows], words)).to(device) for rows in (held, asked)
        )
        return Chat(own, users.astype(np.int64), day[order][held], others)

    def of_some(self, users: int) -> Chat:
        """The chat of only the first users; their number is public."""
        rows = np.flatnonzero(self.users < users)
        own = self.tokens[torch.from_numpy(rows)]
        return replace(
            self, tokens=own, users=self.users[rows], days=self.days[rows], enrolled=users
        )


def speeches(folder: Path, most: int | None = None) -> list[str]:
    """The public texts, or the first ones, in an order without meaning."""
    texts = pq.read_table(folder / SPEECHES, columns=["text"])["text"].to_pylist()
    order = np.random.default_rng(0).permutation(len(texts))[:most]
    return [texts[place] for place in order]


# The model -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """The size of the model, and of its open training.

    Args:
        layers: the number of layers.
        open_texts: largest number of speeches.
    """

    words: int = 1024
    width: int = 128
    layers: int = 2
    open_steps: int = 4000
    open_batch: int = 64
    open_texts: int = 20_000

    @property
    def name(self) -> str:
        """A name for files."""
        return f"{self.words}_{self.width}x{self.layers}_{self.open_steps}"

    def model(self, seed: int = 0) -> Any:
        """A GPT-2 with random weights, without dropout."""
        torch.manual_seed(seed)
        config = transformers.GPT2Config(
            vocab_size=self.words,
            n_embd=self.width,
            n_layer=self.layers,
            n_head=max(2, self.width // 64),
            n_positions=CONTEXT,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=END,
            eos_token_id=END,
            use_cache=False,
        )
        return transformers.GPT2LMHeadModel(config)


def trained_openly(module: Any, size: Size, stream: IntArray) -> Any:
    """The model trained on public tokens, (tokens,), by AdamW with a rate that falls like a cosine."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=_OPEN_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, _OPEN_RATE, total_steps=size.open_steps
    )
    rng, began = np.random.default_rng(0), time.process_time()
    tokens = torch.from_numpy(stream).to(module.device)
    for step in range(size.open_steps):
        starts = torch.from_numpy(rng.integers(0, len(stream) - CONTEXT, size.open_batch))
        rows = tokens[starts[:, None] + torch.arange(CONTEXT)]
        loss = losses.causal_lm(module(input_ids=rows), rows).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % max(1, size.open_steps // 10) == 0:
            spent = time.process_time() - began
            print(f"open step {step:,}: {loss.item():.3f} nats a token, {spent:.0f} s", flush=True)
    return module


def opened(folder: Path, data: Path, size: Size, device: str = "cpu") -> tuple[Any, Any]:
    """The vocabulary and the open model, from their files or made and written."""
    kept = folder / size.name
    if not (kept / "model.pt").is_file():
        kept.mkdir(parents=True, exist_ok=True)
        texts = speeches(data, size.open_texts)
        words = vocabulary(texts, size.words)
        words.save(str(kept / "words.json"))
        stream = np.concatenate([[END, *code.ids] for code in words.encode_batch(texts)])
        print(f"{len(stream):,} public tokens", flush=True)
        trained = trained_openly(size.model().to(device), size, stream.astype(np.int64))
        torch.save(trained.state_dict(), kept / "model.pt")
    module = size.model().to(device)
    module.load_state_dict(torch.load(kept / "model.pt", map_location=device, weights_only=True))
    return tokenizers.Tokenizer.from_file(str(kept / "words.json")), module


def record_losses(module: Any, tokens: Any, *, first: int = 1, rows: int = 250) -> FloatArray:
    """(m,) the losses of messages, in nats summed over their tokens from index ``first`` on."""
    labels, found = tokens.clone(), []
    labels[:, :first] = LEFT_OUT
    with torch.no_grad():
        for some, wanted in zip(tokens.split(rows), labels.split(rows), strict=True):
            outputs = module(input_ids=some.clamp(min=0))
            found.append(losses.causal_lm(outputs, wanted, reduction="sum").double().cpu().numpy())
    return np.concatenate(found)


def perplexity(module: Any, tokens: Any) -> float:
    """The perplexity of messages: e to the mean loss over all their tokens, in nats."""
    return math.exp(record_losses(module, tokens).sum() / int((tokens[:, 1:] >= 0).sum()))


# Ways ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """A way of drawing and clipping, with its public numbers.

    Args:
        blocks: the number of blocks of a user, on average.
        size: the number of messages of a block, on average.
    """

    name: str
    unit: User | Element
    blocks: float
    size: float
    noise: Literal["independent", "banded"] = "independent"
    learning_rate: float = 3e-3

    @property
    def file(self) -> str:
        """A name for files."""
        return f"{self.name.replace(', ', '_').replace(' ', '_')}_{self.learning_rate:g}"

    def rate(self, messages: float, enrolled: int) -> float:
        """The probability q of reading this average number of messages per step."""
        return messages / (enrolled * self.blocks * self.size)

    def records(self, chat: Chat) -> tuple[IntArray, IntArray | None]:
        """(m,) the places of the messages that take part, and (m,) the block of each of a user."""
        number = place_within(chat.users)
        if self.unit == Element():
            day = chat.users * (int(chat.days.max()) + 1) + chat.days
            rows = np.flatnonzero(place_within(day) < MOST)
            return rows, chat.days[rows]
        rows = np.flatnonzero(number < MOST)
        return rows, None if self.unit == User() else number[rows]


TEXTS = Way("texts drawn", User(max_elements=MOST), OF_USER, 1.0)
USERS = Way("users drawn", User(), 1.0, OF_USER)
# Adam divides by the noise of a step, which is twice as large in bands.
BANDED = Way("users drawn, banded", User(), 1.0, OF_USER, "banded", 6e-3)
BY_DAY = Way("days", Element(), DAYS, OF_DAY)
WAYS = (TEXTS, USERS, BANDED, BY_DAY)


@dataclass(frozen=True)
class Numbers:
    """The public numbers that all ways share.

    Args:
        steps: the number of steps T.
        messages: how many are read in a step, on average.
        clip: the clipping bound of a block.
        trained: the trained weights: the last layer with its norm, or all.
        max_rows: largest number of messages per batch.
    """

    steps: int = 40
    messages: float = 320
    clip: float = 0.5
    trained: Literal["last", "all"] = "last"
    max_rows: int = 256

    @property
    def file(self) -> str:
        """A name for files."""
        return f"{self.steps}_{self.messages:g}_{self.clip:g}_{self.trained}"

    def of(self, module: Any) -> list[Any]:
        """The trained weights of a model; others are frozen."""
        if self.trained == "last":
            module.requires_grad_(False)
            for part in (module.transformer.h[-1], module.transformer.ln_f):
                part.requires_grad_(True)
        return [weights for weights in module.parameters() if weights.requires_grad]


def tuned(
    module: Any, chat: Chat, way: Way, numbers: Numbers, epsilon: float, seed: int
) -> PrivacyEngine:
    """Fine-tune a model privately; it ends with the average of its weights after all steps."""
    rows, blocks = way.records(chat)
    optimizer = torch.optim.Adam(numbers.of(module), lr=way.learning_rate)
    noise = {
        "noise_multiplier": _HARDLY_ANY_NOISE,
        "bands": None if way.noise == "independent" else 1,
    }
    engine = PrivacyEngine(unit=way.unit, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.DeltaWarning)
        module, optimizer, loader = engine.make_private(
            module=module,
            optimizer=optimizer,
            dataset=torch.utils.data.TensorDataset(chat.tokens[torch.from_numpy(rows)]),
            users=chat.users[rows],
            elements=blocks,
            n_users=chat.enrolled,
            steps=numbers.steps,
            sampling_rate=way.rate(numbers.messages, chat.enrolled),
            max_grad_norm=numbers.clip,
            elements_per_user=way.blocks,
            noise=way.noise,
            max_rows=numbers.max_rows,
            **(
                noise if math.isinf(epsilon) else {"target_epsilon": epsilon, "target_delta": DELTA}
            ),
        )
    average = AveragedWeights(module, Weighted(_POWER))
    for (tokens,) in loader:
        losses.causal_lm(module(input_ids=tokens.clamp(min=0)), tokens).mean().backward()
        if optimizer.step():
            average.update()
    average.keep()
    return engine


# Bills -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ByGroups:
    """The general group rule for a user of k separately sampled messages.

    One message has (ε₁, δ₁), for every δ₁; k of them then have kε₁ and δ₁(e^(kε₁) − 1)/(e^ε₁ − 1).

    Args:
        epsilon: the least ε that it proves of the run.
        beyond: True where that takes a δ₁ below 10⁻²⁹⁰, and so a larger ε.
        noise_multiplier: the least noise that proves the run's guarantee by this rule.
    """

    epsilon: float
    beyond: bool
    noise_multiplier: float

    @staticmethod
    def of(noise: float, rate: float, steps: int, *, promised: float, members: int) -> ByGroups:
        """Its result for a run.

        Args:
            rate: the probability of a message to be in a step.
            steps: the number of steps.
            promised: the ε of a user by the pair that dominates the run.
            members: the number k of messages of a user.
        """
        event = SampledGaussian(noise, rate, steps)

        def proved(digits: float) -> tuple[float, bool]:
            one = event.epsilon(10.0**-digits, unit=Element())
            return members * one, _one_of(members * one, members) <= -digits * math.log(10)

        low, high = -math.log10(DELTA), _MOST_DIGITS
        beyond = proved(high)[1]
        # The least δ₁ has the largest ε₁: digits of δ₁ that are too few, and that are enough.
        while not beyond and high - low > 0.01:
            middle = (low + high) / 2
            low, high = (middle, high) if proved(middle)[1] else (low, middle)
        needed = ClippedMean.calibrate(
            epsilon=promised / members,
            delta=math.exp(_one_of(promised, members)),
            n_users=1,
            unit=Element(),
            rounds=steps,
            sampling_rate=rate,
        ).noise_multiplier
        return ByGroups(proved(high)[0], beyond, needed)


def _one_of(epsilon: float, members: int) -> float:
    """Log of the δ₁ for one of k such that all have (ε, DELTA)."""
    one = epsilon / members
    return math.log(DELTA) + math.log(math.expm1(one)) - epsilon - math.log(-math.expm1(-epsilon))


# Canaries --------------------------------------------------------------------------------------

# Tokens that a canary begins with, which the attacker knows, and of its secret.
_KNOWN, _SECRET = 8, 8
# Error probability of the ε from guesses.
_WRONG = 0.05


@dataclass(frozen=True)
class Canaries:
    """Synthetic users who repeat a secret; coins decide who participates.

    Args:
        tokens: (c, LENGTH) the message of each: known tokens, and then the secret.
        taken: (c,) the coins.
    """

    tokens: Any
    taken: NDArray[np.bool_]

    @staticmethod
    def drawn(count: int, words: int, seed: int, device: Any = "cpu") -> Canaries:
        """Draw tokens of a vocabulary, and fair coins."""
        rng = np.random.default_rng([seed, 1])
        tokens = np.full((count, LENGTH), LEFT_OUT, dtype=np.int64)
        tokens[:, 0] = END
        tokens[:, 1 : 1 + _KNOWN + _SECRET] = rng.integers(1, words, (count, _KNOWN + _SECRET))
        return Canaries(torch.from_numpy(tokens).to(device), rng.random(count) < 0.5)

    def among(self, chat: Chat) -> Chat:
        """The chat with the canaries that take part; all of them are enrolled."""
        who = np.repeat(np.flatnonzero(self.taken), MOST)
        return replace(
            chat,
            tokens=torch.cat([chat.tokens, self.tokens[torch.from_numpy(who)]]),
            users=np.concatenate([chat.users, chat.enrolled + who]),
            days=np.concatenate([chat.days, np.full(len(who), chat.days[0])]),
            enrolled=chat.enrolled + len(self.taken),
        )

    def right(self, before: Any, after: Any, guesses: int) -> int:
        """Number of right guesses if the largest gains are guessed in, and others out."""
        gain = record_losses(before, self.tokens) - record_losses(after, self.tokens)
        order = np.argsort(gain, kind="stable")
        out, taken = order[: guesses // 2], order[len(order) - guesses // 2 :]
        return int((~self.taken[out]).sum() + self.taken[taken].sum())

    def exposure(self, module: Any, places: IntArray, others: int, words: int) -> FloatArray:
        """(places,) bits of exposure: log2 of how many secrets there are, less log2 of the rank.

        Args:
            others: how many random secrets the own one is ranked among.
        """
        rng = np.random.default_rng(7)
        secrets = torch.from_numpy(rng.integers(1, words, (others, _SECRET))).to(module.device)
        begin, end = 1 + _KNOWN, 1 + _KNOWN + _SECRET
        found = []
        for place in places:
            own = self.tokens[int(place), :end].expand(others + 1, end).clone()
            own[1:, begin:] = secrets
            each = record_losses(module, own, first=begin)
            found.append(math.log2(others + 1) - math.log2(1 + int((each[1:] < each[0]).sum())))
        return np.array(found)


# Runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """Shared settings of all runs."""

    fresh: Callable[[], Any]
    chat: Chat
    numbers: Numbers


@dataclass(frozen=True)
class Attacked:
    """The size of the attack.

    Args:
        users: number of real users in addition to canaries.
        canaries: number of canaries; half of them participate.
        looked_at: how many of those inside, and of those outside, are ranked.
        others: how many random secrets a canary's own is ranked among.
    """

    users: int = 100
    canaries: int = 128
    looked_at: int = 32
    others: int = 255


@dataclass(frozen=True)
class Run:
    """The stored result of a run.

    Args:
        noise_multiplier: noise sd ÷ clipping bound.
        bands: the number of bands of the noise.
        sampling_rate: the probability q of a block to be in a step.
    """

    perplexity: float
    noise_multiplier: float
    bands: int
    sampling_rate: float
    seconds: float


@dataclass(frozen=True)
class Attack:
    """The result of an attack.

    Args:
        inside: bits of exposure of canaries that took part.
    """

    way: str
    epsilon: float
    right: int
    guesses: int
    canaries: int
    proved: float
    inside: tuple[float, ...]
    outside: tuple[float, ...]
    perplexity: float
    seconds: float


def kept(file: Path, make: Callable[[], Any]) -> dict[str, Any]:
    """The fields of a result from its file, or of a new one, written when complete."""
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(asdict(make())))
        part.replace(file)
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def run(setting: Setting, way: Way, epsilon: float, seed: int) -> Run:
    """Fine-tune the open model in one way, and test it."""
    module, began = setting.fresh(), time.process_time()
    engine = tuned(module, setting.chat, way, setting.numbers, epsilon, seed)
    spent, mean = time.process_time() - began, cast(ClippedMean, engine.mean)
    reached, noise = perplexity(module, setting.chat.tested), mean.noise_multiplier
    return Run(
        reached, 0.0 if math.isinf(epsilon) else noise, mean.bands, mean.sampling_rate, spent
    )


def attack(setting: Setting, way: Way, epsilon: float, seed: int, sizes: Attacked) -> Attack:
    """Insert canaries, fine-tune, and guess participation and secrets."""
    before, after, began = setting.fresh(), setting.fresh(), time.process_time()
    words, chat = before.config.vocab_size, setting.chat.of_some(sizes.users)
    canaries = Canaries.drawn(sizes.canaries, words, seed, chat.tokens.device)
    tuned(after, canaries.among(chat), way, setting.numbers, epsilon, seed)
    guesses = sizes.canaries // 2
    right = canaries.right(before, after, guesses)
    inside, outside = (
        canaries.exposure(after, np.flatnonzero(some)[: sizes.looked_at], sizes.others, words)
        for some in (canaries.taken, ~canaries.taken)
    )
    return Attack(
        way.name,
        epsilon,
        right,
        guesses,
        sizes.canaries,
        one_run_epsilon(right, guesses, sizes.canaries, DELTA, _WRONG),
        tuple(inside.tolist()),
        tuple(outside.tolist()),
        perplexity(after, chat.tested),
        time.process_time() - began,
    )


# Tables and a picture --------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A row of the table: one way at one ε.

    Args:
        epsilon: the promised ε at δ = 1e-6.
        perplexity: of the test after the last step, the mean of the runs.
        noise_multiplier: noise sd ÷ clipping bound, before it is correlated.
        bands: the number of bands.
        noise: noise sd ÷ the most that all expected blocks add up to, times 1,000.
        by_groups: the ε of a user by the general rule for groups; none where a user is one block.
        beyond: True if the rule proves only a larger ε.
        noise_by_groups: the noise multiplier that the rule needs for this ε.
        seconds: the time of the processor for a run.
        curve: the ε of UNITS messages, users or days, by sampled unit, and of a whole person.
    """

    way: str
    promised: str
    epsilon: float
    seeds: int
    perplexity: float
    least: float
    most: float
    noise_multiplier: float
    bands: int
    noise: float
    by_groups: float
    beyond: bool
    noise_by_groups: float
    seconds: float
    curve: tuple[float, ...]


def curve(way: Way, run: Run, steps: int) -> tuple[float, ...]:
    """The ε of UNITS blocks of a run (one person's, or several users'), and of a person."""
    noise, rate = run.noise_multiplier, run.sampling_rate
    kept = way.unit.max_elements if isinstance(way.unit, User) else None
    level: Level = "user" if way.unit == User() else "element"
    event: Event = SampledGaussian(noise, rate, steps, level=level, max_elements=kept)
    if run.bands > 1:
        event = BandedGaussian(noise, rate, steps, run.bands, level=level, max_elements=kept)
    whole = User() if level == "user" else User(max_elements=kept or MOST_DAYS)
    several = (event.epsilon(DELTA, units=units) for units in UNITS)
    return (*several, event.epsilon(DELTA, unit=whole))


def row(way: Way, epsilon: float, runs: Sequence[Run], numbers: Numbers) -> Row:
    """A row of all seeds of one way."""
    first, found = runs[0], np.array([each.perplexity for each in runs])
    billed = ByGroups(math.nan, False, math.nan)
    if way is TEXTS and math.isfinite(epsilon):
        noise, rate = first.noise_multiplier, first.sampling_rate
        billed = ByGroups.of(noise, rate, numbers.steps, promised=epsilon, members=MOST)
    return Row(
        way.name,
        "day" if way.unit == Element() else "user",
        epsilon,
        len(runs),
        float(found.mean()),
        float(found.min()),
        float(found.max()),
        first.noise_multiplier,
        first.bands,
        1000 * first.noise_multiplier * way.size / numbers.messages,
        billed.epsilon,
        billed.beyond,
        billed.noise_multiplier,
        float(np.mean([each.seconds for each in runs])),
        curve(way, first, numbers.steps) if math.isfinite(epsilon) else (),
    )


HEADER = (
    "| drawn and clipped | promised | ε | perplexity | noise ÷ bound | bands | noise ÷ all, ‰ | "
    "ε by groups | noise by groups | s |\n"
    "| --- | --- | --: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)


def line(row: Row) -> str:
    """A row of the table."""
    range_ = f" ({row.least:.1f} – {row.most:.1f})" if row.seeds > 1 else ""
    groups = f"{'> ' * row.beyond}{row.by_groups:.1f} | {row.noise_by_groups:.3f}"
    groups = " | " if math.isnan(row.by_groups) else groups
    return (
        f"| {row.way} | {row.promised} | {said(row.epsilon)} | {row.perplexity:.1f}{range_} | "
        f"{row.noise_multiplier:.3f} | {row.bands} | {row.noise:.2f} | {groups} | {row.seconds:.0f} |"
    )


CURVE_HEADER = (
    f"| drawn and clipped | ε | {' | '.join(f'{k} of these' for k in UNITS)} | a person |\n"
    f"| --- | --: | {' | '.join('---:' for _ in UNITS)} | ---: |"
)


def curve_line(row: Row) -> str:
    """A row of the table of guarantees for several blocks, and for a person."""
    return f"| {row.way} | {said(row.epsilon)} | {' | '.join(f'{e:.2f}' for e in row.curve)} |"


ATTACK_HEADER = (
    "| drawn and clipped | ε | coins guessed | proved ε | exposure inside | outside | "
    "first of all inside | s |\n| --- | --: | ---: | ---: | ---: | ---: | ---: | ---: |"
)


def attack_line(found: Attack, others: int) -> str:
    """A row of the table of attacks."""
    inside, outside = np.array(found.inside), np.array(found.outside)
    first = float((inside >= math.log2(others + 1)).mean())
    return (
        f"| {found.way} | {said(found.epsilon)} | {found.right} of {found.guesses} | "
        f"{found.proved:.2f} | {np.median(inside):.1f} | {np.median(outside):.1f} | {first:.0%} | "
        f"{found.seconds:.0f} |"
    )


_COLOURS = ("tab:red", "tab:blue", "tab:cyan", "tab:green")


def draw(file: Path, rows: Sequence[Row], attacks: Sequence[Attack], open_model: float) -> None:
    """Write the picture: perplexity against ε, and the canaries' disclosure."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.6, 4.4), width_ratios=(1.25, 1))
    finite = [each for each in rows if math.isfinite(each.epsilon)]
    for way, colour in zip(WAYS, _COLOURS, strict=True):
        some = [each for each in finite if each.way == way.name]
        if not some:
            continue
        at, means = [each.epsilon for each in some], [each.perplexity for each in some]
        ends = [each.least for each in some], [each.most for each in some]
        label = f"{way.name}, ε of a {some[0].promised}"
        left.plot(at, means, "o-", color=colour, lw=1.6, ms=4, label=label)
        left.fill_between(at, *ends, color=colour, alpha=0.2, lw=0)
        if way is TEXTS:
            billed = [each.by_groups for each in some]
            label = "the same runs, as groups are billed"
            left.plot(billed, means, "o:", color=colour, lw=1.6, ms=4, mfc="white", label=label)
            beyond = [(each.by_groups, each.perplexity) for each in some if each.beyond]
            left.plot(*np.array(beyond).reshape(-1, 2).T, ">", color=colour, ms=8)
    best = [each.perplexity for each in rows if math.isinf(each.epsilon)]
    if best:
        left.axhline(min(best), color="0.3", lw=1.0, ls=":", label="the best without noise")
    left.set_xscale("log")
    ticks = sorted({each.epsilon for each in finite} | {30.0, 100.0, 1000.0})
    left.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    left.minorticks_off()
    left.set_xlabel("ε at δ = 10⁻⁶")
    left.set_ylabel("perplexity of other people's messages")
    left.set_title(f"What a promise costs (open model: {open_model:.0f})", fontsize=10)
    shown = [each for each in attacks if each.way == USERS.name]
    shades = ("tab:orange", "tab:purple", "tab:blue", "tab:brown")
    bits = np.sort(np.concatenate([each.outside for each in shown])) if shown else np.array([])
    for each, colour in zip(shown, shades, strict=False):
        own = np.sort(each.inside)
        label = f"ε = {said(each.epsilon)}; guesses of coins prove {each.proved:.1f}"
        right.step(own, 1 - np.arange(len(own)) / len(own), color=colour, lw=1.6, label=label)
    if len(bits):
        right.step(bits, 1 - np.arange(len(bits)) / len(bits), color="0.4", ls="--", lw=1.2,
                   label="canaries that stayed out")  # fmt: skip
    right.set_xlabel("exposure, bits")
    right.set_ylabel("share of canaries with as much or more")
    right.set_title("What canaries that took part gave away, users drawn", fontsize=10)
    for ax in (left, right):
        ax.grid(visible=True, color="0.92", linewidth=0.8)
        ax.set_axisbelow(True)
        ax.legend(frameon=False, fontsize=8)
    figure.set_layout_engine("constrained")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
    plt.close(figure)


# Command ---------------------------------------------------------------------------------------


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of the command."""
    size, numbers, attacked = Size(), Numbers(), Attacked()
    parser = options(__doc__ or "", steps=numbers.steps, seeds=3)
    parser.set_defaults(max_rows=numbers.max_rows)
    add = parser.add_argument
    add("--messages-a-step", type=float, default=numbers.messages, help="expected")
    add("--clip", type=float, default=numbers.clip, help="the clipping bound of a block")
    add("--trained", choices=["last", "all"], default=numbers.trained, help="layers")
    add("--epsilons", type=float, nargs="+", default=[1.0, 3.0, 8.0])
    add("--attacks", type=float, nargs="*", default=[1.0, 8.0, math.inf], help="ε of attacks")
    add("--words", type=int, default=size.words, help="of the vocabulary")
    add("--width", type=int, default=size.width, help="of the model")
    add("--layers", type=int, default=size.layers, help="of the model")
    add("--open-steps", type=int, default=size.open_steps, help="of open training")
    add("--open-texts", type=int, default=size.open_texts, help="speeches of open training")
    add("--attacked-users", type=int, default=attacked.users, help="real ones in an attack")
    add("--canaries", type=int, default=attacked.canaries, help="of an attack")
    add("--plot", type=Path, default=None, help="where the picture goes, too")
    return parser.parse_args(arguments)


def compared(setting: Setting, epsilons: Sequence[float], seeds: int, folder: Path) -> list[Row]:
    """Make the runs of all ways that are missing, and print their table."""
    cells = [(e, way) for e in [*epsilons, math.inf] for way in WAYS]
    # Without noise, bands are nothing, and little is left to chance.
    cells = [(e, way) for e, way in cells if math.isfinite(e) or way is not BANDED]
    runs: dict[tuple[float, Way], list[Run]] = {cell: [] for cell in cells}
    for seed in range(seeds):
        for epsilon, way in cells:
            if seed and math.isinf(epsilon):
                continue
            file = folder / f"{way.file}_{epsilon:g}_{seed}.json"
            runs[epsilon, way].append(Run(**kept(file, partial(run, setting, way, epsilon, seed))))
            reached = runs[epsilon, way][-1].perplexity
            print(f"{way.name}, ε = {said(epsilon)}, seed {seed}: {reached:.1f}", flush=True)
    rows = [row(way, e, runs[e, way], setting.numbers) for e, way in cells]
    print("\n".join(["", HEADER, *map(line, rows)]))
    curves = [curve_line(each) for each in rows if each.curve]
    print("\n".join(["", CURVE_HEADER, *curves]), flush=True)
    return rows


def attacks_at(
    setting: Setting, epsilons: Sequence[float], sizes: Attacked, folder: Path
) -> list[Attack]:
    """Make the attacks that are missing, and print their table."""
    found = []
    print(f"\n{ATTACK_HEADER}", flush=True)
    for epsilon in epsilons:
        for way in (USERS, TEXTS):
            name = f"attack_{sizes.users}_{sizes.canaries}_{way.file}_{epsilon:g}.json"
            make = partial(attack, setting, way, epsilon, 0, sizes)
            found.append(Attack(**kept(folder / name, make)))
            print(attack_line(found[-1], sizes.others), flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the runs that are missing, print the tables, write them and the picture."""
    given = parsed(arguments)
    torch.set_num_threads(1)
    data = tables(SPEECHES, MESSAGES)
    size = Size(
        given.words, given.width, given.layers, given.open_steps, open_texts=given.open_texts
    )
    numbers = Numbers(given.steps, given.messages_a_step, given.clip, given.trained, given.max_rows)
    sizes, seeds = Attacked(given.attacked_users, given.canaries), given.seeds
    if given.quick:
        size = Size(300, 16, 1, 20, 8, 200)
        numbers, seeds = replace(numbers, steps=2, messages=64), 1
        sizes = Attacked(40, 16, 2, 7)
    out = given.out / "fine_tuning"
    words, module = opened(out, data, size, given.device)
    most, tested = (4000, 100) if given.quick else (None, 2000)
    chat = Chat.read(data, words, most, tested, given.device)
    start, weights = perplexity(module, chat.tested), module.num_parameters()
    trained = sum(part.numel() for part in numbers.of(deepcopy(module)))
    print(
        f"{trained:,} of {weights:,} weights are trained; perplexity before: {start:.1f}",
        flush=True,
    )
    setting = Setting(partial(deepcopy, module), chat, numbers)
    folder = out / size.name / numbers.file
    rows = compared(setting, given.epsilons, seeds, folder)
    attacks = attacks_at(setting, given.attacks, sizes, folder)
    write(out, "fine_tuning", rows)
    for file in (out / "fine_tuning.png", given.plot):
        if file is not None:
            draw(file, rows, attacks, start)


if __name__ == "__main__":
    main()
