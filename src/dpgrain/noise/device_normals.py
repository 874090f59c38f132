"""Normal noise drawn on the device of a tensor, by the ChaCha12 cipher in tensor operations.

NumPy draws on one thread, and its numbers would have to be copied to the device. Here the device
computes block i of the cipher from a secret key and i, without waiting for the host.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dpgrain._lazy_import import lazy_import

torch = lazy_import("torch")

_ROUNDS = 12
_WORD = 2.0**32
# The constants of the cipher, "expand 32-byte k" as little-endian words.
_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
# A group of 5 blocks of 16 words makes 16 pairs: 96 bits of a radius and 64 of an angle each.
_BLOCKS, _NUMBERS = 5, 32
# Most groups computed at once, 4 million numbers: enough work for a GPU, in about 200 MB.
_MOST_GROUPS = 1 << 17


def draws_itself(device: Any) -> bool:
    """Return True if a device draws its own noise; on a processor NumPy is faster."""
    return bool(device.type != "cpu")


class NormalStream:
    """Standard normal numbers on a device: a function of key, stream and position."""

    def __init__(self, key: Sequence[int], stream: int, device: Any, numbers: int) -> None:
        self._key = [half for word in key for half in (word & 0xFFFFFFFF, word >> 32)]
        self._stream, self._device = stream, device
        self._groups, self._group = -(-numbers // _NUMBERS), 0
        self._ahead = torch.empty(0, dtype=torch.float64, device=device)

    def take(self, size: int) -> Any:
        """Return the next (size,) numbers in double precision, which no other call returns."""
        parts = []
        while size > 0:
            if len(self._ahead) == 0:
                self._ahead = self._next()
            parts.append(self._ahead[:size])
            self._ahead = self._ahead[len(parts[-1]) :]
            size -= len(parts[-1])
        return parts[0] if len(parts) == 1 else torch.cat([self._ahead[:0], *parts])

    def _next(self) -> Any:
        groups = min(max(self._groups - self._group, 1), _MOST_GROUPS)
        first, self._group = self._group, self._group + groups
        blocks = torch.arange(_BLOCKS * first, _BLOCKS * self._group, device=self._device)
        words = chacha(self._key, blocks.view(groups, _BLOCKS).t(), self._stream)
        return normals(words).permute(2, 0, 1).flatten()


def chacha(key: Sequence[int], blocks: Any, stream: int = 0, *, rounds: int = _ROUNDS) -> Any:
    """Return the key stream of ChaCha, (16, …) words of 32 bits as int32.

    ``key`` has 8 words of 32 bits, ``blocks`` are the counters, (…) of int64, and ``stream`` is the
    nonce, both of 64 bits. Source: Bernstein, "ChaCha, a variant of Salsa20" (2008).
    """
    start = torch.empty((4, 4, *blocks.shape), dtype=torch.int32, device=blocks.device)
    counter, nonce = (blocks, blocks >> 32), (stream, stream >> 32)
    for row, word in zip(start.flatten(0, 1), (*_CONSTANTS, *key, *counter, *nonce), strict=True):
        row[...] = _signed(word)
    a, b, c, d = start.clone()
    for _ in range(rounds // 2):
        a, b, c, d = _quarter_rounds(a, b, c, d)
        # Rotated rows turn the diagonals of the matrix into columns.
        rows = (a, b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0))
        a, b, c, d = _quarter_rounds(*rows)
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    return torch.stack([a, b, c, d]).add_(start).flatten(0, 1)


def normals(words: Any) -> Any:
    """Return (2, …) standard normals from (…, 5, n) words, by the Box-Muller transform.

    Formal guarantee: for uniform words, the exact transform of a uniform number rounded to 2^-96
    and an angle rounded to 2^-64 of the circle, in double precision, so no number exceeds 11.6.
    Source: docs/theory, "Noise on a device".
    """
    top, middle, low, of_angle, rest = words.unbind(-2)
    tail = (_unsigned(low) + 0.5).div_(_WORD).add_(_unsigned(middle)).div_(_WORD)
    # A uniform number below ½, or 1 − that number if the sign bit is set.
    half = tail.add_((top & 0x7FFFFFFF).double()).div_(_WORD)
    exponential = torch.where(top < 0, torch.log1p(-half), torch.log(half)).neg_()
    radius = exponential.mul_(2.0).sqrt_()
    angle = _unsigned(rest).div_(_WORD).add_(_unsigned(of_angle)).mul_(2 * math.pi / _WORD)
    return torch.stack([angle.cos().mul_(radius), angle.sin_().mul_(radius)])


def _quarter_rounds(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any, Any, Any]:
    """Return the rows of a matrix after a quarter round of each column; ``a`` and ``c`` change."""
    for of_d, of_b in ((16, 12), (8, 7)):
        d = _rotated(d ^ a.add_(b), of_d)
        b = _rotated(b ^ c.add_(d), of_b)
    return a, b, c, d


def _rotated(words: Any, bits: int) -> Any:
    """Return words rotated to the left."""
    right = (words >> (32 - bits)).bitwise_and_((1 << bits) - 1)
    return right.add_(words, alpha=1 << bits)


def _signed(word: Any) -> Any:
    """Return the int32 with the low 32 bits of an integer or a tensor."""
    return ((word + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def _unsigned(words: Any) -> Any:
    """Return the unsigned values of int32 words in double precision."""
    return words.double().remainder_(_WORD)
