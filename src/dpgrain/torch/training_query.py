"""Queries for training runs: validated requests, calibrated noise, and reading of records."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.inputs.array_blocks import ArrangedRows, LabelledRows
from dpgrain.inputs.guarantees import array_guarantee
from dpgrain.means import ClippedMean, Mean
from dpgrain.means.bands import band_candidates, best
from dpgrain.noise import RandomState
from dpgrain.publishing import Charge, Plan, Promise, Query
from dpgrain.publishing.budget import open_budget
from dpgrain.publishing.draws import CountedSource
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.torch import resumption
from dpgrain.torch.adaptive_clipping import AdaptiveNorm, check_bound
from dpgrain.torch.batches import BlockRows
from dpgrain.torch.block_buffer import buffered_blocks
from dpgrain.torch.checkpoint import RunPlan
from dpgrain.torch.gradient_precision import check_precise
from dpgrain.torch.library import torch
from dpgrain.torch.loader import PrivateLoader
from dpgrain.torch.local_data import LocalData
from dpgrain.torch.optimizer import PrivateOptimizer
from dpgrain.torch.steps import BlockSampler, block_users, create_steps
from dpgrain.torch.training_run import Run
from dpgrain.units import Level, User

Noise = Literal["independent", "banded"]


@dataclass(frozen=True)
class StepPlan:
    """Public numbers of all steps; ``rule`` is None for a fixed clipping bound."""

    promise: Promise
    mean: Mean
    rule: AdaptiveNorm | None = None

    def facts(self, *, named: bool, collated: bool) -> tuple[Fact, ...]:
        """Return the public facts that the run assumes, and its basis."""
        roster = Fact("enrolled-users", (self.mean.n_users,))
        alone = () if named else (Fact("records-only"),)
        follows = () if self.rule is None else (Fact("followed-bounds"),)
        floats = isinstance(self.mean, ClippedMean) and not self.mean.exact
        drawn = (Fact("floating-noise"),) if floats else ()
        rows = (Fact("collated-rows"),) if collated else ()
        rests = (Fact("batches-as-read"), *rows, Fact("nothing-fails"))
        return (roster, *alone, *self.mean.facts, *follows, *rests, *drawn)


@dataclass(frozen=True)
class ClippedOptions:
    """Options of steps with clipped blocks; None if omitted."""

    n_users: int | None
    steps: int | None
    sampling_rate: float | None
    max_grad_norm: float | AdaptiveNorm | None
    noise_multiplier: float | None
    bands: int | None
    sampling: Literal["pairs", "users"]
    elements_per_user: float
    exact: bool
    noise: Noise

    def plan(self, promise: Promise) -> StepPlan:
        """Validate the options, and calibrate the noise."""
        _validate.one_of(("pairs", "users"), sampling=self.sampling)
        bound = self.max_grad_norm
        rule = bound if isinstance(bound, AdaptiveNorm) else None
        numbers: dict[str, Any] = {
            "n_users": self.n_users,
            "clip": check_bound(max_grad_norm=bound if rule is None else rule.start),
            "sampling_rate": _validate.probability(sampling_rate=self.sampling_rate),
            "sampling": self.sampling,
            "blocks_per_user": self.elements_per_user,
            "exact": _validate.boolean(exact=self.exact),
            "rounds": _validate.integer(minimum=1, steps=self.steps),
        }
        bands = self._checked_bands()
        if self.noise_multiplier is not None:
            level, max_elements = _blocks(promise)
            mean = ClippedMean(
                noise_multiplier=self.noise_multiplier,
                level=level,
                max_elements=max_elements,
                bands=bands or 1,
                **numbers,
            )
            return StepPlan(promise, mean, rule)
        numbers |= {
            "epsilon": promise.epsilon,
            "delta": promise.delta,
            "unit": promise.unit,
            "relation": promise.relation,
        }
        if bands is None:
            return StepPlan(promise, best(band_candidates(**numbers)), rule)
        return StepPlan(promise, ClippedMean.calibrate(**numbers, bands=bands), rule)

    def _checked_bands(self) -> int | None:
        """Return the number of bands, or None to choose the best number."""
        _validate.one_of(("independent", "banded"), noise=self.noise)
        if self.noise == "independent":
            if self.bands is not None:
                raise ParameterError(
                    f"bands = {self.bands!r} requires noise='banded'.", name="bands"
                )
            return 1
        if self.exact:
            raise ParameterError(
                "exact must be False with noise='banded', because banded noise is not an integer.",
                name="exact",
            )
        if self.bands is None and self.noise_multiplier is not None:
            raise ParameterError(
                "bands is required with noise='banded' and noise_multiplier; or pass "
                "target_epsilon, which chooses the best number.",
                name="bands",
            )
        return None if self.bands is None else _validate.integer(minimum=1, bands=self.bands)

    def check_omitted(self, **others: object) -> None:
        """Reject public numbers that a private mean already sets."""
        always = ("sampling", "elements_per_user", "exact", "noise")
        numbers = {**vars(self), **others}.items()
        stated = [name for name, value in numbers if name not in always and value is not None]
        if self.noise != "independent":
            stated.append("noise")
        if stated:
            raise ParameterError(
                f"{stated[0]} must be omitted with mean=, which sets all public numbers and the "
                "noise.",
                name=stated[0],
            )


def _plan_of_mean(promise: Promise, mean: Mean) -> StepPlan:
    """Check that a private mean can be published in each step."""
    if isinstance(mean, type) or not (hasattr(mean, "start") and hasattr(mean, "event")):
        raise ParameterError(
            f"mean must be a private mean of dpgrain.means, not {_validate.describe(mean)}.",
            name="mean",
        )
    level, max_elements = _blocks(promise)
    if mean.level != level or getattr(mean, "max_elements", None) != max_elements:
        raise ParameterError(
            f"mean must have the blocks of unit={promise.unit!r}, not blocks of level "
            f"{mean.level!r} with max_elements={getattr(mean, 'max_elements', None)!r}.",
            name="mean",
        )
    if isinstance(mean, ClippedMean):
        check_bound(clip=mean.clip)
    return StepPlan(promise, mean)


def _blocks(promise: Promise) -> tuple[Level, int | None]:
    """Return the level of the clipped blocks, and their number per user if limited."""
    max_elements = promise.unit.max_elements if isinstance(promise.unit, User) else None
    return promise.level if max_elements is None else "element", max_elements


if TYPE_CHECKING:
    from dpgrain.torch.privacy_engine import PrivacyEngine

#: The network, optimizer and loader for an ordinary training loop.
TrainingObjects: TypeAlias = tuple[Any, PrivateOptimizer, PrivateLoader]


@dataclass(frozen=True, eq=False)
class RunRecords:
    """Records and labels as passed by a caller, not read yet."""

    dataset: Any
    labels: LabelledRows
    max_rows: int | None
    collate_fn: Callable[[list[Any]], Any] | None

    def guarantee(self, step_plan: StepPlan) -> Guarantee:
        """Return the guarantee of a run on these records, before it is charged."""
        return array_guarantee(
            step_plan.promise,
            step_plan.mean.event,
            step_plan.facts(
                named=self.labels.users is not None, collated=self.collate_fn is not None
            ),
            users=self.labels.users,
            elements=self.labels.elements,
        )

    @cached_property
    def rows(self) -> ArrangedRows:
        """Rows in blocks; labels are read once."""
        return self.labels.arranged()

    @cached_property
    def data(self) -> LocalData:
        """Records and labels of this process, in blocks."""
        blocks = BlockRows.arrange(self.rows)
        return LocalData(self.dataset, self.labels.users, self.labels.elements, blocks)

    def start_sampling(self, run: Run, step_plan: StepPlan, source: CountedSource) -> BlockSampler:
        """Read the labels, start a run, and return the sampler of each step's blocks."""
        owners = block_users(step_plan.mean, self.rows, self.labels.users)
        steps, draws = create_steps(
            step_plan.mean,
            step_plan.rule,
            run.parameters,
            source,
            self.data.blocks.by_size(),
            owners,
        )
        run.start(steps)
        return draws

    def loader(self, run: Run, draws: BlockSampler) -> PrivateLoader:
        """Return the loader of a started run."""
        most = run.max_batch_rows(self.max_rows)
        return PrivateLoader(run, self.dataset, self.data.blocks, draws, most, self.collate_fn)


