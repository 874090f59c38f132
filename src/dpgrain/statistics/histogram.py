"""``dg.histogram``: how much of each item the users hold, with a true promise."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute

from dpgrain import _validate
from dpgrain.accounting import Gaussian, Laplace, Selection
from dpgrain.data.blocks import Blocks, public_domain
from dpgrain.data.contributions import Contributions
from dpgrain.data.engine import Dictionary, Engine
from dpgrain.data.kernel import FloatArray, Grid, IntArray
from dpgrain.data.table import UserTable
from dpgrain.errors import DeltaWarning, ParameterError
from dpgrain.guarantee import Guarantee
from dpgrain.noise import (
    RandomState,
    Source,
    discrete_laplace,
    raised,
    rounded_gaussian,
    source_of,
)
from dpgrain.progress import Progress
from dpgrain.statistics.bounds import AutoClip, choose_bounds
from dpgrain.statistics.plan import HistogramPlan, checked, grid_bits, make_plan, noise_sd
from dpgrain.statistics.release import Histogram
from dpgrain.units import Relation, Unit
from dpgrain.wording import counted, powers, rounded_up

_WITHOUT_CELL = {"own": "are their own", "drop": "are left out", "error": "are refused"}


def histogram(
    table: UserTable,
    item: str,
    *,
    unit: Unit,
    epsilon: float,
    delta: float = 0.0,
    relation: Relation = "zero_out",
    clip: float | Literal["auto"] | AutoClip = "auto",
    domain: Any = None,
    weight: str | None = None,
    noise: Literal["gaussian", "laplace"] = "gaussian",
    nonnegative: bool = False,
    max_items: int = 1000,
    random_state: RandomState = None,
    progress: bool | None = None,
) -> Histogram:
    """Publish how much of each item the users hold, at the granularity of a privacy unit.

    Args:
        table: from :func:`dpgrain.read`.
        item: the column of items.
        unit: what is protected: ``Record()``, ``Element(by)`` or ``User()``.
        epsilon: the promised ε, above 0.
        delta: the promised δ, in (0, 1); 0 is right only for Laplace noise.
        relation: ``"zero_out"`` or ``"replace"``.
        clip: the norm to which each unit's data are clipped (l2; l1 under Laplace noise): a public
            number, or ``"auto"`` to choose one bound per cell privately with a share of the budget.
        domain: the public list of items, each of which is published; by default the keys of a public
            mapping given as the unit's partition; without one, items are first selected privately.
        weight: a column of what each record counts; 1 by default. Negative weights count 0.
        noise: ``"gaussian"``, or ``"laplace"`` for pure ε-DP.
        nonnegative: set negative estimates to 0 (free post-processing).
        max_items: where items are selected privately: at most so many items of one unit take part.
        random_state: a seed, for tests and research: the release is then *not private*.
        progress: show progress; by default on a terminal, after two seconds.

    Returns:
        A :class:`~dpgrain.Histogram`: item, estimate, standard error and 95% interval for the sum of
        clipped contributions, with its guarantee.

    Raises:
        ParameterError, SchemaError: if a parameter or the schema is wrong, before anything is read.
        DataError: if the source cannot be read; nothing is released then.

    Formal guarantee: (ε, δ)-DP for one unit under the relation, for every table; the guarantee's
    curve answers for more units and other units. Source: element-level paper, eq. (9), with the exact
    Gaussian curve in place of Lemma 3.2(ii), which is false; sums and noise are integers.

    >>> import pyarrow as pa
    >>> from dpgrain import Element, read
    >>> words = read(pa.table({"who": [1, 1, 2], "word": ["yo", "yo", "bro"]}), user="who")
    >>> release = histogram(words, "word", unit=Element("word"), epsilon=1, delta=1e-6, clip=2.0,
    ...                     domain=["bro", "hello", "yo"])
    >>> len(release), round(release.guarantee.epsilon(), 6)
    (3, 1.0)
    """
    rule = checked(epsilon, delta, relation, clip, noise)
    # Laplace noise needs no δ: the promise made is the stronger one.
    epsilon, delta = float(epsilon), 0.0 if noise == "laplace" else float(delta)
    max_items = _validate.integer(minimum=1, max_items=max_items)
    source = source_of(random_state)
    if not isinstance(table, UserTable):
        raise ParameterError(f"table must come from dg.read, not {type(table).__name__}.")
    table.key(item, "item")
    if weight is not None:
        table.number(weight, "weight")
    blocks = Blocks.of(unit, table, item)
    if blocks.block == "record" and weight is None and isinstance(rule, AutoClip):
        # Every record counts 1: nothing to choose.
        rule = 1.0
    asked = _Asked(item, weight, unit, blocks, epsilon, delta, relation, rule, noise, max_items)
    items = public_domain(domain, blocks, table, item)
    public = items is not None
    if not public and noise == "laplace":
        raise ParameterError(
            "domain must be given under Laplace noise: unknown items are selected with Gaussian noise."
        )
    plan = None if public else asked.plan(None)
    with Engine(table) as engine, Progress(4, progress) as shown:
        if plan is not None and plan.select is not None:
            shown.stage("Selecting items")
            held = engine.distinct(item, "item")
            seen = Contributions(engine, item, weight, blocks, held, public=False)
            items = _select(seen, plan.select, source)
        data = Contributions(
            engine, item, weight, blocks, items, public=public, unit=asked.weight_unit
        )
        plan = plan or asked.plan(data.dictionary)
        _warn_of_delta(plan, table.n_users, stacklevel=2)
        bounds = np.array([plan.clip], dtype=np.float64)
        if isinstance(rule, AutoClip) and plan.bounds is not None:
            shown.stage("Choosing clipping bounds")
            bounds = _choose(data, plan.bounds, rule, noise_sd(plan.sums), source)
        shown.stage("Adding up")
        grid = Grid(bounds, grid_bits(plan.sums.noise_multiplier), plan.sums.contribution.norm)
        sums = data.sums(grid)
        shown.stage("Adding noise")
        row = data.dictionary.cell_rows(bounds.size)
        # Modulo 2^64, as the sums are: post-processing of adding without bound.
        sums += _noise(plan.sums, plan.sums.noise_multiplier * grid.radius[row], source)
    known = data.dictionary if public else None
    # In the order of the public domain, or of the names that were selected.
    order = np.argsort(data.dictionary.given)
    row = row[order]
    release = Histogram(
        data.dictionary.items.take(pa.array(order)),
        sums[order] * grid.step[row],
        noise_sd(plan.sums) * bounds[row],
        bounds[row],
        Guarantee(
            unit.level,
            blocks.named,
            relation,
            delta,
            plan.event,
            asked.public(table, plan, known),
            source.private,
        ),
        asked.in_words(table, plan, known),
        noise,
    )
    return release.without_negatives() if nonnegative else release


def _select(data: Contributions, event: Selection, source: Source) -> pa.Array:
    """The items whose noisy indicator count reaches the threshold, sorted by name."""
    grid = Grid(np.ones(1), grid_bits(event.noise_multiplier))
    sums = data.sums(grid, indicator=True, max_items=event.max_items)
    scale = np.full(sums.size, event.noise_multiplier * float(grid.radius[0]))
    # One step up: rounding the noise may carry a count half a step over.
    threshold = math.ceil(event.threshold / float(grid.step[0])) + 1
    noisy = sums + rounded_gaussian(scale, source=source)
    # Never an item to which nobody adds: a block may hold any number of items beyond max_items,
    # and enough zeros would pass the threshold now and then.
    passed = (sums > 0) & (noisy >= threshold)
    selected = data.dictionary.items.filter(pa.array(passed))
    return selected.take(pa.compute.sort_indices(selected))


def _choose(
    data: Contributions,
    event: Gaussian | Laplace,
    rule: AutoClip,
    sums_sd: float,
    source: Source,
) -> FloatArray:
    """Choose the clipping bound of each cell from noisy counts of block norms."""
    counts = data.norm_counts(rule.edges[1:], event.contribution.norm)
    noise = _noise(event, np.full(counts.size, event.noise_multiplier), source)
    bounds = choose_bounds(
        (counts + noise.reshape(counts.shape)).astype(np.float64),
        rule.edges,
        noise_sd(event),
        data.dictionary.cell_sizes,
        sums_sd,
    )
    # The last edge may lie beyond the largest norm of interest.
    return np.minimum(bounds, rule.high)


def _noise(event: Gaussian | Laplace, scale: FloatArray, source: Source) -> IntArray:
    sample = discrete_laplace if isinstance(event, Laplace) else rounded_gaussian
    return sample(raised(scale), source=source)


def _warn_of_delta(plan: HistogramPlan, n_users: int | None, *, stacklevel: int) -> None:
    """Warn where δ allows publishing somebody's data outright with real odds."""
    if n_users is None or plan.level == "record":
        return
    cells = (plan.sums.contribution.cells or 1) if plan.level == "element" else 1
    largest = 1 / (10 * n_users * cells)
    if plan.delta > largest:
        warnings.warn(
            f"delta = {plan.delta:g} is large for {n_users:,} users"
            f"{f' and {cells:,} cells' if cells > 1 else ''}: choose at most {largest:.2g}, since "
            "publishing the data of each unit outright with probability delta keeps the promise.",
            DeltaWarning,
            stacklevel=stacklevel + 1,
        )


