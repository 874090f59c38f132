"""For any arguments public functions return or raise a clear error, and quote no row."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.effort import Effort
from tests.fuzz import calls, test_readers, test_words

PUBLIC = calls.public()


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLIC)
def test_public_functions_return_or_raise_clearly(
    name: str, effort: Effort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = 1 - test_readers.SHARE - test_words.SHARE
    each = max(round(effort.inputs * share / len(PUBLIC)), 1)
    calls.answers_or_refuses(name, each, tmp_path, monkeypatch)


# Calls that ended in other errors, took a wrong value for a right one, or quoted what they were given.
FOUND: tuple[tuple[str, str, str], ...] = (
    ("dpgrain.Ledger", "place", "7"),
    ("dpgrain.Ledger", "place", "'\\ud800'"),
    ("dpgrain.Ledger", "place", "a long text"),
    ("dpgrain.Ledger", "expected", "a frame"),
    ("dpgrain.audit_releases", "path", "3.7"),
    ("dpgrain.best_of", "run", "[[]]"),
    ("dpgrain.best_of", "source", "[[]]"),
    ("dpgrain.Risk", "guess", "None"),
    ("dpgrain.budget", "plan", "3.7"),
    ("dpgrain.count", "share", "a table"),
    ("dpgrain.count", "progress", "a frame"),
    ("dpgrain.distribution", "at", "text as objects"),
    ("dpgrain.distribution", "value", "None"),
    ("dpgrain.mean", "value", "None"),
    ("dpgrain.quantile", "value", "None"),
    ("dpgrain.sum", "value", "None"),
    ("dpgrain.plan_releases", "path", "'\\ud800'"),
    ("dpgrain.audit_releases", "path", "'\\ud800'"),
    ("dpgrain.histogram", "nonnegative", "text as objects"),
    ("dpgrain.histogram", "domain", "a long text"),
    ("dpgrain.mean", "value", "a list in itself"),
    ("dpgrain.sum", "bounds", "text as objects"),
    ("dpgrain.sum", "noise", "a frame"),
    ("dpgrain.plan_histogram", "cell_of_item", "a matrix"),
    ("dpgrain.plan_releases", "path", "[1]"),
    ("dpgrain.plan_releases", "folder", "(1, 0)"),
    ("dpgrain.publish", "query", "inf"),
    ("dpgrain.quantile", "value", "a frame"),
    ("dpgrain.quantiles", "bins", "text as objects"),
    ("dpgrain.quantiles", "q", "text as objects"),
    ("dpgrain.quantile", "q", "10**400"),
    ("dpgrain.read", "delimiter", "None"),
    ("dpgrain.read", "types", "'a'"),
    ("dpgrain.select", "candidates", "np.float64(nan)"),
    ("dpgrain.top", "domain", "a table"),
    ("dpgrain.datasets.loans", "typical", "2147483648"),
    ("dpgrain.papers.element_sensitivity", "function", "a class"),
    ("dpgrain.planning.plan_mean", "error", "1e-320"),
    ("dpgrain.select", "data", "1j"),
    ("dpgrain.accounting.Compose", "events", "text as objects"),
    ("dpgrain.accounting.calibrate", "make_event", "-1"),
    ("dpgrain.accounting.calibrate_gaussian", "contribution", "[]"),
    ("dpgrain.accounting.calibrate_laplace", "contribution", "[]"),
    ("dpgrain.accounting.gaussian_delta", "mu", "10**400"),
    ("dpgrain.accounting.gaussian_delta", "epsilon", "ones"),
    ("dpgrain.accounting.gaussian_epsilon", "delta", "a matrix"),
    ("dpgrain.learn.cross_validated", "guarantee", "-0.0"),
    ("dpgrain.learn.load", "path", "three axes"),
    ("dpgrain.learn.load", "path", "''"),
    ("dpgrain.learn.minimise", "start", "text as objects"),
    ("dpgrain.learn.minimise", "loss", "a series"),
    ("dpgrain.means.ClippedMean", "exact", "text as objects"),
    ("dpgrain.means.Recentred", "shares", "Decimal('0.5')"),
    ("dpgrain.means.Recentred", "centre", "'\\x00'"),
    ("dpgrain.means.Shuffled", "protocol", "a function"),
    ("dpgrain.means.clipped", "vectors", "7"),
    ("dpgrain.means.clipped", "clip", "a matrix"),
    ("dpgrain.noise.binomial", "source", "[1]"),
    ("dpgrain.noise.discrete_laplace", "source", "True"),
    ("dpgrain.noise.discrete_laplace", "scale", "a list in itself"),
    ("dpgrain.noise.rounded", "values", "1j"),
    ("dpgrain.noise.rounded", "largest", "{1: [2]}"),
    ("dpgrain.optimize.Affine", "A", "10**400"),
    ("dpgrain.optimize.Affine", "b", "1e+308"),
    ("dpgrain.optimize.Box", "low", "a frame"),
    ("dpgrain.optimize.Truncated", "lower", "ones"),
    ("dpgrain.optimize.run", "theta", "a long text"),
    ("dpgrain.noise.poisson", "mean", "1e+308"),
    ("dpgrain.optimize.Box", "high", "a matrix"),
    ("dpgrain.optimize.run", "solver", "a matrix"),
    ("dpgrain.optimize.run", "oracle", "1e+308"),
    ("dpgrain.optimize.run", "callback", "2147483648"),
    ("dpgrain.optimize.run", "theta", "-inf"),
    ("dpgrain.papers.Known", "smoothness", "ones"),
    ("dpgrain.papers.PanPrivateStream", "mean", "7"),
    ("dpgrain.papers.d_user", "cell", "np.float32(0.5)"),
    ("dpgrain.papers.d_user", "x", "np.array(0.5)"),
    ("dpgrain.papers.d_element", "other", "3.7"),
    ("dpgrain.papers.element_sensitivity", "function", "1e-09"),
    ("dpgrain.papers.element_sensitivity", "blocks", "1"),
    ("dpgrain.papers.gradient_mapping", "domain", "a long text"),
    ("dpgrain.papers.gradient_mapping", "gradient", "Ellipsis"),
    ("dpgrain.papers.localise", "plan", "a class"),
    ("dpgrain.papers.localise", "solvers", "a function"),
    ("dpgrain.papers.localise", "theta", "text as objects"),
    ("dpgrain.papers.localise", "callback", "[nan]"),
    ("dpgrain.papers.middle_scores", "held", "a long text"),
    ("dpgrain.papers.middle_scores", "candidates", "a frame"),
    ("dpgrain.planning.plan_counts", "plan", "ragged"),
    ("dpgrain.planning.plan_table", "queries", "ragged"),
    ("dpgrain.planning.plan_table", "epsilons", "text as objects"),
    ("dpgrain.audit", "units", "text as objects"),
    ("dpgrain.audit_training", "canaries", "2147483648"),
    ("dpgrain.elements_per_user", "edges", "text as objects"),
    ("dpgrain.marginals", "domain", "np.array(0.5)"),
    ("dpgrain.marginals", "workload", "a series"),
    ("dpgrain.learn.minimise", "sampling_rate", "1e-320"),
    ("dpgrain.means.ClippedMean", "bands", "np.array([])"),
    ("dpgrain.optimize.Affine", "A", "1e-320"),
    ("dpgrain.optimize.run", "oracle", "a class"),
    ("dpgrain.papers.element_sensitivity", "blocks", "text as objects"),
    ("dpgrain.papers.gradient_mapping", "size", "1e-320"),
    ("dpgrain.papers.min_error", "signed", "np.array([])"),
    ("dpgrain.planning.plan_gradient", "epsilon", "1e+308"),
    ("dpgrain.planning.plan_mean", "epsilon", "1e+308"),
    ("dpgrain.planning.plan_recurrent", "every", "text as objects"),
    ("dpgrain.planning.plan_select", "epsilon", "9223372036854775808"),
    ("dpgrain.planning.plan_units", "records", "Fraction(1, 3)"),
    ("dpgrain.read", "decimal", "np.array([])"),
    ("dpgrain.read", "source_env", "True"),
    ("dpgrain.select", "score", "a series"),
    ("dpgrain.select", "data", "np.float64(nan)"),
    ("dpgrain.select", "candidates", "a frame"),
    ("dpgrain.select", "candidates", "np.array(0.5)"),
    # A list in itself ended the process.
    ("dpgrain.noise.SeededSource", "seed", "a list in itself"),
)


@pytest.mark.slow(cases=8)
@pytest.mark.parametrize(("name", "parameter", "odd"), FOUND)
def test_past_findings_raise_clear_errors(name: str, parameter: str, odd: str) -> None:
    assert calls.found(name, "", parameter, odd) is None


# Methods of tables, ledgers and releases.
FOUND_METHODS: tuple[tuple[str, str, str, str], ...] = (
    ("dpgrain.UserTable", "where", "columns", "np.array(0.5)"),
    ("dpgrain.UserTable", "derive", "columns", "a frame"),
    ("dpgrain.SharedTable", "with_cells", "by", "a frame"),
    ("dpgrain.UserTable", "per_user", "by", "3.7"),
    ("dpgrain.UserTable", "check", "bounds", "a series"),
    ("dpgrain.UserTable", "join", "columns", "an odd object"),
    ("dpgrain.UserTable", "where", "year", "np.array(0.5)"),
    ("dpgrain.UserTable", "with_cells", "by", "a long text"),
    ("dpgrain.Ledger", "charge", "again", "a series"),
    ("dpgrain.Ledger", "charge", "mark", "[None, 1]"),
    ("dpgrain.Histogram", "pivot", "rows", "{1: [2]}"),
    ("dpgrain.Histogram", "pivot", "value", "ones"),
    ("dpgrain.UserTable", "check", "item", "-1"),
    ("dpgrain.UserTable", "check", "item", "[1]"),
    ("dpgrain.UserTable", "check", "value", "9223372036854775808"),
    ("dpgrain.UserTable", "check", "zero", "1000000000.0"),
    ("dpgrain.UserTable", "check", "bounds", "inf"),
    ("dpgrain.UserTable", "check_counts", "bounds", "range(3)"),
    ("dpgrain.Elements", "from_period", "missing", "np.array([])"),
    ("dpgrain.Elements", "from_mapping", "name", "a frame"),
    ("dpgrain.Elements", "from_mapping", "source", "a series"),
    ("dpgrain.Elements", "from_mapping", "source", "a long text"),
    ("dpgrain.Elements", "kmeans", "random_state", "np.array(0.5)"),
    ("dpgrain.Elements", "kmeans", "vectors", "many names"),
    ("dpgrain.Guarantee", "plot", "ax", "b'x'"),
    ("dpgrain.Guarantee", "report", "path", "a long text"),
    ("dpgrain.Guarantee", "report", "path", "1e-320"),
    ("dpgrain.Histogram", "plot", "ax", "a matrix"),
    ("dpgrain.Histogram", "consistent", "total", "a list in itself"),
    ("dpgrain.Histogram", "order_loss", "truth", "a class"),
    ("dpgrain.Histogram", "save", "path", "'\\x00'"),
    ("dpgrain.Histogram", "save", "path", "text as objects"),
    ("dpgrain.LastingPromise", "renewed", "plan", "1e+308"),
    ("dpgrain.Ledger", "add", "promise", "('a', 'b')"),
    ("dpgrain.Ledger", "create", "promises", "a class"),
    ("dpgrain.Ledger", "create", "promises", "np.array(0.5)"),
    ("dpgrain.PlannedReleases", "run", "progress", "np.array([])"),
    ("dpgrain.Ledger", "fullest", "number", "a frame"),
    ("dpgrain.Ledger", "contains", "receipt", "{'a': 1}"),
    ("dpgrain.Ledger", "left", "region", "many names"),
    ("dpgrain.Ledger", "renewal_text", "number", "'\\ud800'"),
    ("dpgrain.PlannedReleases", "with_epsilon", "epsilon", "None"),
    ("dpgrain.Ledger", "projected_charges", "number", "three axes"),
    ("dpgrain.Releases", "report", "path", "None"),
    ("dpgrain.learn.LinearRegression", "predict", "X", "ones"),
    ("dpgrain.learn.LinearRegression", "score", "y", "np.array([])"),
    ("dpgrain.learn.LinearSVC", "score", "sample_weight", "9223372036854775808"),
    ("dpgrain.planning.ErrorPlan", "__getitem__", "name", "ones"),
    ("dpgrain.planning.UnitsPlan", "__getitem__", "level", "a table"),
    ("dpgrain.planning.UnitsPlan", "plot", "ax", "[]"),
    ("dpgrain.shuffle.Analyzer", "estimate_messages", "reports", "None"),
    ("dpgrain.shuffle.Analyzer", "standard_error", "reports", "Ellipsis"),
    ("dpgrain.shuffle.VectorSum", "simulate", "dropped", "a list in itself"),
    ("dpgrain.shuffle.ScalarSum", "simulate", "corrupt", "ragged"),
    ("dpgrain.shuffle.VectorSum", "event_with", "honest", "a series"),
    ("dpgrain.accounting.Gaussian", "profile", "epsilons", "text as objects"),
)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(("name", "method", "parameter", "odd"), FOUND_METHODS)
def test_past_findings_of_methods_raise_clear_errors(
    name: str, method: str, parameter: str, odd: str
) -> None:
    assert calls.found(name, method, parameter, odd) is None


# Calls that ended in other errors, or warned, and work.
WORKS: tuple[tuple[str, str, str, str], ...] = (
    ("dpgrain.SharedTable", "where", "item", "datetime.date(2025, 1, 1)"),
    ("dpgrain.papers.min_error", "", "epsilon", "1e-320"),
    ("dpgrain.papers.typical_records", "", "largest", "np.int8(3)"),
)


@pytest.mark.parametrize(("name", "method", "parameter", "odd"), WORKS)
def test_past_crashes_work(name: str, method: str, parameter: str, odd: str) -> None:
    assert calls.found(name, method, parameter, odd) is not None
