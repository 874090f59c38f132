"""Base of private linear models: parameters, fits and predictions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from dpgrain._formatting import format_facts
from dpgrain._report_mixins import ModelReportMixin
from dpgrain._types import FloatArray
from dpgrain.errors import ParameterError
from dpgrain.inputs.array_blocks import default_unit
from dpgrain.inputs.guarantees import Sampling
from dpgrain.inputs.numbers import numeric_table
from dpgrain.inputs.record_limit import Weights
from dpgrain.learn.bounding import bounded, finite
from dpgrain.learn.classes import TargetRule, Targets
from dpgrain.learn.confidence import Evidence, Intervals, intervals
from dpgrain.learn.files import ModelFile, write
from dpgrain.learn.fit_config import FitConfig
from dpgrain.learn.fit_data import Classes, FitResult
from dpgrain.learn.program import Recipe
from dpgrain.learn.query import FitQuery
from dpgrain.learn.rounds import History
from dpgrain.learn.rows import (
    feature_table,
    ridge_strengths,
    rows_of,
    target_vector,
    without_rows,
)
from dpgrain.learn.tuning import tuned_query
from dpgrain.noise import RandomState
from dpgrain.numerics.row_products import products
from dpgrain.optimize import MarginLoss, Solver
from dpgrain.publishing import Query, publish
from dpgrain.publishing.call import recorded
from dpgrain.publishing.facts import Fact
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.publishing.origins import PickleOrigin
from dpgrain.units import PLAIN_UNITS, Relation, Trust, Unit, User
from dpgrain.words.fit_text import coefficients, describe_model_weights
from dpgrain.words.odds import privacy_sections

# The last line below a printed model.
_POINTER = "What the numbers mean: .explain(). Full guarantee: print(.guarantee_)"
# Public fact of every fit of a clone. A model cannot see what is computed around its copies.
_COPIED = Fact("copied-model")


@dataclass(kw_only=True, repr=False, eq=False)
class LinearModel(ModelReportMixin, BaseEstimator):  # type: ignore[misc]
    """Linear model fitted under differential privacy; subclasses define the loss.

    Args:
        unit: the protected unit: ``User()``, ``User(max_elements=M)``, ``Element()`` or
            ``Record()``. By default (None), a user if users are passed to the fit, otherwise a
            record (one row); the others require users. Elements require ``fit(…, elements=…)``.
        relation: how neighbours differ: by a removed unit, ``zero_out``, or a replaced unit,
            ``replace``.
        epsilon: the ε of the guarantee, such as 1; a smaller ε protects more.
        delta: the δ of the guarantee, in (0, 1), such as 1e-6.
        share: the share of the budget that is open at the fit, instead of ε and δ; see
            :func:`dpgrain.budget`.
        clip: the clipping bound of a block's mean gradient, a number or ``auto``. It bounds the l2
            norm. ``"auto"`` chooses it within the budget, with a tenth of it: near the solution,
            the bound beyond which no gradients are significant compared with noise, or the median
            norm if noise obscures all others. The share of clipped gradients therefore decreases
            with more users or a larger ε. By default (None) ``"auto"`` for ``algorithm="auto"``,
            otherwise 1. A number is the bound for any ε: if many gradients exceed it, coefficients
            are biased for any number of users (for squared losses towards medians, for whole users
            towards users with many records). Without a curator, ``"auto"`` is the default for every
            solver: a tenth of the budget counts norms in each round, and the bound of the next
            round follows them.
        rounds: the number of noisy gradients; by default 50 passes, or 100 if ``clip`` is set.
        sampling_rate: the probability of being in a round's sample; by default 1, or less for a
            stated number of users above 50,000.
        sampling: the sample of a round: independent blocks, ``pairs``; users with all their blocks,
            ``users``; or everything, ``full``. Sampling users costs more.
        algorithm: ``"auto"`` for coin betting, which needs no step size, followed after a fifth of
            the rounds by :class:`~dpgrain.optimize.FullMatrixAdagrad`; with an explicit ``clip``,
            or more than 100 coefficients, only coin betting. Or a solver of
            :mod:`dpgrain.optimize`, such as ``Sgd(Power(0.5, 0.6))``; or, for ``User()``, a recipe
            from :mod:`dpgrain.papers`, with its own mean, radius, rounds and steps.
        trust: the party with access to data: the curator who fits, ``central``; only a shuffler of
            noisy messages, ``shuffle``; or a stream with a state that may be seen once, ``pan``.
            The last two are for ``User()``. ``"shuffle"``: devices add noise and a trusted shuffler
            mixes their messages; by default all of them in every round,
            :class:`~dpgrain.papers.ShuffleConcentrated` with ``clip``, ``rounds`` and a solver as
            ``algorithm``. ``"pan"``: the curator processes users one after the other, by index in
            the population from 0; by default :class:`~dpgrain.papers.PanPrivateConcentrated`,
            likewise. A recipe must have the stated type of trust.
        l2: the public strength λ of the ridge λ/2·‖coef‖².
        fit_intercept: fit an intercept.
        feature_bound: the public bound on the l2 norm of a row; rows above it are clipped. Rows are
            divided by it before the fit, so ``clip=1.0`` is suitable. None: unchanged.
        n_features: the public number of features. It is known for an array, a frame or a table, but
            required for a list of rows; list rows of another length are 0 in every feature.
        n_users: the public number of users; by default, an approximate number is released. This is
            the noisy number of users with records, with 3% of the budget, and sums are divided by
            it. Recipes, and fits without a curator, require it.
        elements_per_user: the number of blocks per user by which sums are divided, a public number
            or ``auto``. ``auto`` chooses it within the budget, with ``clip="auto"`` at no further
            cost. ``algorithm="auto"`` does not depend on it.
        weights: equal weight for all ``users``, or weights by their number of ``records``, up to
            ``max_records``. The latter fits the average record, not the average person; only for
            ``User()`` and a curator's fit in this process. The mean gradient of a user is
            multiplied by min(records, max_records)/max_records. Sums are divided by the number of
            users, so a ridge is stronger: ``explain()`` states by how much.
        max_records: the public number of a user's records above which the weight no longer grows,
            with ``weights="records"``. If it is None, a number that few users exceed is chosen
            privately, with 10% of the budget.
        intervals: the share of the budget for intervals, such as 0.2. They are those of
            :meth:`confidence_intervals`; 0 for none.
        exact: add blocks as integers, so that the order of rows is irrelevant; slower. The rows of
            each block are sorted by value; otherwise sums use floating point. Blocks of a Spark
            frame are always added as integers.
        random_state: a seed, for tests and research: it makes the fit NOT private.
        tune: parameters to choose within the guarantee, as a mapping of names to lists of values,
            or a list of settings: the best of a random number of fits, each with a part of the
            budget. The guarantee does not cover a choice by ``GridSearchCV``.
        verbose: show progress from the start; otherwise it shows after two seconds, on a terminal.

    Attributes:
        guarantee_: the guarantee of the fit.
        query_: the public part of its query, without rows or a seed.
        coef_: the coefficients.
        intercept_: the intercept.
        history_: the noisy gradients, round by round.
        evidence_: noisy second moments for intervals; None without a budget for them.
        n_iter_: the number of rounds in ``history_``, which produced the model.
        n_warm_up_: the number of earlier rounds that only find the neighbourhood of the solution;
            the guarantee covers the sum of both.
        n_features_in_: the number of features.
        n_users_: the divisor of sums in users: the stated number, or the released noisy number.
        max_records_: the largest number of a user's records that counts, with weights by records.
        parameters_: the parameters of the fit: as set, except for the setting that ``tune`` chose,
            and the ε and δ of a ``share``. The model's own parameters remain unchanged.

    >>> from dpgrain.learn import LinearRegression
    >>> rng, users = np.random.default_rng(0), np.repeat(np.arange(2000), 2)
    >>> X = rng.uniform(-1, 1, size=(4000, 1)); y = 2 * X[:, 0]
    >>> model = LinearRegression(unit=User(), epsilon=1.0, random_state=0).fit(X, y, users=users)
    >>> model.coef_.round(1).tolist(), model.guarantee_.level
    ([2.0], 'user')
    >>> round(model.guarantee_.epsilon(), 2), round(model.guarantee_.epsilon(units=2), 2)
    (1.0, 2.12)
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
    algorithm: Literal["auto"] | Solver[Any] | Recipe = "auto"
    trust: Trust = "central"
    l2: float = 0.0
    fit_intercept: bool = True
    feature_bound: float | None = None
    n_features: int | None = None
    n_users: int | None = None
    elements_per_user: float | Literal["auto"] = 1.0
    weights: Weights = "users"
    max_records: int | None = None
    intervals: float = 0.0
    exact: bool = False
    tune: Any = None
    random_state: RandomState = None
    verbose: bool = False

    # True if scikit-learn cloned this model. Without an annotation it is not a parameter.
    _copied = False
    # Open budgets and ledgers where this model was pickled, for detection in another process.
    _sent = cast("PickleOrigin | None", None)

    def __sklearn_clone__(self) -> Self:
        copy: Self = super().__sklearn_clone__()
        copy._copied, copy._sent = True, self._sent
        return copy

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_sent": PickleOrigin.current(self._sent)}

    def fit(self, X: Any, y: Any, *, users: Any = None, elements: Any = None) -> Self:
        """Fit the model.

        Args:
            X: (m, d) features: an array, a data frame, an Arrow table or a sparse matrix; or a list
                of rows (with ``n_features``). Non-finite numbers are treated as 0, and so are all
                values of a list's row unless it has d cells, and non-numeric cells of a column of
                objects; a column of text type is rejected. Or a Spark frame, whose rows remain on
                the cluster: ``y``, ``users`` and ``elements`` then name its columns, all others are
                features, and each round adds all blocks, as with ``exact=True, sampling="full"``.
            y: (m,) targets. A row with a non-finite target, or an unknown class, is dropped.
            users: (m,) the user id of each row; None protects only rows (see ``unit``), and is
                rejected by recipes, which protect whole users. A row without a user id is dropped.
                For the equality of labels see :mod:`dpgrain.inputs.labels`.
            elements: (m,) the cell of each row in a public partition; see ``unit``.

        Raises:
            ParameterError: if a parameter is out of range or shapes do not fit, before anything is
                published.

        Formal guarantee: :attr:`guarantee_`, (ε, δ)-DP for the unit and relation, for any data. It
        covers every iterate, :attr:`history_`, and the releases of ``"auto"`` and ``intervals``.
        Source: element-level paper, Algorithm 1 and (15), with sampled blocks instead of users.
        """
        for earlier in self._results:
            delattr(self, earlier)
        fitted = publish(self.query(X, y, users=users, elements=elements))
        self.__dict__.update(fitted._results)
        return self

    @recorded
    def query(self, X: Any, y: Any, *, users: Any = None, elements: Any = None) -> Query[Self]:
        """Validate a fit, and return it as a query; nothing is read.

        Args:
            X: (m, d) features, as for :meth:`fit`.
            y: (m,) targets.
            users: (m,) the user id of each row.
            elements: (m,) the cell of each row.

        Returns:
            a query with a copy of the parameters, so later changes of this model have no effect.
            :func:`dpgrain.publish` returns another model of this class, which is fitted.

        Raises:
            ParameterError: as :meth:`fit`.
        """
        config = self.config()
        if self._sent is not None:
            self._sent.check()
        rows = rows_of(X, y, users, elements)
        unit = User() if config.unit is None and config.recipe is not None else config.unit
        promise = replace(config.promise, unit=default_unit(unit, rows.users, config.n_users))
        if self.tune is not None and not rows.distributed:
            return cast("Query[Self]", tuned_query(config, promise, rows))
        return cast("Query[Self]", FitQuery.of(config, promise, rows))

    @property
    def _results(self) -> dict[str, Any]:
        """Attributes of the fit, by name."""
        return {name: value for name, value in vars(self).items() if name.endswith("_")}

    def read(self, X: Any, y: Any) -> tuple[Any, Targets]:
        """Return features and targets as numbers, with their public facts.

        Args:
            X: (m, d) features, as for :meth:`fit`.
            y: (m,) targets.

        Raises:
            ParameterError: if they have other shapes.
        """
        X = validate_data(
            self,
            feature_table(X, self.n_features),
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            ensure_all_finite=False,
            # A table with one user is a neighbour of an empty table.
            ensure_min_samples=0,
        )
        targets = self._targets(target_vector(y, X.shape[0]))
        if self._copied:
            targets = replace(targets, public=(*targets.public, _COPIED))
        return X, targets

    def confidence_intervals(self, level: float = 0.95) -> Intervals:
        """Return intervals for the coefficients and the intercept, if there is one.

        Args:
            level: the nominal coverage, strictly between 0 and 1.

        Returns:
            the corrected averages with their intervals. They are free post-processing of the
            published fit. If noise obscures the curvature, for example for a feature on a small
            scale, or rounds have not converged, the errors are unknown: intervals are then
            unbounded, and printing them shows the reason.

        Raises:
            ParameterError: if the fit has no budget for intervals (``intervals=0.2`` reserves a
                fifth).

        For independent and identically distributed users, intervals cover sampling and noise, for
        the root of the mean clipped gradient, for any true model and without the ridge. If the
        bound was chosen privately, they are widened by an estimate of the effect of clipping. The
        coverage is asymptotic in the number of rounds: in simulations with sampled blocks and eight
        rounds, 93.75% of intervals were correct at a nominal 95%. Source: element-level paper,
        Theorem 1 and Proposition 3, for sampled blocks; docs/theory, "Intervals".
        """
        check_is_fitted(self)
        if self.evidence_ is None:
            raise ParameterError(
                "intervals must be above 0 at the fit for confidence_intervals; intervals=0.2 "
                "reserves a fifth of the budget for them."
            )
        fitted, config, bias = self.fitted_, self.config_, 0.0
        if fitted.norms:
            bias = fitted.history.clip * fitted.norms[-1].excess(fitted.history.clip)
            if config.elements_per_user != "auto":
                blocks = self.evidence_.n_users * config.elements_per_user
                bias *= fitted.norms[-1].blocks / blocks
        width = self.n_features_in_ + config.fit_intercept
        scale = np.full((fitted.outputs, width), self.target_scale)
        scale[:, : self.n_features_in_] /= config.feature_bound or 1.0
        return intervals(
            self.evidence_,
            self.history_,
            fitted.theta,
            ridge_strengths(config, fitted.outputs, self.n_features_in_),
            np.diag(scale.ravel()),
            self.parameter_names(fitted.outputs),
            level,
            sampled=fitted.sampled,
            bias=bias,
            hidden=bool(fitted.norms) and not fitted.norms[-1].resolved,
            estimand="" if fitted.max_records is None else describe_model_weights(self),
        )

    def config(self) -> FitConfig:
        """Return a validated copy of the parameters.

        Raises:
            ParameterError: if one is out of range, by its name.
        """
        config = FitConfig.create(self)
        self.loss(None)
        return config

    @property
    def config_(self) -> FitConfig:
        """Parameters used by the fit."""
        check_is_fitted(self)
        stated = self.parameters_["unit"]
        unit = PLAIN_UNITS[self.guarantee_.level] if stated is None else stated
        return FitConfig.create(type(self)(**{**self.parameters_, "unit": unit}))

    def adopt(
        self,
        fitted: FitResult,
        guarantee: Guarantee | None = None,
        *,
        tuned: dict[str, Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Self:
        """Adopt the published results of a fit.

        Args:
            fitted: the published results.
            guarantee: the guarantee; None for a fit that is covered by another guarantee.
            tuned: the setting that was chosen.
            parameters: the parameters of the fit; by default, the model's own.
        """
        own = self.get_params(deep=False) if parameters is None else parameters
        self.parameters_ = {**own, **(tuned or {})}
        intercept, bound = self.parameters_["fit_intercept"], self.parameters_["feature_bound"]
        theta = fitted.theta.reshape(fitted.outputs, -1)
        width = self.n_features_in_ = theta.shape[1] - intercept
        offset = theta[:, width] if intercept else np.zeros(fitted.outputs)
        coef = theta[:, :width] / (bound or 1.0)
        self._set(coef * self.target_scale, offset * self.target_scale)
        self.fitted_ = fitted
        self.history_: History = fitted.history
        self.evidence_: Evidence | None = fitted.evidence
        self.n_iter_, self.n_warm_up_ = fitted.rounds, fitted.warm_up
        if fitted.n_users is not None:
            self.n_users_ = fitted.n_users
        if fitted.max_records is not None:
            self.max_records_ = fitted.max_records
        if fitted.classes is not None:
            self.classes_ = fitted.classes
        if guarantee is not None:
            self.guarantee_ = guarantee
        if tuned is not None:
            self.tuned_ = tuned
        return self

    def save(self, path: str | Path) -> Path:
        """Write the model with guarantee and history, for :func:`dpgrain.learn.load`.

        Args:
            path: the file.

        Returns:
            The path.

        Raises:
            ParameterError: if the model has a custom class, or a parameter cannot be written.
            DataError: if the file cannot be written; no partial file remains.

        The file contains only the published results of the fit, including its rounds, so it may be
        published under the model's guarantee. A seed is not written.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        contents = ModelFile(
            type(self).__name__,
            self.parameters_,
            self.fitted_,
            self.guarantee_,
            self.coef_,
            self.intercept_,
            None if names is None else tuple(str(name) for name in names),
            getattr(self, "encoding_", None),
            getattr(self, "target_", None),
            getattr(self, "tuned_", None),
        )
        # For human readers; when the file is read, intervals are recomputed from the second
        # moments.
        intervals = None if self.evidence_ is None else self.confidence_intervals()
        return write(contents, path, intervals)

    def restore(self, contents: ModelFile) -> Self:
        """Restore the model from a file.

        Args:
            contents: the contents of the file; the model already has its parameters.
        """
        self.adopt(contents.fitted, contents.guarantee, tuned=contents.tuned)
        # Bitwise equal to the written values.
        self.coef_: FloatArray = contents.coef
        self.intercept_: Any = contents.intercept
        if contents.features is not None:
            self.feature_names_in_ = np.array(contents.features, dtype=object)
        if contents.encoding is not None:
            self.encoding_ = contents.encoding
        if contents.target is not None:
            self.target_ = contents.target
        return self

    def parameter_names(self, outputs: int) -> tuple[str, ...]:
        """Return the names of all coefficients.

        Args:
            outputs: the number of margins of a row.
        """
        features = getattr(self, "feature_names_in_", None)
        names = (
            [f"x{i}" for i in range(self.n_features_in_)] if features is None else list(features)
        )
        names += ["intercept"] * self.parameters_["fit_intercept"]
        if outputs == 1:
            return tuple(names)
        return tuple(f"{label}: {name}" for label in self.classes_ for name in names)

    def margins(self, X: Any) -> FloatArray:
        """Return the linear predictors of rows: (m,), or (m, C) for a classifier.

        Args:
            X: (m, d) features.
        """
        check_is_fitted(self)
        with without_rows("X", "X must be a table of numbers: one row for each record."):
            X = validate_data(
                self,
                numeric_table(X, self.n_features_in_),
                accept_sparse="csr",
                reset=False,
                dtype=(np.float64, np.float32),
                ensure_all_finite=False,
                ensure_min_samples=0,
            )
        bound = self.parameters_["feature_bound"]
        X = finite(X) if bound is None else bounded(X, bound).astype(np.float64) * bound
        margins: FloatArray = _row_by_row(X, self.coef_) + self.intercept_
        return margins

    def __str__(self) -> str:
        """Return the model, and if it is fitted its coefficients, notes and the short guarantee."""
        if not hasattr(self, "fitted_"):
            return repr(self)
        fitted = repr(type(self)(**self.parameters_))
        return "\n".join((fitted, str(coefficients(self)), self.guarantee_.summary, _POINTER))

    def explain(self) -> str:
        """Describe the coefficients, the effect of clipping and the guarantee.

        Raises:
            NotFittedError: if the model is not fitted.
        """
        check_is_fitted(self)
        summary = coefficients(self)
        facts = {
            **summary.explanations,
            "Warning": " ".join(summary.cautions),
            "Errors": summary.unsure,
        }
        sections = {name: fact for name, fact in facts.items() if fact}
        sections |= privacy_sections(self.guarantee_, getattr(self, "shares_", {}))
        return format_facts(type(self).__name__, sections)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        """Return scikit-learn's diagram, then coefficients, notes and the short guarantee."""
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        if hasattr(self, "fitted_"):
            bundle["text/plain"] = str(self)
            if "text/html" in bundle:
                below = "\n".join((str(coefficients(self)), self.guarantee_.summary, _POINTER))
                bundle["text/html"] += f'<pre style="white-space: pre-wrap">{escape(below)}</pre>'
        return bundle

    # -- implemented by subclasses --

    @property
    def adds_to(self) -> str:
        """Description of the quantity that coefficients change."""
        return "the prediction"

    @abstractmethod
    def loss(self, classes: Classes) -> MarginLoss:
        """Return the loss of a record as a function of its margin.

        Args:
            classes: the labels; None for numbers, or if they are not known yet.
        """

    @abstractmethod
    def _targets(self, y: NDArray[Any]) -> Targets:
        """Return targets for the loss, or labels before their selection."""

    def _rule(self, classes: Classes) -> TargetRule:  # noqa: ARG002 - others have one
        """Return the rule for targets on workers, which a custom model may lack."""
        raise ParameterError(
            f"{type(self).__name__} cannot be fitted to rows on a cluster; use a model of "
            "dpgrain.learn, or minimise with its loss."
        )

    @property
    def target_scale(self) -> float:
        """Divisor of targets."""
        return 1.0

    def _set(self, coef: FloatArray, intercept: FloatArray) -> None:
        """Set ``coef_`` and ``intercept_`` in scikit-learn's shapes."""
        self.coef_, self.intercept_ = coef[0], float(intercept[0])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        # Each cell is read separately; non-numeric cells become 0.
        tags.input_tags.string = True
        tags.non_deterministic = self.random_state is None
        return tags


def _row_by_row(X: Any, coef: FloatArray) -> FloatArray:
    """Multiply rows by coefficients, with rounding independent of other rows."""
    # The rounding of a matrix product depends on the number of rows, and tuning computes scores
    # from margins.
    if sparse.issparse(X):
        return np.asarray(X @ coef.T)
    result = products(np.ascontiguousarray(X, dtype=np.float64), np.atleast_2d(coef))
    return result[:, 0] if coef.ndim == 1 else result