@dataclass(frozen=True)
class _Asked:
    """The public parameters of one histogram."""

    item: str
    weight: str | None
    unit: Unit
    blocks: Blocks
    epsilon: float
    delta: float
    relation: Relation
    rule: float | AutoClip
    noise: Literal["gaussian", "laplace"]
    max_items: int

    def plan(self, domain: Dictionary | None) -> HistogramPlan:
        """Calibrate every part; the dictionary is given where the domain is public."""
        by_item = self.blocks.block == "element" and self.blocks.column is None
        own = by_item and self.blocks.elements is None
        items, cells, single = None, None, own
        if domain is not None:
            items = len(domain.items)
            if by_item:
                cells = int(domain.cell_sizes.size)
                single = bool((domain.cell_sizes == 1).all())
        alone = own or self.blocks.block == "record"
        return make_plan(
            self.blocks.contribution(
                items=items,
                cells=cells,
                single=single,
                norm="l1" if self.noise == "laplace" else "l2",
            ),
            level=self.unit.level,
            epsilon=self.epsilon,
            delta=self.delta,
            relation=self.relation,
            noise=self.noise,
            clip=self.rule,
            select_items=None if domain is not None else 1 if alone else self.max_items,
            items=items,
            record_value=1.0 if self.weight is None else None,
        )

    @property
    def weight_unit(self) -> float:
        """What weights are truncated to: a power of two, so fine that 2^53 of it passes any bound."""
        if isinstance(self.rule, AutoClip):
            return 2.0 ** (math.ceil(math.log2(self.rule.high)) - 52)
        return 2.0 ** (math.floor(math.log2(self.rule)) - 38)

    def public(
        self, table: UserTable, plan: HistogramPlan, domain: Dictionary | None
    ) -> tuple[str, ...]:
        """What was taken as public and fixed beforehand, in words."""
        facts = []
        if domain is not None:
            facts.append(f"the list of {counted(len(domain.items), 'item')}")
        elif plan.select is not None and plan.select.max_items > 1:
            facts.append(
                f"at most {plan.select.max_items:,} items of one {plan.sums.level} take part in "
                "selecting, the first in a public order"
            )
        if self.blocks.named:
            rest = ""
            if self.blocks.elements is not None:
                rest = f" (items without a cell {_WITHOUT_CELL[self.blocks.elements.missing]})"
            facts.append(f"the partition into elements{rest}")
        if self.blocks.max_elements is not None:
            facts.append(
                f"at most {self.blocks.max_elements:,} elements of a user are used, the first in a "
                "public order"
            )
        if isinstance(self.rule, AutoClip):
            share = self.rule.share_of(one_bound=plan.one_bound)
            facts.append(
                f"clipping bounds between {self.rule.low:,.6g} and {self.rule.high:,.10g}, chosen "
                f"with {share:.0%} of the budget"
            )
        else:
            facts.append(f"the clipping bound {self.rule:,.6g}")
        if table.n_users is not None:
            facts.append(f"a roster of {counted(table.n_users, 'user')}")
        return tuple(facts)

    def in_words(
        self, table: UserTable, plan: HistogramPlan, domain: Dictionary | None
    ) -> dict[str, str]:
        """What was asked for, for the report."""
        clip = f"{self.rule:,.6g}" if not isinstance(self.rule, AutoClip) else ""
        bounds = "one bound for all items" if plan.one_bound else "one bound per cell"
        return {
            "table": table.source.title,
            "item": self.item,
            "domain": counted(len(domain.items), "public item") if domain else "selected privately",
            "weight": self.weight or "1 for each record",
            "bad values": "rows without a user or item are left out"
            + ("; weights that are not above 0 count 0" if self.weight else ""),
            "user": table.user or "none",
            "n_users": "not given" if table.n_users is None else f"{table.n_users:,}",
            "unit": self.unit.level,
            "elements": self.blocks.named or "none",
            "relation": self.relation,
            "epsilon": rounded_up(self.epsilon, 6),
            "delta": powers(self.delta),
            "clip": clip or f"auto ({bounds}, chosen privately)",
            "noise": self.noise,
        }
