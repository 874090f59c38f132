"""The engine that makes a network, an optimizer and a data set private, and tells the promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from dpgrain import _validate
from dpgrain.arrays.blocks import arrange
from dpgrain.arrays.guarantees import guarantee_of
from dpgrain.errors import ParameterError
from dpgrain.means import ClippedMean
from dpgrain.noise import RandomState, source_of
from dpgrain.publishing import Promise, before_publishing
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.torch.batches import Blocks
from dpgrain.torch.library import torch
from dpgrain.torch.loader import PrivateLoader
from dpgrain.torch.optimizer import PrivateOptimizer
from dpgrain.torch.run import Run
from dpgrain.units import Relation, Unit, User

# The bounds between which squares in single precision neither overflow nor vanish where it matters.
_SMALLEST_BOUND, _LARGEST_BOUND = 1e-9, 1e9
_APART = "each record's loss, and each layer, treats the record apart from others"
_FLOAT_NOISE = "noise is drawn in floating point, from a generator with a secret seed"


class PrivacyEngine:
    """Private training of one network, with a promise for records, elements or users.

    Args:
        unit: what is protected: ``Record()``, ``Element()``, ``User()`` (the default), each of which is
            one block; or ``User(max_elements=M)``, whose first M elements are blocks.
        relation: the neighbouring relation.
        random_state: a seed for tests and research, which makes the run not private.

    Raises:
        ParameterError: if the unit or the relation is none.

    Formal guarantee: that of :attr:`guarantee`, for any records, if the loss of the training loop is a
    mean or a sum over records of what depends on each record alone. Source: element-level paper,
    Algorithm 1 and (15), with pairs drawn instead of users; docs/theory.md, "Gradient steps of
    networks".

    >>> import torch
    >>> data = torch.utils.data.TensorDataset(torch.ones(60, 3), torch.ones(60, 1))
    >>> net, people = torch.nn.Linear(3, 1), [row // 3 for row in range(60)]
    >>> engine = PrivacyEngine(unit=User())
    >>> net, optimizer, loader = engine.make_private(
    ...     module=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), dataset=data,
    ...     users=people, n_users=20, noise_multiplier=2.0, steps=9, sampling_rate=0.5,
    ...     max_grad_norm=1.0)
    >>> for x, y in loader:
    ...     optimizer.zero_grad()
    ...     torch.nn.functional.mse_loss(net(x), y).backward()
    ...     _ = optimizer.step()
    >>> round(engine.get_epsilon(1e-6), 2)
    4.28
    """

    def __init__(
        self,
        *,
        unit: Unit | None = None,
        relation: Relation = "zero_out",
        random_state: RandomState = None,
    ) -> None:
        self._unit: Unit = User() if unit is None else unit
        # Making a promise checks the unit and the relation.
        _ = Promise(self._unit, 1.0, 1e-6, relation)
        self._relation, self._source = relation, source_of(random_state)
        self._guarantee: Guarantee | None = None
        self._mean: ClippedMean | None = None

    def make_private(
        self,
        *,
        module: Any,
        optimizer: Any,
        dataset: Any,
        n_users: int,
        steps: int,
        sampling_rate: float,
        max_grad_norm: float,
        users: Any = None,
        elements: Any = None,
        noise_multiplier: float | None = None,
        target_epsilon: float | None = None,
        target_delta: float = 1e-6,
        share: float | None = None,
        sampling: Literal["pairs", "users"] = "pairs",
        elements_per_user: float = 1.0,
        loss_reduction: Literal["mean", "sum"] = "mean",
        max_rows: int | None = None,
        exact: bool = False,
        records_apart: Sequence[type] = (),
        example: Any = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> tuple[Any, PrivateOptimizer, PrivateLoader]:
        """Charge a training run, and return what an ordinary training loop needs.

        Args:
            module: the network, which is returned with hooks that the last step takes off.
            optimizer: a PyTorch optimizer of all parameters that are trained.
            dataset: the records by place, a map-style data set.
            n_users: the public size of the roster by which sums are divided, which is never counted.
            steps: how many steps are made; all are charged before the first batch.
            sampling_rate: the public probability q that a block, or a user, is in a step.
            max_grad_norm: the clipping bound of a block's mean gradient, l2 over all parameters.
            users: (records,) whose each record is; None for one user per record.
            elements: (records,) the cell of each record, by a public partition.
            noise_multiplier: noise sd ÷ clipping bound; or in its place
            target_epsilon: the promised ε of the whole run.
            target_delta: the δ of the promise.
            share: a share of the open budget, in place of ε and δ.
            sampling: ``"pairs"`` draws each block on its own, ``"users"`` a user with all blocks.
            elements_per_user: the public number of blocks per user that sums are divided by.
            loss_reduction: how the loop's loss adds up the losses of records. A mean over all tokens of
                a batch is not a mean over records where records have different numbers of them:
                average each record's tokens first.
            max_rows: the most rows of a batch. A step with more has several batches, of whole blocks;
                the gradient of a block with more rows is added up before it is clipped.
            exact: True hands out each block by itself, truncates it to a grid and adds integers, with
                integer noise; no rounding is left out then, and it is slow.
            records_apart: types of layers of one's own that take one tensor and treat records apart.
            example: what the module is called with for a few made-up records: a tensor, a tuple, or a
                dictionary of named inputs. On these it is tried, before anything is charged, on whether
                it mixes records; without them, on random numbers in the shapes of the first batch.
            collate_fn: makes a batch of a list of records; PyTorch's by default.

        Returns:
            the module, the optimizer and the loader.

        Raises:
            ParameterError: if a parameter is out of range, a layer mixes records or is not known, or
                the open budget does not hold the run; nothing is charged then.
        """
        if self._guarantee is not None:
            raise ParameterError("an engine has one run: make another PrivacyEngine for another.")
        check_dataset(dataset)
        _check_optimizer(module, optimizer)
        _check_numbers(max_grad_norm, sampling, loss_reduction, max_rows)
        promise = self._promise(noise_multiplier, target_epsilon, target_delta, share)
        numbers: dict[str, Any] = {
            "n_users": n_users,
            "clip": max_grad_norm,
            "sampling_rate": sampling_rate,
            "sampling": sampling,
            "blocks_per_user": elements_per_user,
            "exact": _validate.truth(exact=exact),
        }
        rounds = _validate.integer(minimum=1, steps=steps)
        if noise_multiplier is None:
            promise = promise.settled(lambda trial: _calibrated(trial, rounds, numbers).event)
            mean = _calibrated(promise, rounds, numbers)
        else:
            mean = _stated(promise, noise_multiplier, rounds, numbers)
        rows = arrange(len(dataset), users, elements, self._unit)
        run = Run(
            module,
            optimizer,
            mean,
            apart=tuple(records_apart),
            loss_reduction=loss_reduction,
            source=self._source,
        )
        guarantee = guarantee_of(
            promise,
            mean.event,
            _facts(mean),
            private=self._source.private,
            users=users,
            elements=elements,
        )
        try:
            if example is not None:
                run.try_on(example)
            self._guarantee = before_publishing(
                guarantee, n_users=mean.n_users, budget=promise.budget
            )
        except BaseException:
            run.abandon()
            raise
        self._mean = mean
        draws = mean.start(self._source, rows.owners)
        loader = PrivateLoader(run, dataset, Blocks.arrange(rows), draws, max_rows, collate_fn)
        return module, PrivateOptimizer(run), loader

    @property
    def guarantee(self) -> Guarantee:
        """The promise of all steps together, which are charged whether they are made or not.

        Raises:
            ParameterError: if nothing was made private yet.
        """
        if self._guarantee is None:
            raise ParameterError("this engine has no run yet: call make_private first.")
        return self._guarantee

    @property
    def mean(self) -> ClippedMean:
        """The public numbers of a step: clipping bound, noise, rate, divisor.

        Raises:
            ParameterError: if nothing was made private yet.
        """
        if self._mean is None:
            raise ParameterError("this engine has no run yet: call make_private first.")
        return self._mean

    def get_epsilon(
        self,
        delta: float | None = None,
        *,
        units: int = 1,
        unit: Unit | None = None,
        relation: Relation | None = None,
    ) -> float:
        """Return ε of all steps, as a point of the curve over units of one person.

        Args:
            delta: the δ at which ε is asked for; by default that of the promise.
            units: how many units of one person differ.
            unit: the unit; by default the engine's own. The same run answers for others, such as
                ``Record()`` or ``User(max_elements=40)``.
            relation: the neighbouring relation; by default the engine's own.

        Raises:
            ParameterError: if an argument is out of range, or nothing was made private yet.

        A run that ends early has no smaller ε here: when to stop may follow from what was seen.
        """
        return self.guarantee.epsilon(delta, units=units, unit=unit, relation=relation)

    def _promise(
        self,
        noise_multiplier: float | None,
        epsilon: float | None,
        delta: float,
        share: float | None,
    ) -> Promise:
        """Return what the run is asked to keep, of which ε is not used where noise is stated."""
        stated = [value for value in (noise_multiplier, epsilon, share) if value is not None]
        if len(stated) != 1:
            raise ParameterError(
                "one of noise_multiplier, target_epsilon and share must be given, not "
                f"{len(stated)} of them."
            )
        _validate.delta(allow_zero=False, target_delta=delta)
        if epsilon is not None:
            _validate.positive(target_epsilon=epsilon)
        at = 1.0 if noise_multiplier is not None else epsilon
        return Promise.of(self._unit, at, delta, self._relation, share)


def _calibrated(promise: Promise, rounds: int, numbers: dict[str, Any]) -> ClippedMean:
    """Return the public numbers of a run with the least noise that keeps a promise."""
    return ClippedMean.calibrate(
        epsilon=promise.epsilon,
        delta=promise.delta,
        unit=promise.unit,
        relation=promise.relation,
        rounds=rounds,
        **numbers,
    )


def _stated(
    promise: Promise, noise_multiplier: float, rounds: int, numbers: dict[str, Any]
) -> ClippedMean:
    """Return the public numbers of a run with stated noise."""
    kept = promise.unit.max_elements if isinstance(promise.unit, User) else None
    level = "element" if kept is not None else promise.level
    return ClippedMean(
        noise_multiplier=noise_multiplier,
        rounds=rounds,
        level=level,
        max_elements=kept,
        **numbers,
    )


def _facts(mean: ClippedMean) -> tuple[Fact | str, ...]:
    """Return what the run takes as public, and what it rests on, in words."""
    facts: tuple[Fact | str, ...] = (Fact("a roster of {:,} users", (mean.n_users,)), *mean.facts)
    return (*facts, _APART) if mean.exact else (*facts, _APART, _FLOAT_NOISE)


def check_dataset(dataset: Any) -> None:
    """Refuse what draws batches by itself, or has no places."""
    if isinstance(dataset, torch.utils.data.DataLoader):
        raise ParameterError(
            f"dataset must be the loader's dataset, not a DataLoader with a "
            f"{type(dataset.sampler).__name__}: only the draws that are accounted for may choose who "
            "is in a batch, so pass loader.dataset.",
            name="dataset",
        )
    if isinstance(dataset, torch.utils.data.Sampler):
        raise ParameterError(
            f"dataset must be a data set, not a {type(dataset).__name__}: only the draws that are "
            "accounted for may choose who is in a batch.",
            name="dataset",
        )
    iterable = isinstance(dataset, torch.utils.data.IterableDataset)
    if iterable or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise ParameterError(
            f"dataset must give records by place, with __getitem__ and __len__, not be a "
            f"{type(dataset).__name__}.",
            name="dataset",
        )


def _check_optimizer(module: Any, optimizer: Any) -> None:
    """Refuse an optimizer that has other parameters than those that are trained."""
    if not isinstance(module, torch.nn.Module):
        raise ParameterError(
            f"module must be a torch.nn.Module, not {_validate.said(module)}.", name="module"
        )
    plain = isinstance(optimizer, torch.optim.Optimizer)
    if not plain or isinstance(optimizer, PrivateOptimizer):
        raise ParameterError(
            f"optimizer must be a plain optimizer of torch.optim, not {_validate.said(optimizer)}.",
            name="optimizer",
        )
    trained = {id(p): name for name, p in module.named_parameters() if p.requires_grad}
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    frozen = {id(p) for p in module.parameters() if not p.requires_grad}
    if held - set(trained) - frozen:
        raise ParameterError(
            "optimizer must hold parameters of the module alone: others would be neither clipped nor "
            "accounted for.",
            name="optimizer",
        )
    missing = sorted(name for key, name in trained.items() if key not in held)
    if missing or not trained:
        which = f"{missing[0]!r}, which is trained" if missing else "a parameter that is trained"
        raise ParameterError(
            f"optimizer must hold {which}; or freeze the others with requires_grad_(False).",
            name="optimizer",
        )


def _check_numbers(
    max_grad_norm: float, sampling: str, loss_reduction: str, max_rows: int | None
) -> None:
    """Refuse numbers and words that are out of range."""
    bound = _validate.positive(max_grad_norm=max_grad_norm)
    if not _SMALLEST_BOUND <= bound <= _LARGEST_BOUND:
        raise ParameterError(
            f"max_grad_norm must lie between {_SMALLEST_BOUND:g} and {_LARGEST_BOUND:g}, not "
            f"{max_grad_norm!r}; scale the loss.",
            name="max_grad_norm",
        )
    _validate.one_of(("pairs", "users"), sampling=sampling)
    _validate.one_of(("mean", "sum"), loss_reduction=loss_reduction)
    if max_rows is not None:
        _validate.integer(minimum=1, max_rows=max_rows)
