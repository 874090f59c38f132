"""Damage to small valid files: a fixed list of changes to bytes, selected by a number.

A seed and a number give the same input in every run, so a number reproduces an input.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

Damage: TypeAlias = Callable[[bytes, random.Random, Sequence[bytes]], bytes]

#: Pieces of text that readers stumble over: numbers, nulls, quotes, brackets, marks of encodings.
ODD_BYTES = (
    *(b"", b"0", b"-1", b"1e999", b"-0.0", b"NaN", b"Infinity", b"-Infinity", b"inf", b"1e-320"),
    *(b"9" * 30, b"9" * 5000, b"2147483648", b"18446744073709551616", b"0x10", b"1_000", b"007"),
    *(b"null", b"true", b"False", b"{}", b"[]", b'""', b"''", b'"', b"'", b"\\", b"\\u0000"),
    *(b"\x00", b"\x00" * 40, b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc3"),
    *(b"\n", b"\r", b"\r\n", b"\x1a", b",", b";", b"=", b"#", b"]]", b"}", b"[", b"{", b"\t"),
    *(b"../..", b"%s%n", b"${HOME}", b"'; DROP TABLE line; --", b"1979-05-27T07:32:00Z", b"25:61"),
    *("é".encode(), "\u202e".encode(), "\U0001f600".encode(), b"A" * 70_000),
)
#: Values that replace any other in JSON.
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e-320, 1e308, 2**31, 2**53 + 1, 2**63, 2**64),
    *(10**30, -(10**30), float("nan"), float("inf"), float("-inf")),
    *("", "0", "inf", "nan", "\x00", "\ud800", "é", "x" * 3000),
    *([], {}, [[]], [None], [1, [2]], [0] * 2000, {"": 0}, {"kind": "Ball"}, {"event": "Gaussian"}),
)
_DEEP = (50, 1200, 100_000)


def _at(data: bytes, rng: random.Random) -> int:
    return rng.randrange(len(data) + 1)


def flipped(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    result = bytearray(data or b"\0")
    for _each in range(rng.choice((1, 1, 2, 8))):
        result[rng.randrange(len(result))] ^= 1 << rng.randrange(8)
    return bytes(result)


def cut(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    place = _at(data, rng)
    return data[:place] if rng.random() < 0.8 else data[place:]


def spliced(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    return data[: _at(data, rng)] + other[_at(other, rng) :]


def inserted(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    place = _at(data, rng)
    return data[:place] + rng.choice(ODD_BYTES) + data[place:]


def replaced(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    place = _at(data, rng)
    return data[:place] + rng.choice(ODD_BYTES) + data[place + rng.randrange(1, 20) :]


def doubled(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    start, end = sorted((_at(data, rng), _at(data, rng)))
    return data[:end] + data[start:end] * rng.choice((1, 1, 5)) + data[end:]


def left_out(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    start, end = sorted((_at(data, rng), _at(data, rng)))
    return data[:start] + data[end:]


def deepened(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    place, depth = _at(data, rng), rng.choice(_DEEP)
    opened, closed = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"(", b")"), (b"a.", b"")))
    return data[:place] + opened * depth + rng.choice((b"", b"1")) + closed * depth + data[place:]


def of_nothing(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 7, 100, 3000)))


BYTES: tuple[Damage, ...] = (
    *(flipped, cut, spliced, inserted, replaced, doubled, left_out, deepened, of_nothing),
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all values inside a value."""
    if not isinstance(value, dict | list):
        return [path]
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    return [path] + [place for key, part in inside for place in _places(part, (*path, key))]


def _get(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def json_value(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Replace a JSON value with a malformed one, one from another position or file, or none."""
    value, other = json.loads(data), json.loads(rng.choice(others))
    for _each in range(rng.choice((1, 1, 1, 2, 4))):
        places = [place for place in _places(value) if place]
        if not places:
            break
        *above, key = rng.choice(places)
        holder, way = _get(value, tuple(above)), rng.random()
        if way < 0.15:
            del holder[key]
        elif way < 0.25 and isinstance(holder, dict):
            holder[rng.choice(("", "more", "event", "kind", key + "_"))] = holder.pop(key)
        elif way < 0.4:
            holder[key] = deepcopy(_get(other, rng.choice(_places(other))))
        elif way < 0.55 and type(holder[key]) in (int, float):
            holder[key] *= rng.choice((-1, 0, 2, 1e-9, 10**12, 1e300))
        else:
            holder[key] = deepcopy(rng.choice(ODD_VALUES))
    return json.dumps(value).encode()


def json_twice(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    """Give a field of JSON twice."""
    value = json.loads(data)
    if not isinstance(value, dict) or not value:
        return data
    key = rng.choice(list(value))
    more = f"{json.dumps(key)}: {json.dumps(rng.choice(ODD_VALUES))}, "
    return b"{" + more.encode() + json.dumps(value).encode()[1:]


JSON: tuple[Damage, ...] = (*BYTES, *[json_value] * 12, json_twice)


def input_of(name: str, number: int, seeds: Sequence[bytes], damages: Sequence[Damage]) -> bytes:
    """The input of a number: a valid file, damaged once or a few times."""
    rng = random.Random(f"{name} {number}")
    data = rng.choice(seeds)
    for turn in range(rng.choice((1, 1, 1, 2, 3))):
        chosen = damages if turn == 0 else BYTES
        data = rng.choice(chosen)(data, rng, seeds)
    return data
