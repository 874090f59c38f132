"""A plan keeps the promise of its file, spends it, and reads nothing."""

from __future__ import annotations

import itertools
import re
from functools import reduce
from operator import add
from pathlib import Path

import pyarrow as pa
import pytest
from tests.releases import cases

import dpgrain as dg
from dpgrain._files import SPACE
from dpgrain.accounting import Event
from dpgrain.accounting.losses.gaussian import gaussian_mu
from dpgrain.publishing import Price
from dpgrain.releases import run as running
from dpgrain.units import PLAIN_UNITS

# All kinds together take the whole budget.
EACH = f"share = {1 / len(cases.KINDS)!r}"


def _plan(folder: Path, text: str, table: dg.UserTable | None = None) -> dg.PlannedReleases:
    return dg.plan_releases(cases.written(folder, text), table or cases.unread())


@pytest.mark.slow
def test_every_kind_is_planned_with_nothing_read(tmp_path: Path) -> None:
    table = cases.counted()
    plan = _plan(tmp_path, cases.BUDGET + cases.releases(EACH), table)
    assert cases.Counted.opened == 0
    assert [each.entry.name for each in plan.releases] == list(cases.KINDS)
    # The same promise follows from a source that cannot be read at all.
    again = _plan(tmp_path, cases.BUDGET + cases.releases(EACH))
    assert again.guarantee == plan.guarantee
    assert list(tmp_path.iterdir()) == [tmp_path / "releases.toml"]


@pytest.mark.parametrize("unit", ['unit = "user"', 'element = "page"', 'element = "topic"'])
@pytest.mark.parametrize(
    ("release", "groups"),
    [
        (cases.KINDS["count"], 3),
        (cases.KINDS["mean"], 1),
        (cases.KINDS["mean"] + '\nby = "topic"\ndomain = ["t0", "t1", "t2"]', 3),
        (cases.KINDS["marginals"], 9),
        (cases.KINDS["histogram"], 1),
    ],
    ids=["count", "mean", "means", "marginals", "unknown items"],
)
def test_outputs_have_space_for_each_listed_group(
    release: str, groups: int, unit: str, tmp_path: Path
) -> None:
    budget = cases.BUDGET.replace('unit = "user"', unit)
    text = f'{budget}[release.one]\n{release}\nshare = 1.0\noutput = "one.csv"\n'
    (planned,) = _plan(tmp_path, text).releases
    assert running._space(planned) == SPACE + groups * 2048


def test_output_of_two_owners_has_space_for_each_listed_group(tmp_path: Path) -> None:
    release = cases.KINDS["count"] + '\nclip = 5\nshare = 1.0\noutput = "one.csv"'
    table = f'[table]\nsource = "{cases.parquet(tmp_path).name}"\nuser = ["who", "bought"]\n'
    path = cases.written(tmp_path, f"{table}{cases.BUDGET}[release.one]\n{release}\n")
    (planned,) = dg.plan_releases(path).releases
    assert running._space(planned) == SPACE + 3 * 2048


@pytest.mark.slow
def test_all_together_spend_the_budget_and_no_more(tmp_path: Path) -> None:
    plan = _plan(tmp_path, cases.BUDGET + cases.releases(EACH))
    assert 2.0 * 0.999 <= plan.guarantee.epsilon() <= 2.0
    assert plan.guarantee.delta == 1e-6
    # Gaussian noise has all of δ: none of it is reserved for unneeded leaks.
    only = _plan(tmp_path, cases.BUDGET + cases.releases("share = 0.5", ["count", "mean"]))
    mu = only.guarantee.event.loss(1, "zero_out", dg.User()).mu
    assert mu == pytest.approx(gaussian_mu(2.0, 1e-6), rel=1e-3)
    with dg.budget(2.0, 1e-6) as whole:
        assert mu > whole.caps.price.mu


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize(
    ("names", "more"),
    [
        (["count"], 'noise = "laplace"'),
        (["count", "sum"], 'noise = "laplace"'),
        (["top"], 'method = "truncated"\nmax_items = 1'),
        (["top", "fit"], ""),
    ],
    ids=str,
)
def test_noise_of_every_law_spends_the_budget(
    names: list[str], more: str, epsilon: float, tmp_path: Path
) -> None:
    """A price in Gaussian noise would leave four fifths of it to one release with Laplace noise."""
    budget = f'[budget]\nunit = "user"\nepsilon = {epsilon}\ndelta = 1e-6\n'
    spending = f"{more}\nshare = {1 / len(names)}"
    plan = _plan(tmp_path, budget + cases.releases(spending, names))
    assert 0.99 * epsilon <= plan.guarantee.epsilon() <= epsilon


def test_shares_split_squares_and_the_rest_remains(tmp_path: Path) -> None:
    text = cases.BUDGET + "\n".join(
        cases.releases(f"share = {share}", [name])
        for name, share in (("count", 0.4), ("mean", 0.1))
    )
    count, mean = (
        each.guarantee.event.loss(1, "zero_out", dg.User()).mu
        for each in _plan(tmp_path, text).releases
    )
    assert (count / mean) ** 2 == pytest.approx(4.0, rel=0.03)
    whole = gaussian_mu(2.0, 1e-6)
    assert (count / whole) ** 2 == pytest.approx(0.4, rel=0.03)


def test_stated_budgets_come_first_and_shares_split_the_rest(tmp_path: Path) -> None:
    text = cases.BUDGET + cases.releases("share = 0.5", ["count", "mean"])
    fixed = cases.releases("epsilon = 1.0\ndelta = 1e-8", ["sum"])
    plan = _plan(tmp_path, text + fixed)
    by_name = {each.entry.name: each for each in plan.releases}
    assert (by_name["sum"].epsilon, by_name["sum"].delta) == (1.0, 1e-8)
    assert 2.0 * 0.999 <= plan.guarantee.epsilon() <= 2.0
    with pytest.raises(dg.ParameterError, match=r"\[budget\] the plan of the budget must satisfy"):
        _plan(tmp_path, text + fixed.replace("epsilon = 1.0", "epsilon = 2.5"))


