"""Cost of private fine-tuning of language models, divided by that of plain fine-tuning.

Run ``python -m benchmarks.language [--device cuda] [--quick] [--only WORDS] [--profile] [--networks]``
from a checkout, with ``PYTHONPATH=src`` or the package installed. It needs PyTorch, transformers and,
for LoRA, peft; models have random weights, built from configurations, so nothing is downloaded.

Each figure is the median over windows of the time of a step, divided by that of the plain step on the
same records, with the same precision and checkpointing, in the same window. Both begin with records in
memory and end with gradients of all trained parameters: plain steps with gradients of the mean loss,
ours with the sum over blocks of their clipped mean gradients. The optimizer costs both the same.

- *time*: ours ÷ plain, without noise; wall-clock time until all is done on a GPU, elsewhere processor
  time.
- *noise*: drawing noise for all trained parameters, adding it and dividing, as a run of the library
  does, in plain steps. A private step costs *time* + *noise*.
- *goal*: the goal for time on an H200.
- *memory*: ours ÷ plain, of the peak of a step with its noise, weights included: memory allocated by
  PyTorch on a GPU; elsewhere bytes of tensors, counted by its profiler.
- *ms*, *MB*: time and memory of the plain step.
- *Opacus*, *Gram*: the time of other methods (``benchmarks/language_peers.py``) ÷ plain, if blocks are
  single records, the only blocks that they clip; "–" if a method rejects the model, and why below.

The next line states the largest difference from the sum of separate gradients of blocks, in bounds.
With ``--networks`` the table of ``benchmarks/torch_step.py`` follows, with PyTorch's vmap: then one
command prints everything that docs/speed.md states about networks on a GPU.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from benchmarks.counted_memory import peak_bytes
from benchmarks.language_peers import PEERS, RefusedError
from benchmarks.published import publisher

from benchmarks import torch_step
from dpgrain.torch import losses
from dpgrain.torch.clipping import clipped_sums
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.recorder import Recorder

BOUND = 0.1
_GPT = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@dataclass(frozen=True)
class Setting:
    """A configuration with timings of both methods.

    Args:
        model: the kind of model: ``"gpt2"``, ``"llama"`` or ``"bert"``.
        layers: the number of layers.
        blocks: the number of blocks of a batch.
        size: the number of records of a block.
        length: the number of tokens of a record.
        half: whether it computes under autocast to bfloat16.
        checkpointing: whether activations are recomputed in the backward pass.
    """

    model: str
    width: int
    layers: int
    words: int
    blocks: int
    size: int
    length: int
    lora: bool = False
    half: bool = False
    checkpointing: bool = False

    def __str__(self) -> str:
        more = ["LoRA" if self.lora else "full", "bf16" if self.half else "fp32"]
        more += ["checkpointing"] if self.checkpointing else []
        return (
            f"{self.model} {self.width}×{self.layers}, {self.blocks}×{self.size} records of "
            f"{self.length}, {', '.join(more)}"
        )

    @property
    def goal(self) -> float:
        """The goal for time ÷ plain on an H200."""
        return 1.15 if self.lora else 2.0 if self.model == "bert" else 1.8

    def made(self) -> Any:
        """Return the model, with random weights and without dropout."""
        torch.manual_seed(1)
        heads = max(2, self.width // 64)
        if self.model == "gpt2":
            model = transformers.GPT2LMHeadModel(
                transformers.GPT2Config(
                    **_GPT,
                    vocab_size=self.words,
                    n_embd=self.width,
                    n_layer=self.layers,
                    n_head=heads,
                    n_positions=self.length,
                    resid_pdrop=0.0,
                    embd_pdrop=0.0,
                    attn_pdrop=0.0,
                )
            )
            adapted = ["c_attn"]
        elif self.model == "llama":
            model = transformers.LlamaForCausalLM(
                transformers.LlamaConfig(
                    **_GPT,
                    vocab_size=self.words,
                    hidden_size=self.width,
                    intermediate_size=8 * self.width // 3 // 32 * 32,
                    num_hidden_layers=self.layers,
                    num_attention_heads=heads,
                    max_position_embeddings=self.length,
                )
            )
            adapted = ["q_proj", "v_proj"]
        else:
            model = transformers.BertForSequenceClassification(
                transformers.BertConfig(
                    vocab_size=self.words,
                    hidden_size=self.width,
                    intermediate_size=4 * self.width,
                    num_hidden_layers=self.layers,
                    num_attention_heads=heads,
                    max_position_embeddings=self.length,
                    hidden_dropout_prob=0.0,
                    attention_probs_dropout_prob=0.0,
                )
            )
            adapted = ["query", "value"]
        model.config.use_cache = False
        if self.lora:
            import peft

            model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=adapted))
        if self.checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
            if self.lora:
                model.enable_input_require_grads()
        return model.train()

    def drawn(self, device: str) -> tuple[dict[str, Any], Any]:
        """Return made-up records and their labels."""
        generator = torch.Generator().manual_seed(2)
        shape = (self.blocks * self.size, self.length)
        tokens = torch.randint(3, self.words, shape, generator=generator).to(device)
        inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        return inputs, (tokens[:, 0] % 2 if self.model == "bert" else tokens)

    def losses(self, outputs: Any, labels: Any) -> Any:
        """Return the loss of each record."""
        loss = losses.classification if self.model == "bert" else losses.causal_lm
        return loss(outputs, labels)


#: On two cores, blocks of 4 records; and with a GPU.
QUICK = [Setting("gpt2", 64, 2, 512, 2, 4, 32, lora=lora) for lora in (False, True)]
QUICK += [Setting("gpt2", 64, 2, 512, 8, 1, 32, lora=lora) for lora in (False, True)]
ON_PROCESSORS = [
    Setting("gpt2", 256, 4, 4096, 4, 4, 128, lora=True),
    Setting("gpt2", 256, 4, 4096, 4, 4, 128),
    Setting("llama", 256, 4, 4096, 4, 4, 128, lora=True),
    Setting("llama", 256, 4, 4096, 4, 4, 128),
    Setting("bert", 256, 4, 4096, 4, 4, 128, lora=True),
    Setting("bert", 256, 4, 4096, 4, 4, 128),
    Setting("gpt2", 256, 4, 4096, 4, 4, 128, checkpointing=True),
    *(
        Setting(model, 256, 4, 4096, 16, 1, 128, lora=lora)
        for model in ("gpt2", "llama", "bert")
        for lora in (True, False)
    ),
]
ON_GPUS = [
    Setting("gpt2", 768, 12, 50257, 8, 4, 512, lora=True, half=True),
    Setting("gpt2", 768, 12, 50257, 8, 4, 512, half=True),
    Setting("gpt2", 768, 12, 50257, 8, 4, 512),
    Setting("gpt2", 768, 12, 50257, 8, 4, 512, half=True, checkpointing=True),
    Setting("bert", 768, 12, 30522, 16, 4, 256, half=True),
    Setting("llama", 2048, 16, 32000, 4, 4, 1024, lora=True, half=True),
    Setting("llama", 2048, 16, 32000, 4, 4, 1024, lora=True, half=True, checkpointing=True),
    Setting("llama", 2048, 16, 32000, 4, 4, 1024, half=True, checkpointing=True),
]


def plain(setting: Setting, model: Any, device: str) -> Callable[[], Any]:
    """The gradient of the mean loss."""
    inputs, labels = setting.drawn(device)

    def step() -> list[Any]:
        model.zero_grad(set_to_none=True)
        with _precision(setting, device):
            loss = setting.losses(model(**inputs), labels).mean()
        loss.backward()
        return [p.grad for p in model.parameters() if p.requires_grad]

    return step


def ours(setting: Setting, model: Any, device: str) -> tuple[Callable[[], Any], Recorder]:
    """The sum over blocks of their clipped mean gradients."""
    inputs, labels = setting.drawn(device)
    layout = BlockLayout((setting.size,) * setting.blocks)
    recorder = Recorder(model, (), lambda: layout)
    # A network is tried once, before its first step.
    few = {name: tensor[:2, : min(16, setting.length)] for name, tensor in inputs.items()}
    with _precision(setting, device):
        recorder.check_example(((), few), 2)

    def step() -> dict[Any, Any]:
        with _precision(setting, device):
            loss = setting.losses(model(**inputs), labels).sum()
        loss.backward()
        uses = recorder.uses
        recorder.clear()
        return clipped_sums(uses, layout, BOUND)

    return step, recorder


def _precision(setting: Setting, device: str) -> Any:
    kind = torch.device(device).type
    return torch.autocast(kind, torch.bfloat16) if setting.half else nullcontext()


def _clock(device: str) -> Callable[[], float]:
    """Return the clock of a device, which waits until all is done."""
    if torch.device(device).type != "cuda":
        return time.process_time

    def now() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return now


def timed(setting: Setting, device: str, windows: int) -> dict[str, float]:
    """Return the median of the times of both ways, and of the noise, window by window."""
    model, now = setting.made().to(device), _clock(device)
    trained = [p for p in model.parameters() if p.requires_grad]
    of_plain, of_ours, of_noise = [], [], []
    for _ in range(windows + 1):
        step = plain(setting, model, device)
        began = now()
        step()
        of_plain.append(now() - began)
        del step
        model.zero_grad(set_to_none=True)
        step, recorder = ours(setting, model, device)
        # A network is tried in its first step.
        step()
        began = now()
        step()
        of_ours.append(now() - began)
        recorder.remove()
        del step, recorder
        publish = publisher(trained, BOUND)
        began = now()
        publish({})
        of_noise.append(now() - began)
        model.zero_grad(set_to_none=True)
    ratios = [one / other for one, other in zip(of_ours[1:], of_plain[1:], strict=True)]
    noise = [one / other for one, other in zip(of_noise[1:], of_plain[1:], strict=True)]
    return {
        "ms": 1000 * statistics.median(of_plain[1:]),
        "time": statistics.median(ratios),
        "noise": statistics.median(noise),
    }


def beside(setting: Setting, device: str, windows: int) -> dict[str, float | str]:
    """Return the time of other methods' steps ÷ plain ones', or why there is none."""
    found: dict[str, float | str] = {}
    now = _clock(device)
    inputs, labels = setting.drawn(device)
    for name, peer in PEERS.items():
        own, other = setting.made().to(device), setting.made().to(device)

        def losses_of(model: Any) -> Any:
            with _precision(setting, device):
                return setting.losses(model(**inputs), labels)

        try:
            step = peer(other, losses_of, BOUND)
        except RefusedError as refused:
            found[name] = " ".join(str(refused).split())
            continue
        ratios, plain_step = [], plain(setting, own, device)
        for _ in range(windows + 1):
            times = []
            for each in (plain_step, step):
                began = now()
                each()
                times.append(now() - began)
            ratios.append(times[1] / times[0])
        found[name] = statistics.median(ratios[1:])
    return found


def held(setting: Setting, device: str, way: str) -> float:
    """Return the peak memory of a step with its noise and weights, in megabytes."""
    on_gpu = torch.device(device).type == "cuda"
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
    model = setting.made().to(device)
    trained = [p for p in model.parameters() if p.requires_grad]
    step = plain(setting, model, device) if way == "plain" else ours(setting, model, device)[0]
    publish = publisher(trained, BOUND)

    def published() -> Any:
        result = step()
        if way == "ours":
            publish(result)
        return result

    published()
    model.zero_grad(set_to_none=True)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
        published()
        return float(torch.cuda.max_memory_allocated() - before) / 1e6
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    return (peak_bytes(published) + weights) / 1e6


def difference(setting: Setting, device: str) -> float:
    """Return the distance of sums from separate gradients of each block, in bounds."""
    model = setting.made().to(device)
    step, recorder = ours(setting, model, device)
    sums = step()
    recorder.remove()
    inputs, labels = setting.drawn(device)
    trained = [p for p in model.parameters() if p.requires_grad]
    alone: dict[Any, Any] = {p: torch.zeros_like(p, dtype=torch.float64) for p in trained}
    for block in range(setting.blocks):
        rows = slice(block * setting.size, (block + 1) * setting.size)
        own = {name: tensor[rows] for name, tensor in inputs.items()}
        with _precision(setting, device):
            loss = setting.losses(model(**own), labels[rows]).mean()
        parts = torch.autograd.grad(loss, trained, allow_unused=True)
        norm = sum(float(part.double().square().sum()) for part in parts if part is not None) ** 0.5
        for parameter, part in zip(trained, parts, strict=True):
            if part is not None:
                alone[parameter] += part.double() * min(1.0, BOUND / norm)
    squares = sum(
        float((sums.get(p, torch.zeros_like(p)).double() - part).square().sum())
        for p, part in alone.items()
    )
    return float(squares**0.5 / BOUND)


def rows(settings: list[Setting], device: str, windows: int) -> Iterator[str]:
    """Yield the lines of the table."""
    yield (
        f"{'setting':<58} {'time':>6} {'noise':>6} {'goal':>5} {'memory':>7} {'ms':>8} {'MB':>8}"
        + "".join(f" {name:>7}" for name in PEERS)
    )
    refused: list[str] = []
    for setting in settings:
        found = timed(setting, device, windows)
        memory = {way: held(setting, device, way) for way in ("plain", "ours")}
        others = beside(setting, device, windows) if setting.size == 1 else {}
        yield (
            f"{setting!s:<58} {found['time']:>6.2f} {found['noise']:>6.2f} {setting.goal:>5} "
            f"{memory['ours'] / memory['plain']:>7.2f} {found['ms']:>8.1f} {memory['plain']:>8.0f}"
            + "".join(f" {_said(others.get(name)):>7}" for name in PEERS)
        )
        refused += [f"{setting}: {n}: {why}" for n, why in others.items() if isinstance(why, str)]
    yield from refused
    smallest = min(settings, key=lambda each: each.width * each.layers * each.length)
    yield f"{smallest}: off by {difference(smallest, device):.1e} bounds from each block by itself"


def _said(ratio: float | str | None) -> str:
    """Return a ratio in a column, empty where nothing was compared."""
    return "" if ratio is None else "–" if isinstance(ratio, str) else f"{ratio:.2f}"


def profiled(setting: Setting, device: str) -> str:
    """Return a profile of our step."""
    model = setting.made().to(device)
    step, recorder = ours(setting, model, device)
    step()
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if torch.device(device).type == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as profile:
        step()
    recorder.remove()
    by = "self_cuda_time_total" if len(kinds) > 1 else "self_cpu_time_total"
    return str(profile.key_averages().table(sort_by=by, row_limit=14, max_name_column_width=40))


def networks(device: str, windows: int, *, quick: bool) -> None:
    """Print the table of the other benchmark of networks."""
    command = ["--device", device, "--windows", str(windows), "--beside", "vmap"]
    command += (
        ["--only", "cnn", "--blocks", "5", "--chunks", "1"] if quick else ["--blocks", "1", "5"]
    )
    print()
    torch_step.main(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="the smallest models")
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--only", default="", help="settings whose words hold these")
    parser.add_argument("--profile", action="store_true", help="what each step spends its time on")
    parser.add_argument("--networks", action="store_true", help="other networks, with vmap")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    on_gpu = torch.device(given.device).type == "cuda"
    settings = QUICK if given.quick else ON_GPUS if on_gpu else ON_PROCESSORS
    settings = [each for each in settings if given.only in str(each)]
    name = torch.cuda.get_device_name() if on_gpu else "one thread"
    print(f"{name}, torch {torch.__version__}, transformers {transformers.__version__}")
    for line in rows(settings, given.device, given.windows):
        print(line, flush=True)
    if given.networks:
        networks(given.device, given.windows, quick=given.quick)
    for setting in settings if given.profile else ():
        print(f"\n{setting}\n{profiled(setting, given.device)}", flush=True)


if __name__ == "__main__":
    main()
