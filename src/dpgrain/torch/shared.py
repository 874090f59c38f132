"""Tensors made of a batch's records, and tensors that all records share, with a copy for each.

A table that is looked up once for the batch, or a parameter that a module reads by itself, meets all
records at once, so that its gradient is a sum over people. So while such a module reads a batch, what
is made of records is known as :class:`Rows`, and what they share is :class:`Copies`, of which each
record has one. Where both meet, PyTorch's function runs record by record (``torch.func.vmap``): a
copy's gradient follows from its record alone. Sizes decide nothing: a table as long as the batch has
records is a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from dpgrain.errors import ParameterError
from dpgrain.torch.library import torch

# Functions that repeat a tensor along its first dimension, and those that keep what was repeated.
_REPEAT = frozenset(("expand", "expand_as", "broadcast_to", "repeat", "tile"))
_KEEP = frozenset(("to", "contiguous", "clone", "float", "double", "half", "bfloat16", "type_as"))
# Functions that take nothing of their second tensor but its type or its shape.
_LIKE = frozenset(("type_as", "expand_as", "to"))


class Rows(torch.Tensor):
    """A tensor made of records: as many rows for each, in their order, along the first dimension."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of PyTorch, whose result is made of records as well."""
        return _called(func, args, {} if kwargs is None else kwargs)


