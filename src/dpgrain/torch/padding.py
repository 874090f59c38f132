"""Records that were collated one by one, as one batch that is padded to its longest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpgrain.errors import ParameterError
from dpgrain.torch.library import torch

# What pads tensors, by the end of their names; tokens and others are padded by the caller's number.
_PADDING = {"labels": -100, "mask": 0, "token_type_ids": 0, "position_ids": 0, "values": 0}


def together(records: Sequence[Mapping[str, Any]], padding: int) -> dict[str, Any]:
    """Return a batch of records, each of which is a batch of one.

    Args:
        records: tensors by name, (1, …) each.
        padding: the token that pads tokens.

    Raises:
        ParameterError: if a collator has made something else of a record than a row in each tensor.

    So each row follows from its record alone, whatever the collator does; how far it is padded follows
    from others.

    >>> rows = [{"input_ids": torch.ones(1, 2)}, {"input_ids": torch.ones(1, 3)}]
    >>> together(rows, 7)["input_ids"].tolist()
    [[1.0, 1.0, 7.0], [1.0, 1.0, 1.0]]
    """
    names = list(records[0])
    for record in records:
        for name, value in record.items():
            if name not in names or not isinstance(value, torch.Tensor) or len(value) != 1:
                raise ParameterError(
                    f"data_collator must make a tensor with one row of one record, not of {name!r}: "
                    "records that are packed together have no loss of their own.",
                    name="data_collator",
                )
    return {name: _padded([record[name] for record in records], name, padding) for name in names}


def _padded(rows: Sequence[Any], name: str, padding: int) -> Any:
    """Return rows as one tensor, padded at the end of each dimension."""
    longest = [max(sizes) for sizes in zip(*(row.shape[1:] for row in rows), strict=True)]
    value = next((pad for end, pad in _PADDING.items() if name.endswith(end)), padding)
    made = rows[0].new_full((len(rows), *longest), value)
    for place, row in enumerate(rows):
        made[(place, *(slice(size) for size in row.shape[1:]))] = row[0]
    return made