def test_without_a_budget_the_stated_ones_are_composed(tmp_path: Path) -> None:
    text = cases.STATED + cases.releases("epsilon = 0.5\ndelta = 1e-7", ["count", "mean"])
    plan = _plan(tmp_path, text)
    first, second = plan.releases
    assert plan.guarantee == first.guarantee + second.guarantee
    assert plan.guarantee.delta == pytest.approx(2e-7)
    assert 0.5 < plan.guarantee.epsilon() < 1.0
    with pytest.raises(dg.ParameterError, match="requires a budget; set epsilon and delta"):
        _plan(tmp_path, cases.STATED + cases.releases("share = 0.5", ["count"]))


def test_pure_privacy_is_shared_as_well(tmp_path: Path) -> None:
    text = '[budget]\nunit = "user"\nepsilon = 1.0\n'
    noise = 'noise = "laplace"\nshare = 0.5'
    plan = _plan(tmp_path, text + cases.releases(noise, ["count", "sum"]))
    assert plan.guarantee.epsilon() == pytest.approx(1.0, rel=0.01)
    assert plan.guarantee.epsilon() <= 1.0
    with pytest.raises(dg.ParameterError, match="delta must be above 0"):
        _plan(tmp_path, text + cases.releases("share = 0.5", ["histogram"]))


@pytest.mark.parametrize(
    ("unit", "relation", "names", "share"),
    list(
        itertools.product(
            ('unit = "user"', 'unit = "record"', 'element = "topic"'),
            ("zero_out", "replace"),
            (("histogram", "fit"), ("top", "count", "quantiles"), tuple(cases.KINDS)[:8]),
            (0.05, 0.12),
        )
    ),
    ids=str,
)
def test_no_options_break_the_budget(
    unit: str, relation: str, names: tuple[str, ...], share: float, tmp_path: Path
) -> None:
    text = f'[budget]\n{unit}\nrelation = "{relation}"\nepsilon = 1.0\ndelta = 1e-6\n'
    plan = _plan(tmp_path, text + cases.releases(f"share = {share}", list(names)))
    # An accountant that has seen nothing of shares adds up what will be published.
    event: Event = reduce(add, (each.guarantee.event for each in plan.releases))
    whole = plan.guarantee
    assert whole.relation == relation
    alone = event.epsilon(1e-6, relation=whole.relation, unit=PLAIN_UNITS[whole.level])
    assert alone == pytest.approx(plan.guarantee.epsilon())
    assert alone <= 1.0 * (share * len(names)) ** 0.5 * 1.15


def test_plan_may_be_in_the_plan_of_a_budget(tmp_path: Path) -> None:
    plan = _plan(tmp_path, cases.BUDGET + cases.releases("share = 0.5", ["count", "mean"]))
    with dg.budget(3.0, 1e-5, plan=[plan.guarantee]) as whole:
        assert whole.spent == Price()
        assert 0 < whole.caps.price.mu < gaussian_mu(3.0, 1e-5)


@pytest.mark.slow
def test_a_plan_is_a_table_of_text(tmp_path: Path) -> None:
    plan = _plan(tmp_path, cases.BUDGET + cases.releases(EACH))
    lines = str(plan).splitlines()
    assert len(lines) == len(cases.KINDS) + 2
    columns = ["release", "publishes", "share", "ε at δ = 10⁻⁶", "standard error of noise"]
    assert re.split("  +", lines[0]) == columns
    assert "published from" in lines[1]
    assert "fit logistic" in lines[-2]
    assert lines[-1].startswith("All releases together: ε = 2, δ = 10⁻⁶ per ")


def test_one_release_has_the_epsilon_of_all(tmp_path: Path) -> None:
    plan = _plan(tmp_path, cases.BUDGET + cases.releases("share = 1.0", ["count"]))
    ((_, _, share, epsilon, _),) = plan.rows()
    assert (share, epsilon) == ("1", "2")


def test_expected_error_agrees_with_the_release(tmp_path: Path) -> None:
    lines = 'clip = 20.0\nshare = 0.5\nnoise = "gaussian"'
    plan = _plan(tmp_path, cases.BUDGET + cases.releases(lines, ["count", "sum"]))
    made = dg.releases(tmp_path / "releases.toml", cases.table(), random_state=1)
    for each in plan.releases:
        assert each.expected is not None
        assert each.expected.times == ()
        assert each.expected.std_error == pytest.approx(
            made[each.entry.name].std_error[0], rel=1e-6
        )


def test_no_mistake_is_invented_after_another(tmp_path: Path) -> None:
    """A substitute for a misspelt column is not reported as if the file had contained it."""
    rows = {"person": ["a", "b"], "branch": ["x", "y"], "minutes": [1.0, 2.0]}
    path = tmp_path / "releases.toml"
    path.write_text(
        '[budget]\nunit = "user"\nepsilon = 1.0\ndelta = 1e-6\n[release.minutes]\nstatistic = "mean"\n'
        'value = "minuts"\nbounds = [120, 0]\nshare = 0.5\n'
    )
    with pytest.raises(dg.ParameterError) as caught:
        dg.plan_releases(path, dg.read(pa.table(rows), user="person"))
    said = str(caught.value)
    assert "has 2 mistakes" in said
    assert "did you mean minutes?" in said
    assert "[120, 0]" in said
    assert "person" not in said
