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
from dpgrain.torch.batches import BlockRows
from dpgrain.torch.library import torch
from dpgrain.torch.randomness import seeded_randomness

# Bytes of a key and of a hash.
_BYTES = 32
# Attributes of objects that NumPy can convert, such as Pillow images.
_WAYS_TO_AN_ARRAY = ("__array__", "__array_interface__", "__array_struct__")
# Records compared in a data set other than a TensorDataset; a sample, because reading is slow.
_RECORDS_READ = 256


@dataclass(frozen=True, eq=False)
class LocalData:
    """Records of one process, their labels, and their blocks."""

    dataset: Any
    users: Any
    elements: Any
    blocks: BlockRows

    @staticmethod
    def key() -> bytes:
        """Return a new random key."""
        return secrets.token_bytes(_BYTES)

    def hash(self, key: bytes) -> str:
        """Return a keyed hash of the labels, the number of records and the blocks."""
        return _hash(
            key, self._block_bytes(), _label_bytes(self.users), _label_bytes(self.elements)
        )

    def hashes(self, key: bytes) -> dict[str, str]:
        """Return keyed hashes of all records and labels, by parameter name.

        Other data sets than ``TensorDataset`` are sampled: 256 records chosen by the key. Each is
        read twice from the same seed, and ignored if the results differ.
        """
        return {
            "users": _hash(key, _label_bytes(self.users)),
            "elements": _hash(key, _label_bytes(self.elements)),
            "dataset": _hash(key, self._block_bytes(), self._sample_bytes(key)),
        }

    def _block_bytes(self) -> Iterator[bytes]:
        yield repr((len(self.dataset), self.blocks.blocks)).encode()
        for places in (self.blocks.starts, self.blocks.rows):
            yield _index_bytes(places)

    def _sample_bytes(self, key: bytes) -> Iterator[bytes]:
        if type(self.dataset) is torch.utils.data.TensorDataset:
            yield from record_bytes(self.dataset.tensors)
            return
        records = len(self.dataset)
        drawn = np.random.default_rng(np.frombuffer(key, dtype=np.uint32))
        for place in drawn.permutation(records)[:_RECORDS_READ].tolist():
            once, again = (self._read(place, key) for _ in range(2))
            yield once if once == again else b"changes"

    def _read(self, place: int, key: bytes) -> bytes:
        with seeded_randomness(place):
            return _hash(key, record_bytes(self.dataset[place])).encode()


def _hash(key: bytes, *parts: Iterable[bytes]) -> str:
    result = hashlib.blake2b(key=key, digest_size=_BYTES)
    for part in parts:
        for piece in part:
            result.update(len(piece).to_bytes(8, "big"))
            result.update(piece)
        result.update(b"end")
    return result.hexdigest()


def _label_bytes(labels: Any) -> Iterator[bytes]:
    """Yield the index of each row's label, then the labels."""
    if labels is None:
        return
    of_rows, keys = codes(labels)
    yield _index_bytes(of_rows)
    for kind, name in keys:
        yield repr((kind, name)).encode("utf-8", "backslashreplace")


def _index_bytes(places: IndexArray) -> bytes:
    return places.astype("<i8").tobytes()


def record_bytes(record: Any) -> Iterator[bytes]:
    """Yield the parts of a record as bytes; only the type of unsupported objects."""
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
            yield from (
                record_bytes(array.tolist()) if array.dtype == object else [array.tobytes()]
            )
        else:
            yield type(leaf).__qualname__.encode()
