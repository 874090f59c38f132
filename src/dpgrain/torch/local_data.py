"""Records and labels of a training process, with keyed hashes to compare them.

Processes of the same run, and a process that resumes it, must read the same records with the same
labels; otherwise a user could contribute two blocks instead of one. The hash key is random, so that
the hash does not reveal guessable labels.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
from torch.utils._pytree import tree_leaves

from dpgrain._types import IndexArray
from dpgrain.inputs.codes import codes
from dpgrain.torch.batches import Blocks
from dpgrain.torch.library import torch
from dpgrain.torch.randomness import randomness_from

# Bytes of a key and of a hash.
_BYTES = 32
# Attributes of objects that NumPy can convert, such as Pillow images.
_WAYS_TO_AN_ARRAY = ("__array__", "__array_interface__", "__array_struct__")
# Records compared in a data set other than a TensorDataset; a sample, because reading is slow.
_RECORDS_READ = 256


@dataclass(frozen=True, eq=False)
class Held:
    """Records of one process, their labels, and their blocks.

    >>> own = Blocks(np.arange(2), np.arange(3))
    >>> one, other = (Held(range(2), names, None, own) for names in (["ann", "bob"], ["bob", "ann"]))
    >>> one.hash(bytes(32)) == other.hash(bytes(32))
    False
    """

    dataset: Any
    users: Any
    elements: Any
    blocks: Blocks

    @staticmethod
    def key() -> bytes:
        """Return a new random key."""
        return secrets.token_bytes(_BYTES)

    def hash(self, key: bytes) -> str:
        """Return a keyed hash of the labels, the number of records and the blocks."""
        return _hash(key, self._of_rows(), _of_labels(self.users), _of_labels(self.elements))

    def hashes(self, key: bytes) -> dict[str, str]:
        """Return keyed hashes of all records and labels, by parameter name.

        Other data sets than ``TensorDataset`` are sampled: 256 records chosen by the key. Each is
        read twice from the same seed, and ignored if the results differ.
        """
        return {
            "users": _hash(key, _of_labels(self.users)),
            "elements": _hash(key, _of_labels(self.elements)),
            "dataset": _hash(key, self._of_rows(), self._of_records(key)),
        }

    def _of_rows(self) -> Iterator[bytes]:
        yield repr((len(self.dataset), self.blocks.blocks)).encode()
        for places in (self.blocks.starts, self.blocks.rows):
            yield _of_places(places)

    def _of_records(self, key: bytes) -> Iterator[bytes]:
        if type(self.dataset) is torch.utils.data.TensorDataset:
            yield from of_record(self.dataset.tensors)
            return
        records = len(self.dataset)
        drawn = np.random.default_rng(np.frombuffer(key, dtype=np.uint32))
        for place in drawn.permutation(records)[:_RECORDS_READ].tolist():
            once, again = (self._read(place, key) for _ in range(2))
            yield once if once == again else b"changes"

    def _read(self, place: int, key: bytes) -> bytes:
        with randomness_from(place):
            return _hash(key, of_record(self.dataset[place])).encode()


def _hash(key: bytes, *parts: Iterable[bytes]) -> str:
    result = hashlib.blake2b(key=key, digest_size=_BYTES)
    for part in parts:
        for piece in part:
            result.update(len(piece).to_bytes(8, "big"))
            result.update(piece)
        result.update(b"end")
    return result.hexdigest()


def _of_labels(labels: Any) -> Iterator[bytes]:
    """Yield the index of each row's label, then the labels."""
    if labels is None:
        return
    of_rows, keys = codes(labels)
    yield _of_places(of_rows)
    for kind, name in keys:
        yield repr((kind, name)).encode("utf-8", "backslashreplace")


def _of_places(places: IndexArray) -> bytes:
    return places.astype("<i8").tobytes()


def of_record(record: Any) -> Iterator[bytes]:
    """Yield the parts of a record as bytes; only the type of unsupported objects.

    >>> list(of_record({"text": "a", "label": 1}))
    [b"'a'", b'1']
    """
    for leaf in tree_leaves(record):
        if isinstance(leaf, torch.Tensor):
            tensor = leaf.detach().cpu().contiguous()
            yield repr((tensor.dtype, tuple(tensor.shape))).encode()
            yield tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        elif isinstance(leaf, str | bytes | Number | None):
            yield repr(leaf).encode("utf-8", "backslashreplace")
        elif any(hasattr(leaf, way) for way in _WAYS_TO_AN_ARRAY):
            array = np.asarray(leaf)
            yield repr((array.dtype, array.shape)).encode()
            yield from (of_record(array.tolist()) if array.dtype == object else [array.tobytes()])
        else:
            yield type(leaf).__qualname__.encode()