class Copies(torch.Tensor):
    """A tensor that all records share, as PyTorch sees it; gradients go to the copies.

    Attributes:
        copies: (records, …) the copy of each record; of one that is repeated, its one row.
        repeated: True if the first dimension repeats one row.
    """

    copies: Any
    repeated: bool

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of PyTorch, record by record."""
        return _called(func, args, {} if kwargs is None else kwargs)


def rows_as(tensor: Any) -> Any:
    """Return a tensor known to be made of records.

    Args:
        tensor: (k · records, …) the tensor.
    """
    return tensor if type(tensor) is Rows else tensor.as_subclass(Rows)


def copies_as(copies: Any, *, times: int | None = None) -> Any:
    """Return a tensor that records share, from the copy of each.

    Args:
        copies: (records, …) the copies, which are equal.
        times: how often the tensor repeats the one row that each copy has then; None where it does not.

    >>> shared = copies_as(torch.ones(3, 1, 2))
    >>> shared.shape, type(shared + torch.ones(2)), type(shared + rows_as(torch.ones(3, 2)))
    (torch.Size([1, 2]), <class 'dpgrain.torch.shared.Copies'>, <class 'dpgrain.torch.shared.Rows'>)
    """
    once = copies[0].detach()
    seen = once if times is None else once.expand(times, *once.shape[1:])
    made: Copies = seen.as_subclass(Copies)
    made.copies, made.repeated = copies, times is not None
    return made


def plain(tensor: Any) -> Any:
    """Return a tensor without what is known of it; of copies, the first.

    Args:
        tensor: any tensor.
    """
    if isinstance(tensor, Rows | Copies):
        with torch._C.DisableTorchFunctionSubclass():
            return tensor.as_subclass(torch.Tensor)
    return tensor


def everywhere_plain(found: Any) -> Any:
    """Return plain tensors in place of those of which something is known.

    Args:
        found: tensors, in tuples, lists and mappings.
    """
    return tree_map(plain, found)


def _called(func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Rows | Copies)]
        if not any(isinstance(leaf, Copies) for leaf in leaves):
            return _known(func(*args, **kwargs))
        if not any(isinstance(leaf, Rows) for leaf in leaves):
            return _of_copies(func, args, kwargs)
        name = _name(func)
        if func is torch.nn.functional.scaled_dot_product_attention:
            # Its kernels take records at once, and masks as many as there are.
            args, kwargs = tree_map(partial(_as_rows, _widest(leaves)), (args, dict(kwargs)))
            return _known(func(*args, **kwargs))
        if name in _LIKE and isinstance(args[0], Copies):
            like = args[1]
            given = (like.shape,) if name == "expand_as" else (like.device, like.dtype)
            return _of_copies(
                torch.Tensor.expand if name == "expand_as" else torch.Tensor.to,
                (args[0], *given),
                {},
            )
        return each_apart(func, args, kwargs, _words(name), _records(leaves))


def _known(result: Any) -> Any:
    """Return a result that is made of records."""
    if isinstance(result, torch.Tensor):
        return rows_as(result)
    if isinstance(result, tuple | list) and any(isinstance(t, torch.Tensor) for t in result):
        return tree_map(lambda t: rows_as(t) if isinstance(t, torch.Tensor) else t, result)
    return result


def _of_copies(func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """Call a function of what records share, and of nothing of theirs."""
    name = _name(func)
    if name.endswith("_") and not name.endswith("__"):
        raise ParameterError(
            f"module changes by {name}() what all records share, such as a parameter of its own or a "
            "table that is looked up once: write the change as a new tensor.",
            name="module",
        )
    with torch.no_grad():
        once = func(*args, **kwargs)
    if not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(once)):
        return once  # A shape, a type or a number, which is public.
    own = next(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Copies))
    if own.repeated and name in _KEEP and own is args[0]:
        return copies_as(func(own.copies, *args[1:], **kwargs), times=own.shape[0])
    if name in _REPEAT and own is args[0] and _is_repeated(own, once):
        copies = own.copies.unflatten(0, (-1, *[1] * (once.dim() - own.dim() + 1))).squeeze(1)
        copies = copies.expand(-1, 1, *once.shape[1:])
        return copies_as(copies, times=once.shape[0])
    return each_apart(func, args, kwargs, _words(name), len(own.copies))


def _is_repeated(own: Copies, made: Any) -> bool:
    """Return whether a tensor repeats one row of another one, along a first dimension."""
    if made.dim() == own.dim() and (own.dim() == 0 or own.shape[0] != 1):
        return False
    try:
        return bool(torch.broadcast_shapes(own.shape, made.shape) == made.shape)
    except RuntimeError:
        return False


def _words(name: str) -> str:
    return (
        f"module uses what all records share (a parameter of its own, or a table that is looked up "
        f"once) in {name}()"
    )


def each_apart(
    func: Any,
    args: Any,
    kwargs: Mapping[str, Any],
    words: str,
    records: int,
    shared: Sequence[bool] = (),
) -> Any:
    """Call a function record by record, each as a batch of its own.

    Args:
        func: the function, of tensors in tuples, lists and mappings.
        args: positional inputs. Of what is made of records each gets its rows, of copies its copy, and
            all else as it is.
        kwargs: named inputs.
        words: what is done here, as the beginning of a sentence.
        records: the number of records.
        shared: whether records share each tensor that comes out, though records went in; by default
            they do not.

    Returns:
        what the function returns, made of records if an input is; copies otherwise.

    Raises:
        ParameterError: if ``torch.func.vmap`` does not take the function, or a result has not as many
            rows for each record as the inputs.
    """
    rows = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Rows)]
    sizes = {_of_each(t, records, 0).shape[1] for t in rows}
    made, rebuilt = vmapped(func, args, kwargs, words, records)
    given = (*shared, *(False for _ in made[len(shared) :]))

    def whole(made: Any, is_shared: bool) -> Any:
        # Of one record alone nothing tells what others would share.
        only = records == 1 and made.shape[1:2].numel() not in sizes
        return copies_as(made) if is_shared or only or not sizes else _merged(made, sizes, words)

    return rebuilt(whole(t, is_shared) for t, is_shared in zip(made, given, strict=True))


def vmapped(
    func: Any, args: Any, kwargs: Mapping[str, Any], words: str, records: int
) -> tuple[tuple[Any, ...], Callable[[Iterable[Any]], Any]]:
    """Return the tensors that a function makes of each record, and what puts tensors in their places.

    Args:
        func: as in :func:`each_apart`.
        args: as there.
        kwargs: as there.
        words: as there.
        records: as there.

    Returns:
        (records, …) tensors, and a function of as many others, which returns what ``func`` does.

    Raises:
        ParameterError: if ``torch.func.vmap`` does not take the function.
    """
    leaves, form = tree_flatten((args, dict(kwargs)))
    rows = [t for t in leaves if isinstance(t, Rows)]
    width = max((t.dim() for t in rows), default=0)
    each = {
        place: _of_each(leaf, records, width)
        for place, leaf in enumerate(leaves)
        if isinstance(leaf, Rows | Copies)
    }
    result: list[Any] = []
    form_of_result: Any = None

    def one(own: Mapping[int, Any]) -> tuple[Any, ...]:
        nonlocal result, form_of_result
        filled = [own.get(place, leaf) for place, leaf in enumerate(leaves)]
        given, named = tree_unflatten(filled, form)
        result, form_of_result = tree_flatten(func(*given, **named))
        return tuple(leaf for leaf in result if isinstance(leaf, torch.Tensor))

    randomness = "different" if rows else "same"
    try:
        with torch._C.DisableTorchFunctionSubclass(), _quietly():
            made: tuple[Any, ...] = torch.func.vmap(one, randomness=randomness)(each)
    except (RuntimeError, ValueError) as error:
        raise ParameterError(
            f"{words}, which torch.func.vmap does not take record by record ({_first_line(error)}): "
            "write it without branches on values and changes in place, or freeze its parameters.",
            name="module",
        ) from error

    def rebuilt(tensors: Iterable[Any]) -> Any:
        own = iter(tensors)
        filled = [next(own) if isinstance(leaf, torch.Tensor) else leaf for leaf in result]
        return tree_unflatten(filled, form_of_result)

    return made, rebuilt


def _as_rows(like: Any, leaf: Any) -> Any:
    """Return copies as rows of records, where each has one row, or one for each of other rows."""
    if not isinstance(leaf, Copies):
        return leaf
    records = len(leaf.copies)
    if leaf.dim() == like.dim() and (leaf.repeated or leaf.shape[0] == 1):
        return leaf.copies.expand(-1, len(like) // records, *leaf.shape[1:]).flatten(0, 1)
    if leaf.dim() == like.dim() and len(leaf) == len(like):
        own = torch.arange(len(like), device=like.device)
        return leaf.copies[own // (len(like) // records), own]
    raise ParameterError(
        f"{_words('scaled_dot_product_attention')} as {tuple(leaf.shape)}: let its first dimension "
        "be 1.",
        name="module",
    )


def _widest(leaves: Sequence[Any]) -> Any:
    """Return what is made of records and has the most dimensions."""
    return max((t for t in leaves if isinstance(t, Rows)), key=lambda t: t.dim())


def _records(leaves: Sequence[Any]) -> int:
    """Return the number of records, which is that of copies."""
    return next(len(leaf.copies) for leaf in leaves if isinstance(leaf, Copies))


@contextmanager
def _quietly() -> Iterator[None]:
    """Let functions be slow that vmap has no rule for, without a warning."""
    torch._C._functorch._set_vmap_fallback_warning_enabled(False)
    try:
        yield
    finally:
        torch._C._functorch._set_vmap_fallback_warning_enabled(True)


def _of_each(leaf: Any, records: int, width: int) -> Any:
    """Return (records, …) what each record has of a tensor."""
    if isinstance(leaf, Copies):
        if not leaf.repeated:
            return leaf.copies
        of_records = leaf.dim() == width and leaf.shape[0] % records == 0
        return leaf.copies.expand(
            -1, leaf.shape[0] // records if of_records else leaf.shape[0], *leaf.shape[1:]
        )
    if leaf.dim() == 0 or len(leaf) % records:
        raise ParameterError(
            f"module puts what all records share beside {tuple(leaf.shape)}, whose first dimension is "
            f"not that of the {records} records of the batch: keep it first.",
            name="module",
        )
    return plain(leaf).unflatten(0, (records, -1))


def _merged(made: Any, sizes: set[int], words: str) -> Any:
    """Return what came out, (records, …), as one tensor."""
    if made.dim() < 2 or made.shape[1] not in sizes:
        raise ParameterError(
            f"{words}, of which each record has {tuple(made.shape[1:])}: the first dimension of what "
            "comes out must be that of records.",
            name="module",
        )
    return rows_as(made.flatten(0, 1))


def _name(func: Any) -> str:
    return str(getattr(func, "__name__", func))


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:200]
