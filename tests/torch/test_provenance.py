"""No size and no value decides what a record is: networks next to tables of every length.

Each network of ``attack_networks`` runs for every number of records, next to tables of every
length, with equal rows and with random ones. It is rejected, or it returns the same as without the
library, and its clipped sums equal a loop over records as batches of one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.torch import cases
from tests.torch.attack_networks import MOST, NETWORKS, WIDTH, Network
from tests.torch.cases import distance
from tests.torch.library import torch

# isort: split
from torch.utils._pytree import tree_leaves

from dpgrain.errors import ParameterError
from dpgrain.optimize import Last
from dpgrain.torch import PrivacyEngine, train
from dpgrain.torch.clipping import clipped_sums
from dpgrain.torch.layout import BlockLayout
from dpgrain.torch.recorder import Recorder

#: Largest rounding error of a batch's sum as a share of the bound, in double precision.
ROUNDING = 1e-7
#: A bound that clips every record, and one that clips none.
BOUND = 1e-3
NO_CLIPPING = 1e12

Sums = dict[str, Any]


def tensors(out: Any) -> list[Any]:
    return [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]


def used_in_loss(out: Any, rows: int, *, uses_all: bool) -> tuple[int, ...]:
    """The places of the outputs that a loss uses: the first, or all as long as the batch."""
    found = tensors(out)
    long = tuple(i for i, t in enumerate(found) if t.dim() and len(t) == rows)
    return long if uses_all else (0,)


def losses(out: Any, rows: int, used: Sequence[int]) -> Any:
    found = tensors(out)
    total: Any = 0.0
    if not used or len(found[used[0]]) != rows:
        raise ValueError("no output has a row for each record")
    for place in used:
        if len(found[place]) == rows:
            each = found[place] if found[place].dim() == 1 else found[place].flatten(1)
            each = each.square() + 3.0 * each.sin()
            total = (each if each.dim() == 1 else each.sum(1)) + total
    return total


class Attack:
    """One network next to one table.

    Args:
        table: (k, WIDTH) the table.
    """

    def __init__(self, network: Network, table: Any) -> None:
        torch.manual_seed(3)
        self.network = network
        self.plain, self.records = network.make(table), network.draw(MOST + 1, len(table))
        if any(torch.nn.parameter.is_lazy(p) for p in self.plain.parameters()):
            self.plain(self.records[:1])
        self.plain.double()
        if self.records.is_floating_point():
            self.records = self.records.double()
        self._layout = BlockLayout(())
        self._hooked: tuple[Any, Any] | None = None
        self._gradients: dict[Any, Sums] = {}

    def run(self, x: Any) -> tuple[list[Any], Callable[[float], Sums]]:
        """The network's output under the library's hooks, and its clipped sums by bound."""
        self._layout = layout = BlockLayout((1,) * len(x))
        if self._hooked is None:
            module = copy.deepcopy(self.plain)
            self._hooked = module, Recorder(module, (cases.Scaled,), lambda: self._layout)
        module, recorder = self._hooked
        try:
            out = module(x)
            used = used_in_loss(out, len(x), uses_all=self.network.uses_all)
            losses(out, len(x), used).sum().backward()
        except Exception:
            self._hooked = None  # a rejected network is not reused
            raise
        uses, names = recorder.uses, {p: name for name, p in module.named_parameters()}
        past = [name for p, name in names.items() if p.grad is not None]
        assert not past, f"a gradient that nobody clips reached {past}"

        def sums(bound: float) -> Sums:
            return {names[p]: s.double() for p, s in clipped_sums(uses, layout, bound).items()}

        return [t.detach().as_subclass(torch.Tensor) for t in tensors(out)], sums

    def alone(self, row: int, used: tuple[int, ...]) -> Sums:
        """The gradient of a record, as a separate batch through the network without hooks."""
        if (row, used) not in self._gradients:
            trained = {name: p for name, p in self.plain.named_parameters() if p.requires_grad}
            loss = losses(self.plain(self.records[row : row + 1]), 1, used).sum()
            parts = torch.autograd.grad(
                loss, list(trained.values()), allow_unused=True, materialize_grads=True
            )
            self._gradients[row, used] = dict(zip(trained, parts, strict=True))
        return self._gradients[row, used]

    def verdict(self, rows: list[int]) -> tuple[str, Callable[[float], Sums] | None]:
        """Whether a batch is trained on, rejected, or fails without the library as well.

        If it is trained on, outputs and sums are compared with those without the library.
        """
        x = self.records[rows]
        try:
            with torch.no_grad():
                wanted = self.plain(x)
                used = used_in_loss(wanted, len(rows), uses_all=self.network.uses_all)
                losses(wanted, len(rows), used)
        except Exception:
            try:
                self.run(x)
            except Exception:
                return "fails", None
            raise AssertionError("trained, though the network fails") from None
        try:
            out, sums = self.run(x)
        except ParameterError:
            return "rejected", None
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} in place of a rejection") from error
        for one, other in zip(out, tensors(wanted), strict=True):
            assert one.shape == other.shape, f"an output {tuple(one.shape)}"
            assert torch.allclose(one, other, rtol=1e-9, atol=1e-9), "another output"
        try:
            each = [self.alone(row, used) for row in rows]
        except Exception as error:
            raise AssertionError("trained, though a record alone fails") from error
        norms = [distance(gradient) for gradient in each]
        for bound in (BOUND, NO_CLIPPING):
            of = max(min(bound, max(norms)), BOUND)
            off = distance(whole(sums(bound), each[0]), added(each, bound)) / of
            assert off <= ROUNDING * len(rows), f"sums off by {off} bounds"
        return "trains", sums


def added(each: Sequence[Sums], bound: float) -> Sums:
    total = {name: torch.zeros_like(part) for name, part in each[0].items()}
    for gradient in each:
        weight = min(1.0, bound / max(distance(gradient), 1e-300))
        for name, part in gradient.items():
            total[name] += weight * part
    return total


def whole(sums: Sums, like: Sums) -> Sums:
    """Sums with zeros for the parameters without contributions."""
    return {name: sums.get(name, torch.zeros_like(part)) for name, part in like.items()}


def table_of(k: int, *, equal: bool) -> Any:
    """(k, WIDTH) a table with equal rows, or with random ones."""
    generator = torch.Generator().manual_seed(k)
    return torch.ones(k, WIDTH) if equal else torch.randn(k, WIDTH, generator=generator)


def sizes(k: int, *, equal: bool) -> list[int]:
    """Every number of records next to equal rows; next to others, first the number of rows."""
    return list(range(1, MOST + 1)) if equal else [k, 4, MOST]


def verdicts(network: Network, k: int, *, equal: bool) -> dict[int, str]:
    """Whether each number of records is trained on, next to one table."""
    attack, found = Attack(network, table_of(k, equal=equal)), {}
    for n in sizes(k, equal=equal):
        if n == 1 and network.verdict == "rejected":
            continue  # a single record is mixed with no other
        try:
            found[n], _sums = attack.verdict(list(range(n)))
        except AssertionError as error:
            rows = f"{k} {'equal' if equal else 'random'} rows"
            raise AssertionError(f"{n} records, {rows}: {error}") from error
    return dict(sorted(found.items()))


@pytest.mark.parametrize("name", NETWORKS)
def test_sums_are_right_next_to_tables_of_every_length(name: str) -> None:
    network = NETWORKS[name]
    for equal, lengths in zip((True, False), network.tables, strict=True):
        for k in lengths:
            found = verdicts(network, k, equal=equal)
            several = {verdict for n, verdict in found.items() if n > 1} - {"fails"}
            branches = network.branches or network.uses_all
            assert len(several) < 2 or branches, f"{k} rows: {found}"
            if network.verdict == "trains":
                assert set(found.values()) == {"trains"}, f"{k} rows: {found}"
            if network.verdict == "rejected":
                assert several == {"rejected"}, f"{k} rows: {found}"


#: Networks that train next to tables of every length, with sums that neighbours move.
TRAINED = [
    name
    for name, network in NETWORKS.items()
    if network.verdict == "trains" and len(network.tables[0]) == MOST
]


@pytest.mark.parametrize("name", TRAINED)
def test_one_record_moves_the_sum_by_one_bound(name: str) -> None:
    # The number of records of one of the two batches, which the sizes of trials do not divide.
    attack = Attack(NETWORKS[name], table_of(MOST - 1, equal=True))
    if attack.records.is_floating_point():
        attack.records[1:3] *= 1e3
        attack.records[4] = -attack.records[0]
    for n in (MOST - 1, MOST):
        rows = list(range(n))
        _, sums = attack.run(attack.records[rows])
        longest = max(distance(attack.alone(row, (0,))) for row in range(MOST + 1))
        for row in (0, 4, n - 1):
            for others, most in (
                ([other for other in rows if other != row], 1.0),
                ([MOST if other == row else other for other in rows], 2.0),
            ):
                _, of_others = attack.run(attack.records[others])
                for bound in (BOUND, longest):
                    moved = distance(sums(bound), of_others(bound)) / bound
                    assert moved <= most + n * ROUNDING, f"{n} records: {moved} bounds"


#: Arguments of both ways of training: one step with all records, and almost no noise.
ASKED: dict[str, Any] = {
    "n_users": 10,
    "noise_multiplier": 2.0**-10,
    "steps": 1,
    "sampling_rate": 1.0,
}


def by_engine(attack: Attack, rows: list[int], bound: float = 1.0) -> Sums:
    """The optimizer's sum in a custom loop."""
    module, x = copy.deepcopy(attack.plain), attack.records[rows]
    _, optimizer, loader = PrivacyEngine(random_state=1).make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.0),
        dataset=torch.utils.data.TensorDataset(x),
        loss_reduction="sum",
        max_grad_norm=bound,
        **ASKED,
    )
    for (batch,) in loader:
        out = module(batch)
        used = used_in_loss(out, len(x), uses_all=attack.network.uses_all)
        losses(out, len(x), used).sum().backward()
        optimizer.step()
    return {name: 10 * p.grad.clone() for name, p in module.named_parameters()}


