"""Queries for training runs: calibrated noise, and reading of records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dpgrain.inputs.blocks import BlockRows, LabelledRows
from dpgrain.inputs.guarantees import array_guarantee
from dpgrain.noise import RandomState, Source
from dpgrain.publishing import Charge, Planned, Promise, Query
from dpgrain.publishing.budget import open_budget
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.torch import resuming
from dpgrain.torch.asked import Asked
from dpgrain.torch.batches import Blocks
from dpgrain.torch.held import Held
from dpgrain.torch.loader import PrivateLoader
from dpgrain.torch.optimizer import PrivateOptimizer
from dpgrain.torch.run import Run
from dpgrain.torch.steps import Draws, owners_of, steps_of

if TYPE_CHECKING:
    from dpgrain.torch.engine import PrivacyEngine

#: The network, optimizer and loader for an ordinary training loop.
Made: TypeAlias = tuple[Any, PrivateOptimizer, PrivateLoader]


@dataclass(frozen=True, eq=False)
class Passed:
    """Records and labels as passed by a caller, not read yet."""

    dataset: Any
    whose: LabelledRows
    max_rows: int | None
    collate_fn: Callable[[list[Any]], Any] | None

    def promised(self, asked: Asked) -> Guarantee:
        """Return the guarantee of a run on these records, before it is charged."""
        return array_guarantee(
            asked.promise,
            asked.mean.event,
            asked.facts(named=self.whose.users is not None, collated=self.collate_fn is not None),
            private=True,
            users=self.whose.users,
            elements=self.whose.elements,
        )

    @cached_property
    def rows(self) -> BlockRows:
        """Rows in blocks; labels are read once."""
        return self.whose.arranged()

    @cached_property
    def held(self) -> Held:
        """Records and labels of this process, in blocks."""
        blocks = Blocks.arrange(self.rows)
        return Held(self.dataset, self.whose.users, self.whose.elements, blocks)

    def started(self, run: Run, asked: Asked, source: Source) -> Draws:
        """Read the labels, start a run, and return the sampler of each step's blocks."""
        owners = owners_of(asked.mean, self.rows, self.whose.users)
        steps, draws = steps_of(asked, run.parameters, source, self.held.blocks.by_size(), owners)
        run.start(steps)
        return draws

    def loader(self, run: Run, draws: Draws) -> PrivateLoader:
        """Return the loader of a started run."""
        most = run.most_rows(self.max_rows)
        return PrivateLoader(run, self.dataset, self.held.blocks, draws, most, self.collate_fn)


@dataclass(frozen=True, eq=False, repr=False)
class RunQuery(Query[Made]):
    """Query for a training run, created by :meth:`PrivacyEngine.query`."""

    promise: Promise
    ask: Callable[[Promise], Asked]
    engine: PrivacyEngine
    network: Run
    passed: Passed
    loss_reduction: Literal["mean", "sum"]
    random_state: RandomState = None

    def __post_init__(self) -> None:
        self.check_unit(self.passed.whose.unit)

    @cached_property
    def asked(self) -> Asked:
        """Public numbers of all steps."""
        return self.ask(self.promise)

    @property
    def plan(self) -> Planned:
        """Noise of all steps."""
        self.engine.check_new()
        return Planned(self.passed.promised(self.asked), self.asked.mean.n_users)

    def charged(self, charge: Callable[[], Guarantee]) -> Guarantee:
        """Charge the run once, in the first of its processes."""
        return charged_once(self.network, self.asked, self.passed, charge)

    def run(self, charge: Charge) -> Made:
        """Group records into blocks, and prepare the network for training."""
        network, passed, asked = self.network, self.passed, self.asked
        source = charge.lend(asked.mean.event)
        draws = charge.read(lambda: passed.started(network, asked, source))
        plan = resuming.plan_of(
            asked, charge.guarantee, self.loss_reduction, passed.whose.users, passed.whose.elements
        )
        self.engine.begin(network, charge.guarantee, passed.held, draws, source, plan)
        return network.module, PrivateOptimizer(network), passed.loader(network, draws)


def _check_alike(run: Run, asked: Asked, held: Held) -> None:
    """Reject a run, in all processes, if their records or numbers differ."""
    processes = run.processes
    # The key is not stored, so the hashes reveal nothing after the run has begun.
    processes.check_alike(
        module=[tuple(parameter.shape) for parameter in run.parameters],
        noise_multiplier=repr(asked.mean),
        **held.hashes(processes.told(Held.key)),
    )


def charged_once(
    run: Run, asked: Asked, passed: Passed, charge: Callable[[], Guarantee]
) -> Guarantee:
    """Charge a run in the first process, and open budgets in the others.

    If there are several processes, their records are read first, to compare them.
    """
    processes = run.processes
    if not processes.alone:
        _check_alike(run, asked, passed.held)
    charged = processes.told(charge)
    if not processes.first and (budget := open_budget()) is not None:
        budget.charge(charged)
    return charged
