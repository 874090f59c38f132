"""Engine for private training of a network with a custom training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NoReturn

from dpgrain import _validate
from dpgrain.errors import ParameterError
from dpgrain.inputs.array_blocks import LabelledRows, default_unit
from dpgrain.means import Mean
from dpgrain.noise import RandomState
from dpgrain.publishing import Charge, Promise, Query
from dpgrain.publishing.draws import CountedSource
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.publish import before_resuming, published
from dpgrain.torch import resumption
from dpgrain.torch.adaptive_clipping import AdaptiveNorm
from dpgrain.torch.checkpoint import Checkpoint, RunPlan
from dpgrain.torch.loader import PrivateLoader
from dpgrain.torch.local_data import LocalData
from dpgrain.torch.opacus_compat import explain_parameters, unknown_attribute
from dpgrain.torch.optimizer import PrivateOptimizer
from dpgrain.torch.processes import Processes
from dpgrain.torch.steps import BlockSampler, check_vectors
from dpgrain.torch.training_query import (
    ClippedOptions,
    RunQuery,
    RunRecords,
    StepPlan,
    TrainingObjects,
    charged_once,
    check_dataset,
    check_loop,
    check_optimizer,
    layer_types,
)
from dpgrain.torch.training_run import Run
from dpgrain.units import PLAIN_UNITS, Relation, Unit, User


class PrivacyEngine:
    """Private training in a custom loop; :func:`train` does it in one call, and assumes less.

    Args:
        unit: the protected unit. ``Record()``, ``Element()`` and ``User()`` are one block each; the
            blocks of ``User(max_elements=M)`` are a user's first M elements. By default ``User()``
            if users are passed, otherwise ``Record()``.
        relation: the neighbouring relation.
        random_state: a seed for tests and research, which makes the run not private.

    Raises:
        ParameterError: if the unit or the relation is invalid.

    Formal guarantee: :attr:`guarantee`, for any records, under three conditions. The loss of the
    training loop is a mean or a sum over records of terms that each depend on one record only. No
    record makes reading, the network or the loss fail. No decision of the loop depends on outputs
    or losses, which have no noise: learning rates, the number of steps and the published results
    are fixed or follow from published numbers. Source: element-level paper, Algorithm 1 and (15),
    with sampled pairs instead of users; docs/theory, "Gradient steps of networks".

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
        # Creating a promise validates the unit and the relation.
        _ = Promise(User() if unit is None else unit, 1.0, 1e-6, relation)
        self._relation, self._random_state = relation, random_state
        self._guarantee: Guarantee | None = None
        self._run: Run | None = None
        self._plan: RunPlan | None = None
        self._draws: BlockSampler
        self._source: CountedSource
        self._data: LocalData
        self._extra: Mapping[str, Any] = {}

    @explain_parameters
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
    ) -> Query[TrainingObjects]:
        """Charge a training run, and return the objects for an ordinary training loop.

        ``query`` with the same arguments returns the run as a query, for use in a plan.

        Args:
            module: the network. It is returned with hooks, which the last step removes. For a
                network in ``DistributedDataParallel``, which all its processes train together, the
                inner network is returned.
            optimizer: a PyTorch optimizer of all trained parameters.
            dataset: the records, a map-style data set.
            n_users: the public number of users in the known population, by which sums are divided;
                it is never counted from the records.
            steps: the number of steps; all are charged before the first batch.
            sampling_rate: the public probability q that a step includes a block, or a user.
            max_grad_norm: the clipping bound of a block's mean gradient (l2 norm over all
                parameters); or an ``AdaptiveNorm``, which follows a quantile of these norms.
            users: (records,) the user id of each record; None to protect records.
            elements: (records,) the cell of each record in a public partition.
            noise_multiplier: noise sd ÷ clipping bound; or instead
            target_epsilon: the ε of the guarantee for the whole run.
            target_delta: the δ of the guarantee.
            share: a share of the open budget, instead of ε and δ.
            sampling: ``"pairs"`` samples each block independently; ``"users"`` samples a user with
                all blocks.
            elements_per_user: the public number of blocks per user, by which sums are divided.
            loss_reduction: how the loss of the loop combines the losses of records. A mean over all
                tokens of a batch is not a mean over records if their numbers of tokens differ:
                average each record's tokens first. With half precision it must be ``"sum"``, and
                the loss of the loop must be a sum.
            max_rows: the maximum number of rows in a batch. A step with more rows has several
                batches of whole blocks; the gradient of a block with more rows is accumulated
                before it is clipped. On a GPU the gradients of a batch's blocks must fit into a
                quarter of its memory if those of 64 blocks do, so a step can have several batches.
            exact: True processes each block separately, truncates it to a grid, and adds integers
                with integer noise. This accounts for all rounding, but is slow.
            noise: ``"banded"`` uses noise that cancels over steps, and samples from random parts of
                the users in turn; it is useful for small sampling rates.
            bands: the number of bands and parts; by default, the best number for
                ``target_epsilon``.
            mean: any private mean from :mod:`dpgrain.means` of one vector per block, for small
                networks; it replaces the public numbers above and the noise. Each step then reads
                every block separately. If the mean publishes that it stops, the loader ends.
            records_apart: types of custom layers that accept one tensor and process records
                separately.
            example: the inputs of the module for a few synthetic records: a tensor, a tuple, or a
                dictionary of named inputs. Before charging, the module is tested with them for
                mixing of records and for clipping. Without an example, it is tested after charging,
                on random numbers with the shapes of the first batch.
            collate_fn: a function that builds a batch from a list of records. The guarantee assumes
                that each row depends only on its own record, and that rows are in the order of
                records. By default, PyTorch's function.

        Returns:
            the module, the optimizer and the loader. For each batch the loader re-seeds the
            generators of PyTorch, NumPy and Python with secret seeds, even if the loop has seeded
            them. Otherwise, dropout would depend on a record's position in the batch.

        Raises:
            ParameterError: if a parameter is out of range, users are missing for a unit other than
                records, a layer mixes records or is unknown, the optimizer fails in a step with
                synthetic blocks, or the open budget is insufficient; nothing is charged in these
                cases.
        """
        self.check_new()
        unit = default_unit(self._unit, users)
        module, processes = Processes.unwrap(module)
        check_dataset(dataset)
        check_optimizer(module, optimizer)
        check_loop(loss_reduction, max_rows, collate_fn)
        options = ClippedOptions(
            n_users,
            steps,
            sampling_rate,
            max_grad_norm,
            noise_multiplier,
            bands,
            sampling,
            elements_per_user,
            exact,
            noise,
        )
        if mean is None:
            promise = self._promise(unit, noise_multiplier, target_epsilon, target_delta, share)
        else:
            promise = Promise(unit, 1.0, target_delta, self._relation)
            options.check_omitted(target_epsilon=target_epsilon, share=share)
        places = getattr(mean, "fresh", False)
        labels = LabelledRows.create(len(dataset), users, elements, unit, places=places)
        run = Run(
            module,
            optimizer,
            separate=layer_types(records_apart),
            loss_reduction=loss_reduction,
            processes=processes,
            private=self._random_state is None,
        )
        query = RunQuery(
            promise,
            options if mean is None else mean,
            self,
            run,
            RunRecords(dataset, labels, max_rows, collate_fn),
            loss_reduction,
            self._random_state,
        )
        if promise.share is None:
            # Reject invalid numbers here, before the run is charged.
            check_vectors(query.step_plan.mean, run.parameters, is_single=processes.is_single)
        if example is not None:
            run.check_example(example)
        return query

    make_private = published(query, "make_private")

    def __getattr__(self, name: str) -> NoReturn:
        raise unknown_attribute(name)

    def check_new(self) -> None:
        """Check that the engine has no run yet.

        Raises:
            ParameterError: if the engine already has a run.
        """
        if self._run is not None:
            raise ParameterError(
                "an engine has only one run; create another PrivacyEngine for another run."
            )

    def attach(
        self,
        run: Run,
        guarantee: Guarantee,
        data: LocalData,
        draws: BlockSampler,
        source: CountedSource,
        plan: RunPlan | None,
    ) -> None:
        """Attach a charged run to the engine.

        Args:
            run: the run.
            guarantee: its guarantee, already charged.
            data: the records and labels of this process.
            draws: the sampler of the blocks of each step.
            source: the source of noise.
            plan: its public numbers; None for a run that cannot be resumed elsewhere.
        """
        self._run, self._guarantee, self._plan = run, guarantee, plan
        self._data, self._draws, self._source = data, draws, source

    def save(self, path: str | Path, *, extra: Mapping[str, Any] | None = None) -> None:
        """Write a checkpoint for :meth:`resume` in another process.

        Args:
            path: the file, which is written atomically. The journal of the run is a file in the
                same folder. From now on, each step adds a dot to the journal before its noise is
                drawn. All checkpoints of a run must be in one folder.
            extra: other state of the loop, such as a scheduler's: tensors, numbers, text, lists and
                dicts.

        Raises:
            ParameterError: if the run is within a step, has its journal in another folder, or
                continues in the process from which this one was forked.
            DataError: if a file cannot be written.

        The file of a private run contains published results only. The journal contains a hash of
        users and elements, which identifies them for :meth:`resume`; the checkpoint contains the
        hash key. Each file separately reveals nothing else about the data. Both together reveal
        whether a guess of all labels is correct, so store the journal with the data. If there are
        several processes, the first one writes.
        """
        run, path, added = (
            self._started_run(),
            _validate.path(path=path),
            _validate.mapping(extra=extra),
        )
        with run.between_steps():
            if run.processes.is_first:
                resumption.save(run, self._plan, self._data, self._source, self._draws, path, added)

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
        """Resume a run from its checkpoint, in the same or another process.

        Args:
            path: the file written by :meth:`save`.
            module: a network with the same structure; its parameters are replaced.
            optimizer: a PyTorch optimizer of the same type; its state is replaced.
            dataset: the records of the same users.
            users: as in :meth:`make_private`.
            elements: as in :meth:`make_private`.
            max_rows: as in :meth:`make_private`.
            records_apart: as in :meth:`make_private`.
            collate_fn: as in :meth:`make_private`.

        Returns:
            an engine with the run, the module, the optimizer, and the loader of the remaining
            steps.

        Raises:
            ParameterError: if the module, the optimizer, the labels or the number of records have
                changed since the run began, or the open budget is insufficient.
            DataError: if the checkpoint or its journal is missing or damaged.

        A ledger that has charged the run is not charged again. Another ledger or an open budget is
        charged for all steps before any label is read, even if labels are then rejected. Steps
        begun after the checkpoint are not repeated, because their results may have been seen: the
        run is shorter by these steps. A seeded run, which is not private, repeats them identically.

        Formal guarantee: the guarantee of the run covers everything that any process has published
        of it, for any number of resumptions from any checkpoints, if the journal on disk is the
        current one of all these processes. Source: docs/theory, "Gradient steps of networks".

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
        module, processes = Processes.unwrap(module)
        path = _validate.path(path=path)
        checkpoint = processes.from_first(lambda: Checkpoint.read(path))
        plan = checkpoint.plan
        stated = PLAIN_UNITS[plan.level] if plan.max_elements is None else User(plan.max_elements)
        unit = default_unit(stated, users)
        engine = cls(unit=unit, relation=plan.guarantee.relation)
        source, engine._extra = resumption.noise_source(checkpoint), checkpoint.extra
        check_dataset(dataset)
        check_optimizer(module, optimizer)
        check_loop(plan.loss_reduction, max_rows, collate_fn)
        # If the noise is known, only the unit, the relation and δ of the promise are used.
        promise = Promise(unit, 1.0, plan.guarantee.delta, plan.guarantee.relation)
        step_plan = StepPlan(promise, plan.mean, plan.rule)
        records = RunRecords(
            dataset, LabelledRows.create(len(dataset), users, elements, unit), max_rows, collate_fn
        )
        guarantee = replace(records.guarantee(step_plan), private=source.private)
        resumption.check_labels(plan, guarantee, users, elements)
        resumption.load_states(checkpoint, module, optimizer)
        run = Run(
            module,
            optimizer,
            separate=layer_types(records_apart),
            loss_reduction=plan.loss_reduction,
            processes=processes,
            private=source.private,
        )
        guarantee = replace(guarantee, receipts=plan.guarantee.receipts)
        with run.hooked():
            # Labels are personal data: they are compared with the labels of the run only after
            # charging.
            resumption.check_journal(processes, checkpoint, path)
            guarantee = charged_once(
                run,
                step_plan,
                records,
                lambda: before_resuming(guarantee, n_users=plan.mean.n_users),
            )
            with Charge(guarantee, source) as charge:
                rounds = charge.rounds(
                    step_plan.mean.event, resumption.rounds_left(checkpoint), outlives=True
                )
                draws = charge.read(lambda: records.start_sampling(run, step_plan, rounds))
                resumption.resume_run(run, records.data, draws, checkpoint, path)
        engine.attach(
            run, guarantee, records.data, draws, rounds, replace(plan, guarantee=guarantee)
        )
        loader = records.loader(run, draws)
        return engine, module, PrivateOptimizer(run), loader

    @property
    def extra(self) -> Mapping[str, Any]:
        """Extra state passed to :meth:`save`; empty for a run that began here."""
        return self._extra

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of all steps, which are charged even if they are not made.

        Raises:
            ParameterError: if nothing has been made private yet.
        """
        if self._guarantee is None:
            raise _no_run()
        return self._guarantee

    @property
    def mean(self) -> Mean:
        """Public numbers of a step, such as its noise, sampling rate and divisor.

        Raises:
            ParameterError: if nothing has been made private yet.
        """
        return self._started_run().mean

    def get_epsilon(
        self,
        delta: float | None = None,
        *,
        units: int = 1,
        unit: Unit | None = None,
        relation: Relation | None = None,
    ) -> float:
        """Return the ε of all steps for a number of changed units.

        Args:
            delta: the δ of the query; by default, the δ of the guarantee.
            units: the number of changed units of one user.
            unit: the privacy unit, by default the engine's; others, such as ``Record()`` or
                ``User(max_elements=40)``, are possible for the same run.
            relation: the neighbouring relation; by default the engine's own.

        Raises:
            ParameterError: if an argument is out of range, or nothing has been made private yet.

        The ε of a run that stops early is not smaller, because the decision to stop may depend on
        its results.
        """
        return self.guarantee.epsilon(delta, units=units, unit=unit, relation=relation)

    def _started_run(self) -> Run:
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
        """Return the requested promise; its ε is unused if the noise is explicit."""
        _validate.exactly_one(
            noise_multiplier=noise_multiplier, target_epsilon=epsilon, share=share
        )
        _validate.delta(allow_zero=False, target_delta=delta)
        if epsilon is not None:
            _validate.positive(target_epsilon=epsilon)
        at = 1.0 if noise_multiplier is not None else epsilon
        return Promise.of(unit, at, delta, self._relation, share)


def _no_run() -> ParameterError:
    return ParameterError("this engine has no run yet; call make_private first.")