def by_train(attack: Attack, rows: list[int], bound: float) -> Sums:
    """The change of the weights by one call of ``train``."""
    module, x = copy.deepcopy(attack.plain), attack.records[rows]
    train(
        module,
        lambda out, _target: losses(out, len(out), (0,)).sum(),
        torch.utils.data.TensorDataset(x, torch.zeros(len(x))),
        optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
        average=Last(),
        random_state=1,
        max_grad_norm=bound,
        **ASKED,
    )
    before = dict(attack.plain.named_parameters())
    return {name: 10 * (before[name] - p).detach() for name, p in module.named_parameters()}


@pytest.mark.parametrize("door", [by_engine, by_train])
@pytest.mark.parametrize(
    "name", ["meets: einsum", "meets: cdist", "reads: layer norm", "own: embedding of one row"]
)
def test_one_record_moves_a_training_by_one_bound(name: str, door: Any) -> None:
    attack = Attack(NETWORKS[name], table_of(MOST - 1, equal=True))
    rows = list(range(MOST))
    # A bound that the longest gradient has, so that gradients of another length show as well.
    bound = max(distance(attack.alone(row, (0,))) for row in rows)
    # The noise is the same on both sides, since no draw goes before it.
    assert distance(door(attack, rows, bound), door(attack, rows[:-1], bound)) <= 1.01 * bound


@pytest.mark.parametrize("name", ["mean", "variance", "rows turned", "table"])
def test_loss_of_mixed_records_is_rejected(name: str) -> None:
    attack = Attack(NETWORKS[f"loss of all: {name}"], table_of(MOST, equal=False))
    with pytest.raises(ParameterError):
        by_engine(attack, list(range(MOST)))
