"""The common parts of all reports: guarantee, curve, public facts, events and file."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache, cached_property, partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dpgrain import __version__, _validate
from dpgrain._files import atomic_write, check_page
from dpgrain._formatting import powers
from dpgrain._types import FloatArray
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.report.figures import figures
from dpgrain.report.guarantee_facts import (
    CurveTable,
    GranularityRow,
    curve_table,
    granularity_rows,
    smallest_bound,
)
from dpgrain.report.plots.curve import plot_curve
from dpgrain.units import RELATIONS, Level, Relation
from dpgrain.words.event_sentences import sentences
from dpgrain.words.guarantee_text import CHANGES, PROVENANCE, elements_text
from dpgrain.words.headings import text
from dpgrain.words.odds import Odds, guarantee_sentences, person_sentence

if TYPE_CHECKING:
    from dpgrain.report.contributions import ContributionText
    from dpgrain.statistics.contribution_counts import Holdings

#: Name, SHA-256 hash, and an expression that computes it.
Check: TypeAlias = tuple[str, str, str]

# Maximum lengths of a guarantee and an event; only long names of a caller reach them.
_SENTENCE_LETTERS = 20_000
_EVENT_LETTERS = 2000


@dataclass(frozen=True, kw_only=True)
class PageFacts:
    """The common facts of reports; templates call them ``page``."""

    of: Literal["release", "fit", "sum"]  # type of the report, which decides a few words
    guarantee: Guarantee
    distorted: str  # sources of error of the numbers, as text
    settings: tuple[tuple[str, str], ...] = ()  # the request, as names and values
    budget: str = ""  # use by parts, as text
    noun: str = "item"  # for a group, in the singular
    selected: bool = False  # the groups were selected with noise
    contributions: ContributionText | None = None  # contribution distribution as text, if known
    holdings: Holdings | None = None  # contribution distribution to draw with the curve
    hashes: tuple[Check, ...] = ()  # names, hashes and how to compute them, with the guarantee
    today: datetime = field(default_factory=partial(datetime.now, UTC))  # time of writing, in UTC

    @property
    def level(self) -> Level:
        """The protected unit."""
        return self.guarantee.level

    @property
    def relation(self) -> Relation:
        """The neighbouring relation."""
        return self.guarantee.relation

    @property
    def unit(self) -> str:
        """The protected data of one unit, as text."""
        cell = f" in one cell of the partition by {self.elements}"
        return {
            "record": "one row of the table",
            "element": f"all records of one user{cell}",
            "user": f"all {'data' if self.of == 'sum' else 'records'} of one user",
        }[self.level]

    @property
    def change(self) -> str:
        """The change between neighbours, as text."""
        return "added or removed" if self.relation == "zero_out" else self.changed

    @property
    def changed(self) -> str:
        """The word for the change between neighbours in tables."""
        return CHANGES[self.relation]

    @property
    def relations(self) -> tuple[Relation, ...]:
        """Both relations, in the order of the columns of a table."""
        return RELATIONS

    @property
    def sentences(self) -> list[str]:
        """The guarantee in four sentences."""
        sentences = guarantee_sentences(self.guarantee, of_devices=self.of == "sum")
        return [text(sentence) for sentence in sentences]

    @property
    def person_sentence(self) -> str:
        """The guarantee for a whole person, as text."""
        return text(person_sentence(self.guarantee), _EVENT_LETTERS)

    @cached_property
    def curve(self) -> CurveTable:
        """The granularity curve in numbers, for the sliders."""
        return curve_table(self.guarantee)

    @cached_property
    def curve_plots(self) -> Markup:
        """The drawn granularity curve."""
        draw = partial(plot_curve, self.guarantee, holdings=self.holdings)
        return figures("curve", draw, 320 if self.holdings is None else 350)

    @cached_property
    def granularities(self) -> tuple[GranularityRow, ...]:
        """The rows of the table of granularities; none if data are on the devices of users."""
        if self.of == "sum":
            return ()
        known = self.contributions
        return granularity_rows(
            self.guarantee, {} if known is None or known.is_hidden else dict(known.shares)
        )

    @property
    def checks(self) -> list[Check]:
        """The hashes of the release and its guarantee, and how to compute each."""
        own = ("Guarantee", self.guarantee.hash, "dpgrain.Guarantee.from_json(text).hash")
        return [*self.hashes, own]

    @property
    def receipts(self) -> list[str]:
        """The ledger lines of its charge."""
        return [text(receipt) for receipt in self.guarantee.receipts]

    @property
    def sentence(self) -> str:
        """The guarantee in full."""
        return text(self.guarantee, _SENTENCE_LETTERS)

    @cached_property
    def odds(self) -> Odds:
        """The odds that the guarantee leaves to an attacker."""
        return Odds.from_guarantee(self.guarantee)

    @property
    def delta(self) -> str:
        """The δ."""
        return powers(self.guarantee.delta)

    @property
    def one_in(self) -> str:
        """1/δ, rounded down; empty for δ = 0."""
        delta = self.guarantee.delta
        return f"{math.floor(1 / Fraction(repr(float(delta)))):,}" if delta else ""

    @cached_property
    def degrades_for_groups(self) -> bool:
        """True if the guarantee is weaker for two units than for one."""
        return self.guarantee.epsilon(units=2) > self.guarantee.epsilon()

    @property
    def max_elements(self) -> int | None:
        """The public bound on the elements of a user, if any."""
        return smallest_bound(self.guarantee, "max_elements")

    @property
    def elements(self) -> str:
        """The partition into elements."""
        return text(elements_text(self.guarantee.elements) or "a public partition")

    @property
    def public_facts(self) -> list[str]:
        """The facts assumed public."""
        return list(dict.fromkeys(map(text, self.guarantee.public)))

    @property
    def rows(self) -> str:
        """The origin of the rows; empty if data are on the devices of users."""
        return "" if self.of == "sum" else PROVENANCE[self.guarantee.provenance]

    @property
    def events(self) -> list[str]:
        """The events, each in a few sentences."""
        return [text(event, _EVENT_LETTERS) for event in sentences(self.guarantee.event)]

    @property
    def guarantee_json(self) -> str:
        """The guarantee for :meth:`dpgrain.Guarantee.from_json`."""
        return json.dumps(self.guarantee.to_dict(), ensure_ascii=False, indent=1)

    @property
    def year(self) -> str:
        """The year of the page."""
        return f"{self.today:%Y}"

    def html(self, template: str, **own: object) -> str:
        """Return the page of this template as HTML, with its own values."""
        return render(template, today=self.today, page=self, **own)


def render(template: str, *, today: datetime | None = None, **values: object) -> str:
    """Return a template with these values as HTML; ``today`` is in UTC, by default now."""
    day = f"{datetime.now(UTC) if today is None else today:%Y-%m-%d}"
    script, digest = _script()
    return (
        _environment()
        .get_template(template)
        .render(version=__version__, date=day, script=Markup(script), script_hash=digest, **values)
    )


@cache
def _environment() -> Environment:
    """Return the loader of templates."""
    return Environment(
        loader=PackageLoader("dpgrain.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _script() -> tuple[str, str]:
    """Return the script of all pages and its hash; browsers run no other script on a page."""
    script = files("dpgrain.report").joinpath("templates/page.js").read_text(encoding="utf-8")
    digest = hashlib.sha256(script.encode()).digest()
    return script, f"sha256-{base64.b64encode(digest).decode()}"


def guarantee_page(guarantee: Guarantee) -> str:
    """Return the report of a guarantee without numbers as HTML."""
    # Without a release, the other sources of error are unknown.
    distorted = "noise, clipping and other steps"
    return PageFacts(of="release", guarantee=guarantee, distorted=distorted).html("guarantee.html")


def hash_numbers(numbers: FloatArray) -> str:
    """Return the SHA-256 hash of numbers as little-endian float64."""
    return hashlib.sha256(np.ascontiguousarray(numbers, dtype="<f8").tobytes()).hexdigest()


@dataclass(frozen=True)
class Part:
    """One release on a page of several: its title, guarantee and HTML."""

    title: str
    page: PageFacts
    body: Markup


def write_page(path: str | Path, html: Callable[[], str]) -> Path:
    """Write a page, completely or not at all; ``html`` is called once the file is open."""
    path = _validate.path(path=path)
    check_page(path)
    with atomic_write(path) as part:
        part.write_text(html(), encoding="utf-8")
    return path
