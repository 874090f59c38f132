"""What all private linear models share: who holds what, blocks, noisy gradients, steps, a promise."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Tags, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from dpgrain import _validate, recipes
from dpgrain._shown import ShownModel
from dpgrain._types import FloatArray
from dpgrain.accounting import Contribution, Event, Gaussian, Selection, calibrate
from dpgrain.arrays.blocks import Rows, arrange
from dpgrain.arrays.guarantees import Sampling, promised, public_facts, rate_of
from dpgrain.arrays.roster import Roster, beside, check_stated
from dpgrain.errors import ParameterError
from dpgrain.gradients.linear import LinearBlocks, LinearGradients
from dpgrain.gradients.norms import Norms, release_norms
from dpgrain.gradients.records import RecordBlocks
from dpgrain.inputs.codes import column
from dpgrain.inputs.numbers import readable
from dpgrain.learn.classes import Targets, fact, selected, selection
from dpgrain.learn.confidence import (
    Evidence,
    Intervals,
    check_curvature,
    intervals,
    release_evidence,
)
from dpgrain.learn.rounds import History, follow, roster_index, train
from dpgrain.means import ClippedMean
from dpgrain.noise import RandomState, Source, source_of
from dpgrain.optimize import CoinBetting, MarginLoss, Solver
from dpgrain.publishing import before_publishing, of_share
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.units import RELATIONS, Level, Relation, Trust, Unit, User, unit_level

# Rounds with all blocks; with samples there are as many passes.
_ROUNDS = 100
# The share of the budget (of μ²) that chooses the clipping bound and counts blocks.
_TUNING = 0.1
# One round in so many looks for the neighbourhood of the solution, where a clipping bound is found; …
_WARM_UP = 5
# There the bound is so many times below the median: noise is less, and users with few records, whose
# gradients are long by chance, count no more than others. …
_SHORTER = 2.0
# … with a bound that leaves only the direction of users' gradients.
_DIRECTIONS = 2.0**-12
# The clipping bound where no curator may choose one and none is stated.
_UNSEEN = 0.5


@dataclass(kw_only=True, repr=False, eq=False)
class LinearModel(ShownModel, BaseEstimator):  # type: ignore[misc]
    """A linear model that is fitted under differential privacy; subclasses name the loss.

    Args:
        unit: what is protected: ``User()`` (the default, None), ``User(max_elements=M)``, ``Element()``
            or ``Record()``. Elements come with ``fit(…, elements=…)``.
        relation: the neighbouring relation, ``"zero_out"`` or ``"replace"``.
        epsilon: the promised ε.
        delta: the promised δ.
        share: the share of the budget that is open at the fit, in place of ε and δ; see
            :func:`dpgrain.budget`.
        clip: the clipping bound ρ of a block's mean gradient, l2, or ``"auto"``, which chooses it
            inside the budget, at a tenth of it: the median norm, for whole users near the solution,
            where the gradients of users with many records lie close to 0. By default (None) ``"auto"``
            for ``User()`` without intervals, and otherwise 1, which suits rows that are about 1 to 3
            long; longer ones are clipped whatever ε is, and predictions are then biased: give a public
            ``feature_bound`` (for records and small elements), or ``"auto"``. Targets of regressions
            should be about 1, too.
        rounds: how many noisy gradients; by default 100 passes.
        sampling_rate: the probability to be in a round's sample; by default 1, but for a stated roster
            of more than 50,000 users.
        sampling: ``"pairs"``: each block is drawn on its own; ``"users"``: users are drawn with all
            their blocks, which costs more; ``"full"``: everybody is in every round.
        algorithm: ``"auto"`` for coin betting, which needs no step size; a solver of
            :mod:`dpgrain.optimize`, such as ``Sgd(Power(0.5, 0.6))``; or, for ``User()``, a recipe of
            :mod:`dpgrain.recipes`, which brings its own mean, radius, rounds and steps.
        trust: who sees data, for ``User()``: ``"central"``: whoever fits; ``"shuffle"``: nobody, as
            devices add noise and a trusted shuffler mixes what they send; by default all of them in
            every round, :class:`~dpgrain.recipes.ShuffleConcentrated` with the clipping bound, the
            rounds and the solver that are stated; ``"pan"``: whoever fits, of users who come one after
            the other, and the state may be seen once; by default
            :class:`~dpgrain.recipes.PanPrivateConcentrated`, likewise. A recipe must be of the kind
            that is stated.
        l2: the public strength λ of the ridge λ/2·‖coef‖².
        fit_intercept: whether there is an intercept.
        feature_bound: a public bound B on the l2 norm of a row: longer rows are shortened to it, and
            rows are divided by it before the fit, so that ``clip=1.0`` suits them. None: as they are.
        n_features: the public number of features. An array has it; of a list it is the length of most
            rows, and whoever passes the list vouches for it, as the guarantee says: state it where few
            rows could decide, or none.
        n_users: the public size of the roster. If it is not known (None), about how many users have
            records is released first, with 3% of the budget, and sums are divided by that. Recipes, and
            fits without a curator, need it.
        elements_per_user: the public number of blocks per user that sums are divided by; ``"auto"``
            chooses it inside the budget, with ``clip="auto"`` at no further cost. ``algorithm="auto"``
            does not depend on it.
        intervals: the share of the budget kept for :meth:`confidence_intervals`; 0 for none.
        exact: add blocks up as integers (slower); otherwise sums are made in floating point.
        random_state: a seed, for tests and research: it makes the fit not private.
        tune: parameters to choose inside the promise, as a mapping of names to lists of values, or a
            list of settings: the best of a random number of fits, each with a part of the budget.
        verbose: show progress from the start; otherwise it shows after two seconds, on a terminal.

    Attributes:
        guarantee_: what is promised.
        coef_: the coefficients.
        intercept_: the intercept.
        history_: the noisy gradients, round by round.
        evidence_: noisy second moments, for intervals; None where no budget was kept.
        n_iter_: the number of rounds.
        n_features_in_: the number of features.
        n_users_: the number of users that sums are divided by: as stated, or as released with noise.
    """

    unit: Unit | None = None
    relation: Relation = "zero_out"
    epsilon: float = 1.0
    delta: float = 1e-6
    share: float | None = None
    clip: float | Literal["auto"] | None = None
    rounds: int | None = None
    sampling_rate: float | None = None
    sampling: Sampling = "pairs"
    algorithm: Literal["auto"] | Solver[Any] | recipes.Recipe = "auto"
    trust: Trust = "central"
    l2: float = 0.0
    fit_intercept: bool = True
    feature_bound: float | None = None
    n_features: int | None = None
    n_users: int | None = None
    elements_per_user: float | Literal["auto"] = 1.0
    intervals: float = 0.0
    exact: bool = False
    tune: Any = None
    random_state: RandomState = None
    verbose: bool = False

    def fit(self, X: Any, y: Any, *, users: Any = None, elements: Any = None) -> Self:
        """Fit the model.

        Args:
            X: (m, d) features: an array, a data frame, an Arrow table or a sparse matrix; or a list of
                rows (see ``n_features``). What is not finite counts 0, as all of a list's row
                does that has not d cells.
            y: (m,) targets. A row whose target is not finite, or no class, is left out.
            users: (m,) whose each row is; None for one user per row. A row without user is left out.
                When two labels are one: :mod:`dpgrain.inputs.labels`.
            elements: (m,) the cell of each row, by a public partition; see ``unit``.

        Raises:
            ParameterError: if a parameter is out of range or shapes do not fit, before anything is
                published.

        Formal guarantee: :attr:`guarantee_`, (ε, δ)-DP for the unit and relation, whatever the data:
        of every iterate, :attr:`history_`, and what ``"auto"`` and ``intervals`` release. Source:
        element-level paper, Algorithm 1 and (15), with blocks drawn instead of users.
        """
        for earlier in ("classes_", "guarantee_"):
            # What an earlier fit has left must not speak for this one.
            self.__dict__.pop(earlier, None)
        self._check()
        if self.share is not None:
            return self._fit_of_share(self.share, X, y, users, elements)
        if self.tune is not None:
            from dpgrain.learn.tuning import fit_tuned

            return fit_tuned(self, X, y, users=users, elements=elements)
        X, targets = self._read(X, y)
        places = self._recipe is not None
        rows = arrange(X.shape[0], users, elements, self._unit, places=places)
        if self._recipe is not None:
            return self._follow(X, targets, rows, users)
        plan = self._plan(names=targets.labels is not None)
        promise = self._promise(plan, targets.public, users, elements)
        if plan.evidence is not None:
            self._check_curvature(X)
        before_publishing(promise, n_users=self.n_users)
        source = source_of(self.random_state)
        n = plan.roster.users(rows.users, source)
        values = targets.values
        if plan.names is not None:
            self.classes_, values = selected(targets, rows, plan.names, source)
            if plan.evidence is not None:
                self._check_curvature(X)
        loss = self._loss()
        theta = self._train(X[rows.kept], values[rows.kept], loss, plan, rows, n, source)
        self._keep(theta.reshape(loss.outputs, -1), loss)
        self.guarantee_ = promise
        return self

    def _fit_of_share(self, share: float, X: Any, y: Any, users: Any, elements: Any) -> Self:
        """A fit with the ε and δ at which it takes a share of the open budget."""

        def release(epsilon: float, delta: float) -> LinearModel:
            model = clone(self).set_params(share=None, epsilon=epsilon, delta=delta)
            fitted: LinearModel = model.fit(X, y, users=users, elements=elements)
            return fitted

        fitted, stated = of_share(share, release), self.get_params(deep=False)
        self.__dict__.update({k: v for k, v in vars(fitted).items() if k not in stated})
        return self

    def _check_curvature(self, X: Any) -> None:
        """Refuse intervals where there are none, for as many labels as are known."""
        loss = self._loss()
        check_curvature(loss, loss.outputs * (X.shape[1] + self.fit_intercept))

    def _read(self, X: Any, y: Any) -> tuple[Any, Targets]:
        """Features and targets as numbers, and what of them is public."""
        listed = self.n_features is None and isinstance(X, list | tuple)
        X = validate_data(
            self,
            _table(X, self.n_features),
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            ensure_all_finite=False,
            # A table of one person is the neighbour of an empty one.
            ensure_min_samples=0,
        )
        targets = self._targets(_vector(y, X.shape[0]))
        if listed:
            told = (
                f"{X.shape[1]} features, as most rows of the list have and whoever passed it vouches "
                "for as public"
            )
            targets = replace(targets, public=(*targets.public, told))
        return X, targets

    def confidence_intervals(self, level: float = 0.95) -> Intervals:
        """Intervals for the coefficients, and the intercept if there is one.

        Args:
            level: the nominal coverage, strictly between 0 and 1.

        Returns:
            the corrected averages with their intervals: they are post-processing of what the fit
            published, and cost nothing more.

        Raises:
            ParameterError: if the fit kept no budget for it (``intervals=0.2`` keeps a fifth).

        For users that are independent and alike, intervals cover the parameter at which the mean of
        clipped gradients vanishes, whatever model is true. Source: element-level paper, Theorem 1 and
        Proposition 3, for sampled blocks and any number of rounds; docs/theory.md, "Intervals".
        """
        check_is_fitted(self)
        if self.evidence_ is None:
            raise ParameterError(
                "intervals must be above 0 at the fit for confidence_intervals: intervals=0.2 keeps a "
                "fifth of the budget for them."
            )
        outputs = self._loss().outputs
        width = self.n_features_in_ + self.fit_intercept
        scale = np.ones((outputs, width))
        scale[:, : self.n_features_in_] /= self.feature_bound or 1.0
        return intervals(
            self.evidence_,
            self.history_,
            self._theta,
            self._ridge(outputs),
            np.diag(scale.ravel()),
            self._names(outputs),
            level,
            sampled=self._sampled,
        )

    def save(self, path: str | Path) -> Path:
        """Write the model, its promise and its history as JSON, for :func:`dpgrain.learn.load`.

        Args:
            path: the file.

        Raises:
            DataError: if it cannot be written.
        """
        from dpgrain.learn.files import save

        return save(self, path)

    # -- what a subclass says --

    @abstractmethod
    def _loss(self) -> MarginLoss:
        """The loss of a record as a function of its margin."""

    @abstractmethod
    def _targets(self, y: NDArray[Any]) -> Targets:
        """Targets as the loss takes them, or labels that are still to be selected."""

    # -- public numbers --

    def _check(self) -> None:
        """Refuse parameters that are out of range, by name."""
        unit_level(self._unit, "user")
        _validate.one_of(RELATIONS, relation=self.relation)
        _validate.positive(epsilon=self.epsilon)
        if _validate.delta(allow_zero=True, delta=self.delta) == 0:
            raise ParameterError(
                "delta = 0 needs pure privacy, which fits have not: use about 1e-6."
            )
        for name in ("clip", "elements_per_user"):
            value = getattr(self, name)
            if isinstance(value, str) and value != "auto":
                raise ParameterError(f"{name} must be a number or 'auto', not {value!r}.")
            if value not in ("auto", None) or (name != "clip" and value is None):
                _validate.positive(**{name: value})
        _validate.one_of(("pairs", "users", "full"), sampling=self.sampling)
        _validate.non_negative(l2=self.l2)
        if self.rounds is not None:
            _validate.integer(minimum=1, rounds=self.rounds)
        for name in ("feature_bound", "elements_per_user"):
            value = getattr(self, name)
            if value is None or value == "auto":
                continue
            if not 1e-50 <= _validate.positive(**{name: value}) <= 1e50:
                raise ParameterError(f"{name} must lie between 1e-50 and 1e50, not {value!r}.")
        for name in ("n_features", "n_users"):
            if getattr(self, name) is not None:
                _validate.integer(minimum=1, **{name: getattr(self, name)})
        if not 0 <= _validate.non_negative(intervals=self.intervals) < 1:
            raise ParameterError(
                f"intervals must be a share of the budget in [0, 1), not {self.intervals!r}.",
                name="intervals",
            )
        _validate.one_of(("central", "shuffle", "pan"), trust=self.trust)
        known = hasattr(self.algorithm, "step") or isinstance(self.algorithm, recipes.Recipe)
        if self.algorithm != "auto" and (not known or isinstance(self.algorithm, type)):
            raise ParameterError(
                "algorithm must be 'auto', a solver of dpgrain.optimize or a recipe of "
                f"dpgrain.recipes, not {self.algorithm!r}."
            )
        if isinstance(self.algorithm, recipes.Recipe) or self.trust != "central":
            self._check_recipe()
        self._loss()

    def _check_recipe(self) -> None:
        """Refuse what a recipe does not know of."""
        own, how = not isinstance(self.algorithm, recipes.Recipe), self._how
        if self._unit != User():
            raise ParameterError(
                f"unit must be User() with {how}, not {self.unit!r}: recipes are for whole users."
            )
        if own and self.clip == "auto":
            raise ParameterError(
                f"clip must be a number with {how}, not 'auto': nobody sees norms."
            )
        # Of these a default is made.
        stated = () if own else (("clip", (None,)), ("rounds", (None,)))
        for name, allowed in (
            *stated,
            ("sampling_rate", (None,)),
            ("sampling", ("pairs", "full")),
            ("elements_per_user", (1.0,)),
            ("intervals", (0.0,)),
            ("exact", (False,)),
        ):
            if getattr(self, name) not in allowed:
                raise ParameterError(
                    f"{name} must be left out with {how}, not {getattr(self, name)!r}: the recipe "
                    "decides it."
                )

    @property
    def _how(self) -> str:
        """What fits by a recipe, in words."""
        return "a recipe" if isinstance(self.algorithm, recipes.Recipe) else f"trust={self.trust!r}"

    @property
    def _recipe(self) -> recipes.Recipe | None:
        """What fits, unless it is clipped means by a curator."""
        if isinstance(self.algorithm, recipes.Recipe):
            return self.algorithm
        if self.trust == "central":
            return None
        clip: Any = self.clip
        shuffled = self.trust == "shuffle"
        kind = recipes.ShuffleConcentrated if shuffled else recipes.PanPrivateConcentrated
        return kind(recipes.Known(radius=clip or _UNSEEN), self.rounds, 1.0, self._solver())

    @property
    def _unit(self) -> Unit:
        return User() if self.unit is None else self.unit

    @property
    def _clip(self) -> float | Literal["auto"]:
        """The clipping bound, or how it is found."""
        if self.clip is not None:
            return self.clip
        # Intervals are to cover what all gradients say, not what is left of them when most are clipped.
        alone = self._recipe is None and self.algorithm == "auto"
        chosen = self._unit == User() and alone and not self.intervals
        return "auto" if chosen else 1.0

    def _plan(self, *, names: bool = False) -> Plan:
        """The noise of every part, from public numbers; whether labels are selected is one of them."""
        unit = self._unit
        kept = unit.max_elements if isinstance(unit, User) else None
        level: Level = "element" if kept is not None else unit.level
        contribution = Contribution(level, "shared", "nonnegative", max_elements=kept)
        signed = Contribution(level, "shared", "signed", max_elements=kept)
        tuned = "auto" in (self._clip, self.elements_per_user)
        norms = self._part(contribution, _TUNING) if tuned else None
        evidence = self._part(signed, self.intervals) if self.intervals else None
        promise: dict[str, Any] = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "relation": self.relation,
        }
        roster = Roster.of(self.n_users, unit=unit, **promise)
        labels = selection(unit=unit, **promise) if names else None
        rate = rate_of(self.sampling, self.sampling_rate, self.n_users)
        mean = ClippedMean.calibrate(
            **promise,
            # Nothing that is charged follows from it: where it is not stated it comes later.
            n_users=self.n_users or 1,
            rounds=self.rounds or math.ceil(_ROUNDS / rate),
            unit=unit,
            sampling_rate=rate,
            sampling="users" if self.sampling == "users" else "pairs",
            exact=self.exact,
            beside=beside(norms, evidence, roster.event, labels),
        )
        return Plan(mean, norms, evidence, roster, labels)

    def _stated(self) -> tuple[Fact, ...]:
        """Other numbers that were stated."""
        facts = []
        if self.feature_bound is not None:
            facts.append(Fact("rows of norm at most {:g}, shortened to it", (self.feature_bound,)))
        if self.elements_per_user not in ("auto", 1.0):
            facts.append(Fact("a division by {:g} elements per user", (self.elements_per_user,)))
        if self.l2:
            facts.append(Fact("a ridge of {:g}", (self.l2,)))
        if self._warms_up:
            facts.append(
                Fact(
                    "the first fifth of the rounds takes the directions of gradients alone; then the "
                    "clipping bound is chosen inside the budget"
                )
            )
        if self.intervals:
            facts.append(Fact("{:.0%} of the budget kept for intervals", (self.intervals,)))
            if self.exact:
                facts.append(
                    Fact("second moments are added in floating point, whose rounding is left out")
                )
        return tuple(facts)

    def _part(self, contribution: Contribution, share: float) -> Gaussian:
        """A Gaussian release with a share of the budget, counted in μ²."""
        whole = calibrate(
            lambda noise: Gaussian(noise, contribution),
            self.epsilon,
            self.delta,
            unit=self._unit,
            relation=self.relation,
        )
        return Gaussian(whole.parameter / math.sqrt(share), contribution)

    def _promise(self, plan: Plan, public: tuple[str, ...], users: Any, elements: Any) -> Guarantee:
        clip = None if self._clip == "auto" else float(self._clip)
        return promised(
            self._unit,
            self.relation,
            self.delta,
            plan.event,
            (
                *plan.roster.facts,
                *public,
                *(() if plan.names is None else (fact(plan.names),)),
                *public_facts(plan.mean, clip),
                *self._stated(),
            ),
            private=source_of(self.random_state).private,
            users=users,
            elements=elements,
        )

    # -- data --

    def _train(
        self,
        X: Any,
        targets: FloatArray,
        loss: MarginLoss,
        plan: Plan,
        rows: Rows,
        n: int,
        source: Source,
    ) -> FloatArray:
        """All that is released: a histogram of norms, the rounds, and what intervals need."""
        self.n_users_ = n
        if self.feature_bound is not None:
            X = _bounded(X, self.feature_bound)
        there = len(rows.owners)
        blocks = LinearBlocks.arrange(
            X, targets, rows.blocks, intercept=self.fit_intercept, blocks=there
        )
        width = blocks.width
        start = np.zeros(loss.outputs * width)

        def at(theta: FloatArray) -> LinearGradients:
            return blocks.gradients(loss, theta)

        mean, solver = replace(plan.mean, n_users=n), self._solver()
        progress = self._bar
        ridge = self._ridge(loss.outputs)

        def public(theta: FloatArray) -> FloatArray:
            return ridge * theta

        def steps(mean: ClippedMean, start: FloatArray) -> tuple[FloatArray, History]:
            owners = rows.owners
            return train(
                at, mean, solver, start, source, public=public, owners=owners, progress=progress
            )

        if self._warms_up and mean.rounds > 1:
            # Far from the solution norms say how far it is, not how much users differ.
            first = max(1, mean.rounds // _WARM_UP)
            start, _ = steps(replace(mean, rounds=first, clip=_DIRECTIONS), start)
            mean = replace(mean, rounds=mean.rounds - first)
        if plan.norms is not None:
            mean = self._tuned(mean, release_norms(at(start), plan.norms, source))
        elif self._clip != "auto" and self.elements_per_user != "auto":
            mean = mean.scaled(clip=self._clip, blocks_per_user=self.elements_per_user)
        if plan.evidence is not None:
            records = _records(X, targets, rows.blocks, there, intercept=self.fit_intercept)
        theta, self.history_ = steps(mean, start)
        self.n_iter_, self._theta, self._sampled = mean.rounds, theta, mean.sampling_rate < 1
        self.evidence_: Evidence | None = None
        if plan.evidence is not None:
            self.evidence_ = release_evidence(
                records,
                rows.owners,
                loss,
                theta,
                clip=mean.clip,
                n_users=mean.n_users,
                blocks_per_user=mean.blocks_per_user,
                whole=mean.level == "user",
                event=plan.evidence,
                source=source,
            )
        return theta

    @property
    def _bar(self) -> bool | None:
        """Whether rounds show a bar; None decides. A run among several shows none: they would count."""
        return False if getattr(self, "_silent", False) else True if self.verbose else None

    def _solver(self) -> Solver[Any]:
        if self.algorithm == "auto" or isinstance(self.algorithm, recipes.Recipe):
            return CoinBetting()
        return self.algorithm

    @property
    def _warms_up(self) -> bool:
        """Whether the first rounds only look for the neighbourhood of the solution."""
        return self._clip == "auto" and self._unit == User() and self.algorithm == "auto"

    def _follow(
        self,
        X: Any,
        read: Targets,
        rows: Rows,
        users: Any,
    ) -> Self:
        """Fit by a recipe."""
        recipe = self._recipe
        assert recipe is not None  # noqa: S101 - for the type checker
        n = check_stated(self.n_users, self._how)
        if read.labels is not None:
            raise ParameterError(
                f"classes must be stated with {self._how}: name all labels with classes=[…]."
            )
        targets, loss = read.values, self._loss()
        width = X.shape[1] + self.fit_intercept
        start = np.zeros(loss.outputs * width)
        source = source_of(self.random_state)
        lot = int(source.words(1)[0])
        task = recipes.Task(n, tuple(start), self.epsilon, self.delta, self.relation, lot=lot)
        program = recipe.plan(task)
        if program.trust != self.trust:
            raise ParameterError(
                f"trust must be {program.trust!r} with {type(recipe).__name__}, not {self.trust!r}."
            )
        if recipe is not self.algorithm:
            # Nobody has stated what is known, and nothing rests on it.
            program = replace(program, known=None)
        index = roster_index(program, users, rows, loss)
        promise = promised(
            User(),
            self.relation,
            self.delta,
            program.event,
            (*Roster(n).facts, *read.public, *program.facts, *self._stated()),
            private=source.private,
            users=users,
            elements=None,
        )
        before_publishing(promise, n_users=n)
        if self.feature_bound is not None:
            X = _bounded(X, self.feature_bound)
        kept = rows.kept
        records = _records(
            X[kept], targets[kept], rows.blocks, len(rows.owners), intercept=self.fit_intercept
        )
        blocks = LinearBlocks.arrange(
            X[kept],
            targets[kept],
            rows.blocks,
            intercept=self.fit_intercept,
            blocks=len(rows.owners),
        )

        def quick(theta: FloatArray) -> LinearGradients:
            return blocks.gradients(loss, theta)

        theta, self.history_ = follow(
            program,
            records,
            index,
            loss,
            start,
            source,
            ridge=self._ridge(loss.outputs),
            quick=quick,
            progress=self._bar,
        )
        self.n_iter_, self._theta, self._sampled = len(self.history_.points), theta, False
        self.n_users_ = n
        self.evidence_ = None
        self._keep(theta.reshape(loss.outputs, -1), loss)
        self.guarantee_ = promise
        return self

    def _ridge(self, outputs: int) -> FloatArray:
        """The strength of the ridge on each parameter: none on the intercept."""
        strength = np.full((outputs, self.n_features_in_ + self.fit_intercept), float(self.l2))
        strength[:, self.n_features_in_ :] = 0
        return strength.ravel()

    def _names(self, outputs: int) -> tuple[str, ...]:
        """What each parameter is called."""
        features = getattr(self, "feature_names_in_", None)
        names = (
            [f"x{i}" for i in range(self.n_features_in_)] if features is None else list(features)
        )
        names += ["intercept"] * self.fit_intercept
        if outputs == 1:
            return tuple(names)
        return tuple(f"{label}: {name}" for label in self.classes_ for name in names)

    def _tuned(self, mean: ClippedMean, norms: Norms) -> ClippedMean:
        """The mean with what the budget's tenth has found."""
        held = max(norms.blocks / mean.n_users, 1 / mean.n_users)
        return mean.scaled(
            clip=self._share_of(norms) if self._clip == "auto" else self._clip,
            blocks_per_user=held if self.elements_per_user == "auto" else self.elements_per_user,
        )

    def _share_of(self, norms: Norms) -> float:
        """The clipping bound that norms suggest: their median, or less of it where they are small."""
        return norms.middle / _SHORTER if self._warms_up and not self.intervals else norms.middle

    def _keep(self, theta: FloatArray, loss: MarginLoss) -> None:
        """Set ``coef_`` and ``intercept_`` from (outputs, d + 1), on the scale of the features."""
        features = self.n_features_in_
        coef = theta[:, :features] / (self.feature_bound or 1.0)
        intercept = theta[:, features] if self.fit_intercept else np.zeros(loss.outputs)
        self._set(coef, intercept)

    def _set(self, coef: FloatArray, intercept: FloatArray) -> None:
        """Set ``coef_`` and ``intercept_`` in the shapes that scikit-learn gives them."""
        self.coef_: FloatArray = coef[0]
        self.intercept_: Any = float(intercept[0])

    def _margins(self, X: Any) -> FloatArray:
        """(m,) or (m, C)."""
        check_is_fitted(self)
        X = validate_data(
            self,
            readable(X, self.n_features_in_),
            accept_sparse="csr",
            reset=False,
            dtype=(np.float64, np.float32),
            ensure_all_finite=False,
            ensure_min_samples=0,
        )
        bound = self.feature_bound
        X = _finite(X) if bound is None else _bounded(X, bound).astype(np.float64) * bound
        margins: FloatArray = X @ self.coef_.T + self.intercept_
        return margins

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        # Each cell is read by itself; what is no number counts 0.
        tags.input_tags.string = True
        tags.non_deterministic = self.random_state is None
        return tags


