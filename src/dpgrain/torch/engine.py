"""The engine that makes a network, an optimizer and a data set private, and reports the promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

from dpgrain import _validate
from dpgrain.arrays.blocks import Unread, unit_of
from dpgrain.errors import ParameterError
from dpgrain.means import Mean
from dpgrain.noise import RandomState, Source
from dpgrain.publishing import Promise, Query
from dpgrain.publishing.door import published
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.publish import before_resuming
from dpgrain.torch import resuming
from dpgrain.torch.adaptive import AdaptiveNorm
from dpgrain.torch.asked import Asked, Numbers, clipped_run, given_mean
from dpgrain.torch.checkpoint import Checkpoint, Plan
from dpgrain.torch.elsewhere import named_here, refused
from dpgrain.torch.held import Held
from dpgrain.torch.library import torch
from dpgrain.torch.loader import PrivateLoader
from dpgrain.torch.optimizer import PrivateOptimizer
from dpgrain.torch.precision import check_precise
from dpgrain.torch.processes import Processes
from dpgrain.torch.query import Made, Passed, RunQuery, charged_once
from dpgrain.torch.run import Run
from dpgrain.torch.steps import Draws, check_vectors
from dpgrain.units import OWN_UNIT, Relation, Unit, User


class PrivacyEngine:
    """Private training of one network, with a promise for records, elements or users.

    Args:
        unit: what is protected: ``Record()``, ``Element()``, ``User()``, each of which is one block; or
            ``User(max_elements=M)``, whose first M elements are blocks. By default ``User()`` where
            users are passed, and ``Record()`` where they are not.
        relation: the neighbouring relation.
        random_state: a seed for tests and research, which makes the run not private.

    Raises:
        ParameterError: if the unit or the relation is none.

    Formal guarantee: that of :attr:`guarantee`, for any records, if the loss of the training loop is a
    mean or a sum over records of what depends on each record alone, no record makes reading it, the
    network or the loss fail, and no decision of the loop follows from outputs or losses, which have no
    noise: learning rates, the number of steps and what is published are fixed or follow from published
    numbers. Source: element-level paper, Algorithm 1 and (15), with pairs drawn
    instead of users; docs/theory, "Gradient steps of networks".

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
        self._unit = unit
        # Making a promise checks the unit and the relation.
        _ = Promise(User() if unit is None else unit, 1.0, 1e-6, relation)
        self._relation, self._random_state = relation, random_state
        self._guarantee: Guarantee | None = None
        self._run: Run | None = None
        self._plan: Plan | None = None
        self._draws: Draws
        self._source: Source
        self._held: Held
        self._extra: Mapping[str, Any] = {}

    @named_here
    def query(
        self,
        *,
        module: Any,
        optimizer: Any,
        dataset: Any,
        n_users: int | None = None,
        steps: int | None = None,
        sampling_rate: float | None = None,
        max_grad_norm: float | AdaptiveNorm | None = None,
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
        noise: Literal["independent", "banded"] = "independent",
        bands: int | None = None,
        mean: Mean | None = None,
        records_apart: Sequence[type] = (),
        example: Any = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> Query[Made]:
        """Charge a training run, and return what an ordinary training loop needs.

        ``query`` of the same arguments returns the run as a query, which a plan may hold.

        Args:
            module: the network, which is returned with hooks that the last step takes off. Of one in
                ``DistributedDataParallel``, which all its processes train together, the network itself
                is returned.
            optimizer: a PyTorch optimizer of all parameters that are trained.
            dataset: the records by place, a map-style data set.
            n_users: the public size of the roster by which sums are divided, which is never counted.
            steps: how many steps are made; all are charged before the first batch.
            sampling_rate: the public probability q that a block, or a user, is in a step.
            max_grad_norm: the clipping bound of a block's mean gradient, l2 over all parameters; or an
                ``AdaptiveNorm``, which follows a quantile of them.
            users: (records,) whose each record is; None where records are protected.
            elements: (records,) the cell of each record, by a public partition.
            noise_multiplier: noise sd ÷ clipping bound; or in its place
            target_epsilon: the promised ε of the whole run.
            target_delta: the δ of the promise.
            share: a share of the open budget, in place of ε and δ.
            sampling: ``"pairs"`` draws each block on its own, ``"users"`` a user with all blocks.
            elements_per_user: the public number of blocks per user that sums are divided by.
            loss_reduction: how the loop's loss adds up the losses of records. A mean over all tokens of
                a batch is not a mean over records where records have different numbers of them:
                average each record's tokens first. Under half precision it must be ``"sum"``, and the
                loop's loss a sum.
            max_rows: the most rows of a batch. A step with more has several batches, of whole blocks;
                the gradient of a block with more rows is added up before it is clipped.
            exact: True hands out each block by itself, truncates it to a grid and adds integers, with
                integer noise; no rounding is left out then, and it is slow.
            noise: ``"banded"`` makes noise that cancels over steps, and draws from random parts of the
                users in turn; it pays for small rates (:func:`dpgrain.planning.plan_bands`).
            bands: the number of bands and parts; by default the best for ``target_epsilon``.
            mean: any private mean of :mod:`dpgrain.means` of one vector per block, for small networks,
                in place of all public numbers above and of noise. Each step then reads every block, one
                by one. A mean that publishes that it stops ends the loader.
            records_apart: types of layers of one's own that take one tensor and treat records apart.
            example: what the module is called with for a few made-up records: a tensor, a tuple, or a
                dictionary of named inputs. On these it is tried, before anything is charged, on whether
                it mixes records and whether their gradients can be clipped; without them, on random
                numbers in the shapes of the first batch, after the charge.
            collate_fn: makes a batch of a list of records, a row of each from this record alone, in
                their order, which the guarantee then rests on; PyTorch's by default.

        Returns:
            the module, the optimizer and the loader. The loader begins the generators of PyTorch,
            NumPy and Python anew for each batch, with seeds that nobody knows, also where the loop
            has seeded them: dropout would otherwise follow from a record's place among others.

        Raises:
            ParameterError: if a parameter is out of range, users are left out where more than records
                is protected, a layer mixes records or is not known, the optimizer fails in a step of
                made-up blocks, or the open budget does not hold the run; nothing is charged then.
        """
        self.check_new()
        unit = unit_of(self._unit, users)
        module, processes = Processes.of(module)
        check_dataset(dataset)
        _check_optimizer(module, optimizer)
        _check_loop(loss_reduction, max_rows, collate_fn)
        numbers = Numbers(
            n_users,
            steps,
            sampling_rate,
            max_grad_norm,
            noise_multiplier,
            target_epsilon,
            share,
            bands,
        )
        ask: Callable[[Promise], Asked]
        if mean is None:
            promise = self._promise(unit, noise_multiplier, target_epsilon, target_delta, share)
            ask = partial(
                clipped_run,
                numbers=numbers,
                sampling=sampling,
                elements_per_user=elements_per_user,
                exact=exact,
                noise=noise,
            )
        else:
            promise = Promise(unit, 1.0, target_delta, self._relation)
            ask = partial(given_mean, mean=mean, numbers=numbers, noise=noise)
        places = getattr(mean, "fresh", False)
        whose = Unread.of(len(dataset), users, elements, unit, places=places)
        run = Run(
            module,
            optimizer,
            apart=_types(records_apart),
            loss_reduction=loss_reduction,
            processes=processes,
            private=self._random_state is None,
        )
        query = RunQuery(
            promise,
            ask,
            self,
            run,
            Passed(dataset, whose, max_rows, collate_fn),
            loss_reduction,
            self._random_state,
        )
        if promise.share is None:
            # Wrong numbers are refused here, and not when the run is charged.
            check_vectors(query.asked.mean, run.parameters, alone=processes.alone)
        if example is not None:
            run.try_on(example)
        return query

    make_private = published(query, "make_private")

    def __getattr__(self, name: str) -> NoReturn:
        raise refused(name)

    def check_new(self) -> None:
        """Refuse a second run.

        Raises:
            ParameterError: if the engine has a run.
        """
        if self._run is not None:
            raise ParameterError(
                "an engine has only one run; create another PrivacyEngine for another run."
            )

    def begin(
        self,
        run: Run,
        guarantee: Guarantee,
        held: Held,
        draws: Draws,
        source: Source,
        plan: Plan | None,
    ) -> None:
        """Take a charged run as the engine's own.

        Args:
            run: the run.
            guarantee: its promise, charged.
            held: the records and labels of this process.
            draws: what draws the blocks of each step.
            source: where noise comes from.
            plan: its public numbers; None for a run that cannot go on elsewhere.
        """
        self._run, self._guarantee, self._plan = run, guarantee, plan
        self._held, self._draws, self._source = held, draws, source

    def save(self, path: str | Path, *, extra: Mapping[str, Any] | None = None) -> None:
        """Write a checkpoint, from which :meth:`resume` goes on after the process has ended.

        Args:
            path: the file, which is written whole or not at all. A file beside it is the journal of the
                run, which gets a dot for each step from then on, before its noise is drawn; all
                checkpoints of a run must lie in one folder.
            extra: what else the loop needs to go on, such as the state of a scheduler: tensors,
                numbers, text, lists and dicts.

        Raises:
            ParameterError: if the run is inside a step, has its journal in another folder, or goes on
                in the process from which this one was forked.
            DataError: if a file cannot be written.

        The file of a private run holds what was published, and nothing that only the curator may know.
        The journal has a hash of users and elements, by which :meth:`resume` knows them; its key is in
        the checkpoint. Neither file alone says anything of the data; both together show whether a
        guess of all labels is right, so the journal stays with whoever holds the data. Of several
        processes the first one writes.
        """
        run, path, added = self._begun(), _validate.path(path=path), _validate.mapping(extra=extra)
        with run.between():
            if run.processes.first:
                resuming.save(run, self._plan, self._held, self._source, self._draws, path, added)

    @classmethod
    def resume(
        cls,
        path: str | Path,
        *,
        module: Any,
        optimizer: Any,
        dataset: Any,
        users: Any = None,
        elements: Any = None,
        max_rows: int | None = None,
        records_apart: Sequence[type] = (),
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> tuple[PrivacyEngine, Any, PrivateOptimizer, PrivateLoader]:
        """Go on with a run from its checkpoint, in another process or in the same one.

        Args:
            path: the file that :meth:`save` has written.
            module: a network like the one that was saved, whose parameters are replaced.
            optimizer: a PyTorch optimizer like the one that was saved, whose state is replaced.
            dataset: the records by place, of the same people.
            users: as in :meth:`make_private`.
            elements: as in :meth:`make_private`.
            max_rows: as in :meth:`make_private`.
            records_apart: as in :meth:`make_private`.
            collate_fn: as in :meth:`make_private`.

        Returns:
            an engine with the run, the module, the optimizer and the loader of the steps that are left.

        Raises:
            ParameterError: if module, optimizer, labels or the number of records are others than when
                the run began, or the open budget does not hold the run.
            DataError: if the checkpoint, or the journal beside it, is missing or damaged.

        A ledger that has charged the run is not charged again; another one, or a budget that is open,
        is charged for all steps before a label is read, also where labels are refused then. Steps that
        were begun after the checkpoint are not made again, since they may have been seen: the run is
        shorter by them. A seeded run, which is not private, makes them again as they were.

        Formal guarantee: that of the run, for all that any process has published of it, however often
        it went on from which checkpoint, whoever decided to; if the journal on the disk is that of all
        these processes, and no older copy of it. Source: docs/theory, "Gradient steps of networks".

        >>> import tempfile, torch
        >>> data = torch.utils.data.TensorDataset(torch.ones(60, 3), torch.ones(60, 1))
        >>> def network():
        ...     net = torch.nn.Linear(3, 1)
        ...     return {"module": net, "optimizer": torch.optim.SGD(net.parameters(), lr=0.1)}
        >>> engine, path = PrivacyEngine(), Path(tempfile.mkdtemp()) / "last.pt"
        >>> net, optimizer, loader = engine.make_private(
        ...     **network(), dataset=data, n_users=60, noise_multiplier=2.0, steps=9, sampling_rate=0.5,
        ...     max_grad_norm=1.0)
        >>> for x, y in loader:
        ...     torch.nn.functional.mse_loss(net(x), y).backward()
        ...     if optimizer.step() and len(loader) == 5:
        ...         engine.save(path)
        ...         break
        >>> engine, net, optimizer, loader = PrivacyEngine.resume(path, **network(), dataset=data)
        >>> len(loader), round(engine.get_epsilon(1e-6), 2)
        (5, 4.28)
        """
        module, processes = Processes.of(module)
        path = _validate.path(path=path)
        checkpoint = processes.told(lambda: Checkpoint.read(path))
        plan = checkpoint.plan
        stated = OWN_UNIT[plan.level] if plan.max_elements is None else User(plan.max_elements)
        unit = unit_of(stated, users)
        engine = cls(unit=unit, relation=plan.guarantee.relation)
        source, engine._extra = resuming.source_of(checkpoint), checkpoint.extra
        check_dataset(dataset)
        _check_optimizer(module, optimizer)
        _check_loop(plan.loss_reduction, max_rows, collate_fn)
        # Of a promise whose noise is known nothing but the unit, the relation and δ is used.
        promise = Promise(unit, 1.0, plan.guarantee.delta, plan.guarantee.relation)
        asked = Asked(promise, plan.mean, plan.rule)
        passed = Passed(
            dataset, Unread.of(len(dataset), users, elements, unit), max_rows, collate_fn
        )
        guarantee = replace(passed.promised(asked), private=source.private)
        resuming.check_alike(plan, guarantee, users, elements)
        resuming.load(checkpoint, module, optimizer)
        run = Run(
            module,
            optimizer,
            apart=_types(records_apart),
            loss_reduction=plan.loss_reduction,
            processes=processes,
            private=source.private,
        )
        guarantee = replace(guarantee, receipts=plan.guarantee.receipts)
        with run.hooked():
            # Labels are people's: they are compared with those of the run only when it is charged.
            resuming.check_there(processes, checkpoint, path)
            guarantee = charged_once(
                run, asked, passed, lambda: before_resuming(guarantee, n_users=plan.mean.n_users)
            )
            draws = passed.started(run, asked, source)
            resuming.go_on(run, passed.held, draws, checkpoint, path)
        engine.begin(run, guarantee, passed.held, draws, source, replace(plan, guarantee=guarantee))
        loader = passed.loader(run, draws)
        return engine, module, PrivateOptimizer(run), loader

    @property
    def extra(self) -> Mapping[str, Any]:
        """The extra of the checkpoint, as given to :meth:`save`; empty for a run that began here."""
        return self._extra

    @property
    def guarantee(self) -> Guarantee:
        """The promise of all steps together, which are charged whether they are made or not.

        Raises:
            ParameterError: if nothing was made private yet.
        """
        if self._guarantee is None:
            raise _no_run()
        return self._guarantee

    @property
    def mean(self) -> Mean:
        """The public numbers of a step, such as its noise, rate and divisor.

        Raises:
            ParameterError: if nothing was made private yet.
        """
        return self._begun().mean

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

    def _begun(self) -> Run:
        """Return the run."""
        if self._run is None:
            raise _no_run()
        return self._run

    def _promise(
        self,
        unit: Unit,
        noise_multiplier: float | None,
        epsilon: float | None,
        delta: float,
        share: float | None,
    ) -> Promise:
        """Return what the run is asked to keep, of which ε is not used where noise is stated."""
        stated = [value for value in (noise_multiplier, epsilon, share) if value is not None]
        if len(stated) != 1:
            raise ParameterError(
                "exactly one of noise_multiplier, target_epsilon and share must be passed, not "
                f"{len(stated)} of them."
            )
        _validate.delta(allow_zero=False, target_delta=delta)
        if epsilon is not None:
            _validate.positive(target_epsilon=epsilon)
        at = 1.0 if noise_multiplier is not None else epsilon
        return Promise.of(unit, at, delta, self._relation, share)


def _no_run() -> ParameterError:
    return ParameterError("this engine has no run yet; call make_private first.")


def check_dataset(dataset: Any) -> None:
    """Refuse what draws batches by itself, or has no places."""
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
    if not _has_places(dataset):
        raise ParameterError(
            "dataset must return records by index, with __getitem__ and __len__, unlike a "
            f"{type(dataset).__name__}.",
            name="dataset",
        )


def _has_places(dataset: Any) -> bool:
    """Return whether records are given by place, and are counted."""
    iterable = isinstance(dataset, torch.utils.data.IterableDataset)
    if iterable or not hasattr(dataset, "__getitem__"):
        return False
    try:
        len(dataset)
    except TypeError:
        # It has no length; such as an array without axes.
        return False
    return True


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
            "optimizer must contain only parameters of the module, because others would be "
            "neither clipped nor accounted for.",
            name="optimizer",
        )
    missing = sorted(name for key, name in trained.items() if key not in held)
    if missing or not trained:
        which = f"{missing[0]!r}, which is trained" if missing else "a parameter that is trained"
        raise ParameterError(
            f"optimizer must contain {which}; or freeze the others with requires_grad_(False).",
            name="optimizer",
        )


def _check_loop(loss_reduction: str, max_rows: int | None, collate_fn: object) -> None:
    """Refuse what no loop has, such as batches without a record."""
    check_precise()
    _validate.one_of(("mean", "sum"), loss_reduction=loss_reduction)
    if max_rows is not None:
        _validate.integer(minimum=1, max_rows=max_rows)
    if collate_fn is not None:
        _validate.function(collate_fn=collate_fn)


def _types(records_apart: object) -> tuple[type, ...]:
    """Return types of layers, as stated; refuse what is none."""
    types = tuple(_validate.sequence(records_apart=records_apart))
    for kind in types:
        if not (isinstance(kind, type) and issubclass(kind, torch.nn.Module)):
            raise ParameterError(
                "records_apart must be a list of types of layers, such as [MyLayer], not of "
                f"{_validate.said(kind)}.",
                name="records_apart",
            )
    return cast("tuple[type, ...]", types)