@dataclass(frozen=True, eq=False, repr=False)
class RunQuery(Query[TrainingObjects]):
    """Query for a training run, created by :meth:`PrivacyEngine.query`."""

    promise: Promise
    options: ClippedOptions | Mean
    engine: PrivacyEngine
    network: Run
    records: RunRecords
    loss_reduction: Literal["mean", "sum"]
    random_state: RandomState = None

    def __post_init__(self) -> None:
        self.check_unit(self.records.labels.unit)

    @cached_property
    def step_plan(self) -> StepPlan:
        """Public numbers of all steps."""
        if isinstance(self.options, ClippedOptions):
            return self.options.plan(self.promise)
        return _plan_of_mean(self.promise, self.options)

    @property
    def plan(self) -> Plan:
        """Noise of all steps."""
        self.engine.check_new()
        mean = self.step_plan.mean
        return Plan(
            self.records.guarantee(self.step_plan), mean.n_users, parts={"steps": mean.event}
        )

    def charged(self, charge: Callable[[], Guarantee]) -> Guarantee:
        """Charge the run once, in the first of its processes."""
        return charged_once(self.network, self.step_plan, self.records, charge)

    def run(self, charge: Charge) -> TrainingObjects:
        """Group records into blocks, and prepare the network for training."""
        network, records, step_plan = self.network, self.records, self.step_plan
        source = charge.rounds(step_plan.mean.event, outlives=True)
        draws = charge.read(lambda: records.start_sampling(network, step_plan, source))
        plan = self._run_plan(charge.guarantee)
        self.engine.attach(network, charge.guarantee, records.data, draws, source, plan)
        return network.module, PrivateOptimizer(network), records.loader(network, draws)

    def _run_plan(self, guarantee: Guarantee) -> RunPlan | None:
        """Return the public plan of a new run; None if it cannot be resumed elsewhere."""
        step_plan, labels = self.step_plan, self.records.labels
        if not isinstance(step_plan.mean, ClippedMean):
            return None
        unit = step_plan.promise.unit
        return RunPlan(
            secrets.token_hex(8),
            unit.level,
            unit.max_elements if isinstance(unit, User) else None,
            step_plan.mean,
            step_plan.rule,
            self.loss_reduction,
            guarantee,
            resumption.labels_name(labels.users),
            resumption.labels_name(labels.elements),
            LocalData.key().hex(),
        )