@dataclass(frozen=True)
class Plan:
    """What a fit will publish.

    Args:
        mean: the noisy gradients, for a clipping bound of 1.
        norms: the histogram of norms, where something is chosen inside the budget.
        evidence: the second moments for confidence intervals.
        roster: the number of users, and its release where it is not stated.
        names: the selection of labels, where they are not stated.
    """

    mean: ClippedMean
    norms: Gaussian | None
    evidence: Gaussian | None
    roster: Roster
    names: Selection | None = None

    @property
    def event(self) -> Event:
        """All of it, for the accountant."""
        return self.mean.event.beside(
            beside(self.norms, self.evidence, self.roster.event, self.names)
        )


def _records(
    X: Any,
    targets: FloatArray,
    codes: NDArray[Any],
    blocks: int,
    *,
    intercept: bool,
) -> RecordBlocks:
    """Dense rows by block, with a column of ones for an intercept; rows without target left out."""
    there = np.isfinite(targets)
    dense = _finite(X[there].toarray() if sparse.issparse(X) else X[there])
    if intercept:
        dense = np.column_stack([dense, np.ones(len(dense))])
    return RecordBlocks.arrange(dense, targets[there], codes[there], blocks=blocks)


def _table(X: Any, features: int | None) -> Any:
    """Features of two dimensions; scikit-learn's own errors would quote rows, or count them."""
    found = readable(X, features)
    if len(found.shape) != 2:
        raise ParameterError(
            f"X must be (m, d). Expected 2D array, got {len(found.shape)}D array instead. Reshape your "
            "data: X.reshape(-1, 1) if it has one feature."
        )
    if found.shape[1] == 0:
        # As scikit-learn says it, but for the number of rows.
        raise ParameterError(
            "X must have a feature: it has 0 feature(s) (shape=(, 0)) while a minimum of 1 is required."
        )
    if features not in (None, found.shape[1]):
        raise ParameterError(
            f"n_features = {features} must be the number of features, which is {found.shape[1]}."
        )
    return found


