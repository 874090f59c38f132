"""Noise drawn on a device: the cipher, its counters, the distribution, and steps that never wait."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from tests.torch.library import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dpgrain.accounting import Gaussian
from dpgrain.means import ClippedMean
from dpgrain.noise import SeededSource, SystemSource, device_normals
from dpgrain.noise.device_normals import NormalStream, chacha, draws_itself, normals
from dpgrain.publishing.draws import counted
from dpgrain.torch.steps import ClippedSteps

CPU, META = torch.device("cpu"), torch.device("meta")
KEY = [1, 2**64 - 1, 3 << 40, 2**63]


def label_key(text: str) -> list[int]:
    return [int(word) for word in np.frombuffer(bytes.fromhex(text), "<u4")]


ZERO, COUNTED = "00" * 32, bytes(range(32)).hex()
OTHER = "00112233445566778899aabbccddeeffffeeddccbbaa99887766554433221100"
# Key, block, stream, rounds and the block's bytes.
VECTORS = {
    "RFC 8439, 2.3.2, with the nonce in the upper half of the counter": (
        COUNTED,
        1 + (0x09000000 << 32),
        0x4A000000,
        20,
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
    ),
    "draft-strombergson-chacha-test-vectors, TC1": (
        ZERO,
        0,
        0,
        12,
        "9bf49a6a0755f953811fce125f2683d50429c3bb49e074147e0089a52eae155f"
        "0564f879d27ae3c02ce82834acfa8c793a629f2ca0de6919610be82f411326be",
    ),
    "draft-strombergson-chacha-test-vectors, TC1, second block": (
        ZERO,
        1,
        0,
        12,
        "0bd58841203e74fe86fc71338ce0173dc628ebb719bdcbcc151585214cc089b4"
        "42258dcda14cf111c602b8971b8cc843e91e46ca905151c02744a6b017e69316",
    ),
    "draft-strombergson-chacha-test-vectors, TC8": (
        OTHER,
        0,
        int.from_bytes(bytes.fromhex("0f1e2d3c4b5a6978"), "little"),
        12,
        "7ed12a3a63912ae941ba6d4c0d5e862e568b0e5589346935505f064b8c2698db"
        "f7d850667d8e67be639f3b4f6a16f92e65ea80f6c7429445da1fc2c1b9365040",
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_the_cipher_has_its_published_vectors(name: str) -> None:
    key, block, stream, rounds, expected = VECTORS[name]
    blocks = torch.tensor([[block, block + 1, 5]])
    words = chacha(label_key(key), blocks, stream, rounds=rounds)
    assert words.shape == (16, 1, 3)
    assert words[:, 0, 0].numpy().astype("<i4").tobytes().hex() == expected
    if block == 0 and key == ZERO:
        assert words[:, 0, 1].numpy().tobytes().hex().startswith("0bd58841203e74fe")


def test_twelve_rounds_are_the_default() -> None:
    blocks = torch.arange(3)
    assert torch.equal(chacha([7] * 8, blocks), chacha([7] * 8, blocks, 0, rounds=12))


def test_a_short_key_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        chacha([1] * 7, torch.arange(2))
    with pytest.raises(ValueError, match="zip"):
        NormalStream([], 0, CPU, 5).take(5)


# Positions --------------------------------------------------------------------------------------

SIZES = st.lists(st.integers(0, 200), min_size=1, max_size=6)


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[int, ...], int, int]]:
    found: list[tuple[tuple[int, ...], int, int]] = []

    def noted(key: list[int], counters: Any, stream: int = 0) -> Any:
        found.extend((tuple(key), stream, int(block)) for block in counters.flatten())
        return chacha(key, counters, stream)

    monkeypatch.setattr(device_normals, "chacha", noted)
    return found


@given(sizes=SIZES, most=st.integers(1, 5), promised=st.integers(0, 300))
def test_numbers_do_not_depend_on_chunks_or_tensors(
    sizes: list[int], most: int, promised: int
) -> None:
    whole = NormalStream(KEY, 3, CPU, sum(sizes)).take(sum(sizes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_normals, "_MOST_GROUPS", most)
        stream = NormalStream(KEY, 3, CPU, promised)
        parts = [stream.take(size) for size in sizes]
    assert [len(part) for part in parts] == sizes
    assert torch.equal(torch.cat(parts), whole)
    assert len(set(whole.tolist())) == len(whole)


def test_no_block_of_the_cipher_is_used_twice(
    blocks: list[tuple[tuple[int, ...], int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpgrain.publishing.draws.draws_itself", lambda _: True)
    monkeypatch.setattr(device_normals, "_MOST_GROUPS", 2)
    part = Gaussian(2.0, count=4)
    source, numbers = counted(SeededSource(1), part), 0
    for shapes in ([(300, 4), (7,), ()], [(5,)], [(2, 3), (0,), (40,)]):
        # A vector and a count, or two vectors, of a step.
        for noise in source.normals(Gaussian(2.0), 1.0, 3.0):
            for _ in range(2):
                drawn = list(noise.tensors([torch.zeros(shape) for shape in shapes]))
                assert [tuple(tensor.shape) for tensor in drawn] == shapes
                numbers += sum(tensor.numel() for tensor in drawn)
    assert len(blocks) == len(set(blocks))
    # Two keys in a step, two streams each, and no more blocks than the numbers need.
    assert len({key for key, _, _ in blocks}) == 6
    assert {stream for _, stream, _ in blocks} == {0, 1}
    assert len(blocks) <= 5 * (numbers / 32 + 12)


def test_devices_of_a_step_have_streams_of_their_own(
    blocks: list[tuple[tuple[int, ...], int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpgrain.publishing.draws.draws_itself", lambda _: True)
    streams = []

    class Noted(NormalStream):
        def __init__(self, key: Any, stream: int, device: Any, numbers: int) -> None:
            streams.append((stream, device, numbers))
            super().__init__(key, stream, CPU, numbers)

    monkeypatch.setattr("dpgrain.publishing.draws.NormalStream", Noted)
    (noise,) = counted(SystemSource(), Gaussian(1.0)).normals(Gaussian(1.0), 1.0)
    like = [torch.zeros(40), torch.zeros(40, device=META), torch.zeros(9)]
    first, second, third = noise.tensors(like)
    assert streams == [(0, CPU, 49), (1, META, 40)]
    assert len(set(torch.cat([first, second, third]).tolist())) == 89
    assert len(blocks) == len(set(blocks)) == 20


def test_processors_use_numpy_and_other_devices_the_cipher() -> None:
    assert not draws_itself(CPU)
    assert draws_itself(META)
    assert draws_itself(torch.device("cuda", 1))


# The distribution -------------------------------------------------------------------------------


def test_numbers_are_normal() -> None:
    drawn = NormalStream(KEY, 0, CPU, 1 << 20).take(1 << 20).numpy()
    assert scipy.stats.kstest(drawn, "norm").pvalue > 1e-4
    assert scipy.stats.kstest(1.02 * drawn, "norm").pvalue < 1e-4
    for level in (2.0, 3.0, 4.0, 4.5):
        for side in (drawn, -drawn):
            count = int((side > level).sum())
            expected = len(drawn) * scipy.stats.norm.sf(level)
            assert abs(count - expected) < 4.5 * math.sqrt(expected) + 1
    # Cosines and sines of a pair, and neighbours, are uncorrelated, and so are their squares.
    groups = drawn.reshape(-1, 32)
    for values in (groups, groups**2):
        correlation = np.corrcoef(values.T) - np.eye(32)
        assert np.abs(correlation).max() < 5.5 / math.sqrt(len(groups))


def exact(words: list[int]) -> tuple[float, float]:
    """The transform of 5 words in 200 bits."""
    with mp.workprec(200):
        top, middle, low, of_angle, rest = (mpf(word) for word in words)
        bits = (int(top) % 2**31 * 2**64) + int(middle) * 2**32 + int(low)
        uniform = (bits + mpf(1) / 2) / mpf(2) ** 96
        uniform = 1 - uniform if words[0] >> 31 else uniform
        radius = mp.sqrt(-2 * mp.log(uniform))
        angle = 2 * mp.pi * (int(of_angle) * 2**32 + int(rest)) / mpf(2) ** 64
        return float(radius * mp.cos(angle)), float(radius * mp.sin(angle))


def signed(words: list[int]) -> Any:
    return torch.tensor(np.array(words, np.uint32).view(np.int32))[:, None]


EDGES = [0, 1, 2**31 - 1, 2**31, 2**32 - 1]


@given(words=st.lists(st.sampled_from(EDGES) | st.integers(0, 2**32 - 1), min_size=5, max_size=5))
def test_the_transform_is_exact_to_double_precision(words: list[int]) -> None:
    cosine, sine = normals(signed(words))[:, 0].tolist()
    of_cosine, of_sine = exact(words)
    length = math.hypot(of_cosine, of_sine)
    assert abs(cosine - of_cosine) <= 2.0**-49 * length
    assert abs(sine - of_sine) <= 2.0**-49 * length


def test_the_largest_number_is_beyond_eleven() -> None:
    largest = math.sqrt(2 * 97 * math.log(2))
    assert normals(signed([0] * 5))[0, 0] == pytest.approx(largest, rel=1e-14)
    assert 11.59 < largest < 11.6
    # The smallest is positive.
    assert 0 < normals(signed([2**31, 0, 0, 0, 0]))[0, 0] < 1e-14


# Steps ------------------------------------------------------------------------------------------


class Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = result if isinstance(result, list | tuple) else [result]
        self.outputs += [one for one in tensors if isinstance(one, torch.Tensor)]
        return result


@pytest.mark.parametrize("bands", [1, 3])
def test_a_step_neither_waits_nor_leaves_the_device(
    bands: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No number of PyTorch's meta device can be read: waiting for one raises an error."""
    monkeypatch.setattr(device_normals, "_MOST_GROUPS", 200)
    mean = ClippedMean(2.0, 1.0, 100, 6, sampling_rate=0.1 if bands > 1 else 1.0, bands=bands)
    weights = [torch.zeros(shape, device=META) for shape in ((300, 40), (7,), ())]
    steps = ClippedSteps(mean, weights, counted(SystemSource(), mean.event))
    with Operations() as seen:
        for _ in range(3):
            gradients = dict(steps.gradients(steps.empty_sum()))
            assert [gradients[weight].shape for weight in weights] == [w.shape for w in weights]
            assert {gradient.dtype for gradient in gradients.values()} == {torch.float64}
    assert {output.device for output in seen.outputs} == {META}
    with pytest.raises(RuntimeError, match="meta"):
        float(gradients[weights[2]])


def test_memory_is_limited_by_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_normals, "_MOST_GROUPS", 40)
    with Operations() as seen:
        NormalStream(KEY, 0, CPU, 5000).take(5000)
    words = [output.numel() for output in seen.outputs if output.dtype == torch.int32]
    assert max(words) == 16 * 5 * 40
    assert max(output.numel() for output in seen.outputs) == 5000