def _check_processes(run: Run, step_plan: StepPlan, data: LocalData) -> None:
    """Reject a run, in all processes, if their records or numbers differ."""
    processes = run.processes
    # The key is not stored, so the hashes reveal nothing after the run has begun.
    processes.check_equal(
        module=[tuple(parameter.shape) for parameter in run.parameters],
        # It determines whether a process adds gradients in a buffer, whose sums differ in shape.
        device_memory=buffered_blocks(run.parameters),
        noise_multiplier=repr(step_plan.mean),
        **data.hashes(processes.from_first(LocalData.key)),
    )


def charged_once(
    run: Run, step_plan: StepPlan, records: RunRecords, charge: Callable[[], Guarantee]
) -> Guarantee:
    """Charge a run in the first process, and open budgets in the others."""
    processes = run.processes
    if not processes.is_single:
        _check_processes(run, step_plan, records.data)
    charged = processes.from_first(charge)
    if not processes.is_first and (budget := open_budget()) is not None:
        budget.charge(charged)
    return charged


def check_dataset(dataset: Any) -> None:
    """Reject iterable data sets and other objects without indices."""
    if isinstance(dataset, torch.utils.data.DataLoader):
        raise ParameterError(
            "dataset must be the loader's dataset, not a DataLoader with a "
            f"{type(dataset.sampler).__name__}, because only accounted draws may "
            "choose the records of a batch; pass loader.dataset.",
            name="dataset",
        )
    if isinstance(dataset, torch.utils.data.Sampler):
        raise ParameterError(
            f"dataset must be a data set, not a {type(dataset).__name__}, because only draws that "
            "are accounted for may choose the records of a batch.",
            name="dataset",
        )
    if not _is_indexable(dataset):
        raise ParameterError(
            "dataset must return records by index, with __getitem__ and __len__, unlike a "
            f"{type(dataset).__name__}.",
            name="dataset",
        )


def _is_indexable(dataset: Any) -> bool:
    """Return True if records are accessible by index and countable."""
    iterable = isinstance(dataset, torch.utils.data.IterableDataset)
    if iterable or not hasattr(dataset, "__getitem__"):
        return False
    try:
        len(dataset)
    except TypeError:
        # Objects without a length, such as zero-dimensional arrays.
        return False
    return True


def check_module(module: Any) -> None:
    """Reject objects other than networks."""
    if not isinstance(module, torch.nn.Module):
        raise ParameterError(
            f"module must be a torch.nn.Module, not {_validate.describe(module)}.", name="module"
        )


def check_optimizer(module: Any, optimizer: Any) -> None:
    """Reject an optimizer unless it has exactly the trained parameters."""
    check_module(module)
    plain = isinstance(optimizer, torch.optim.Optimizer)
    if not plain or isinstance(optimizer, PrivateOptimizer):
        raise ParameterError(
            f"optimizer must be a plain optimizer of torch.optim, not {_validate.describe(optimizer)}.",
            name="optimizer",
        )
    trained = {id(p): name for name, p in module.named_parameters() if p.requires_grad}
    data = {id(p) for group in optimizer.param_groups for p in group["params"]}
    frozen = {id(p) for p in module.parameters() if not p.requires_grad}
    if data - set(trained) - frozen:
        raise ParameterError(
            "optimizer must contain only parameters of the module, because others would be "
            "neither clipped nor accounted for.",
            name="optimizer",
        )
    missing = sorted(name for key, name in trained.items() if key not in data)
    if missing or not trained:
        which = f"{missing[0]!r}, which is trained" if missing else "a parameter that is trained"
        raise ParameterError(
            f"optimizer must contain {which}; or freeze the others with requires_grad_(False).",
            name="optimizer",
        )


def check_loop(loss_reduction: str, max_rows: int | None, collate_fn: object) -> None:
    """Reject invalid options of the training loop."""
    check_precise()
    _validate.one_of(("mean", "sum"), loss_reduction=loss_reduction)
    if max_rows is not None:
        _validate.integer(minimum=1, max_rows=max_rows)
    if collate_fn is not None:
        _validate.function(collate_fn=collate_fn)


def layer_types(records_apart: object) -> tuple[type, ...]:
    """Return validated types of layers."""
    types = tuple(_validate.sequence(records_apart=records_apart))
    for kind in types:
        if not (isinstance(kind, type) and issubclass(kind, torch.nn.Module)):
            raise ParameterError(
                "records_apart must be a list of types of layers, such as [MyLayer], not of "
                f"{_validate.describe(kind)}.",
                name="records_apart",
            )
    return cast("tuple[type, ...]", types)