def _vector(y: Any, rows: int) -> NDArray[Any]:
    """Targets as a one-dimensional array."""
    if y is None:
        raise ParameterError("this estimator requires y to be passed, but the target y is None.")
    found: Any = column(y)
    if not isinstance(found.dtype, np.dtype):
        # A type with nulls, which NumPy would turn into floats or text.
        found = found.to_numpy(dtype=object)
    array: NDArray[Any] = np.asarray(found)
    if array.dtype.kind == "c":
        raise ParameterError("y must be real. Complex data not supported: pass y.real.")
    if array.ndim != 1 and not (array.ndim == 2 and array.shape[1] == 1):
        raise ParameterError("y must be (m,), one target for each row, not of more dimensions.")
    array = column_or_1d(array, warn=True)
    if len(array) != rows:
        raise ParameterError("y must have one target for each row of X, no more and no fewer.")
    return array


def _finite(X: Any) -> Any:
    """Features with 0 for what is not finite."""
    if not sparse.issparse(X):
        return np.where(np.isfinite(X), X, 0)
    X = X.copy()
    X.data[~np.isfinite(X.data)] = 0
    return X


def _bounded(X: Any, bound: float) -> Any:
    """Rows divided by the bound, shortened to norm 1 if longer; what is not finite counts 0."""
    kind = X.dtype
    # In double precision: squares of single-precision numbers overflow, and small bounds are zeros.
    X = _finite(X).astype(np.float64)
    with np.errstate(all="ignore"):
        if sparse.issparse(X):
            X = X.tocsr()
            norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
            large = ~np.isfinite(norms)
            if large.any():
                # Divided by the largest entry first.
                most = np.where(large, abs(X).max(axis=1).toarray().ravel(), 1.0)
                X = (sparse.diags_array(1 / most) @ X).tocsr()
                norms[large] = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())[large]
            by = np.where(large, norms, np.maximum(norms, bound))
            return (sparse.diags_array(1 / by) @ X).tocsr().astype(kind)
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        large = ~np.isfinite(norms[:, 0])
        X[large] /= np.abs(X[large]).max(axis=1, keepdims=True, initial=0.0)
        norms[large] = np.linalg.norm(X[large], axis=1, keepdims=True)
        return (X / np.where(large[:, None], norms, np.maximum(norms, bound))).astype(kind)
