"""The parts that all pages share: the promise, its curve, the public facts, the events, the file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined

from dpgrain import __version__
from dpgrain._files import whole_file
from dpgrain._wording import powers
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.report.promises import Grain, Odds, smallest_bound
from dpgrain.report.words import text
from dpgrain.units import RELATIONS, Level, Relation

if TYPE_CHECKING:
    from markupsafe import Markup

    from dpgrain.report.held import Held

# A promise is shorter than this unless a caller's names are long, so that nothing else is ever cut.
_SENTENCE_LETTERS = 20_000
_EVENT_LETTERS = 2000


@dataclass(frozen=True, kw_only=True)
class Page:
    """The common contents of pages, ready to be printed; the templates call it ``page``.

    Args:
        of: the kind of thing that the page is of, which decides a few words.
        guarantee: the promise.
        distorted: the words for what keeps the numbers from being right.
        curve_plots: the granularity curve, drawn.
        grains: the table below the curve; none where a page has one of its own.
        settings: the request, as names and values; none where a page has a table of its own.
        noun: the word for a group, in the singular.
        selected: True where the groups were selected with noise.
        held: how much users hold, if that is known.
        beside: True where ``held`` is drawn beside the curve.
        today: the time at which the page is written, in UTC.
    """

    of: Literal["release", "fit", "sum"]
    guarantee: Guarantee
    distorted: str
    curve_plots: Markup
    grains: tuple[Grain, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    noun: str = "item"
    selected: bool = False
    held: Held | None = None
    beside: bool = False
    today: datetime = field(default_factory=partial(datetime.now, UTC))

    @property
    def level(self) -> Level:
        """The protected unit."""
        return self.guarantee.level

    @property
    def relation(self) -> Relation:
        """The neighbouring relation of the promise."""
        return self.guarantee.relation

    @property
    def relations(self) -> tuple[Relation, ...]:
        """Both relations, in the order of the columns of a table."""
        return RELATIONS

    @property
    def sentence(self) -> str:
        """The whole promise."""
        return text(self.guarantee, _SENTENCE_LETTERS)

    @cached_property
    def odds(self) -> Odds:
        """The odds that the promise leaves somebody."""
        return Odds(self.guarantee.epsilon(), self.guarantee.delta)

    @property
    def delta(self) -> str:
        """The δ."""
        return powers(self.guarantee.delta)

    @property
    def one_in(self) -> str:
        """The δ as one in a number of cases, rounded to be no smaller; empty for 0."""
        delta = self.guarantee.delta
        return f"{math.floor(1 / Fraction(repr(float(delta)))):,}" if delta else ""

    @cached_property
    def wears(self) -> bool:
        """True where less is promised to two units than to one."""
        return self.guarantee.epsilon(units=2) > self.guarantee.epsilon()

    @property
    def max_elements(self) -> int | None:
        """The public bound on the elements of a user, if there is one."""
        return smallest_bound(self.guarantee, "max_elements")

    @property
    def elements(self) -> str:
        """The partition into elements."""
        return text(self.guarantee.elements or "a public partition")

    @property
    def public(self) -> list[str]:
        """The facts that were taken as known to everybody."""
        return [text(fact) for fact in self.guarantee.public]

    @property
    def events(self) -> list[str]:
        """The events that happened, one by one."""
        return [text(event, _EVENT_LETTERS) for event in self.guarantee.event.parts]

    @property
    def guarantee_json(self) -> str:
        """The guarantee as :meth:`dpgrain.Guarantee.from_json` reads it."""
        return json.dumps(self.guarantee.to_dict(), ensure_ascii=False, indent=1)

    @property
    def year(self) -> str:
        """The year in which the page is written."""
        return f"{self.today:%Y}"

    def html(self, template: str, **own: object) -> str:
        """Return the page as HTML.

        Args:
            template: a file in ``templates/``.
            **own: the values that only pages of this kind have.
        """
        return render(template, today=self.today, page=self, **own)


def render(template: str, *, today: datetime | None = None, **values: object) -> str:
    """Return a page as HTML.

    Args:
        template: a file in ``templates/``.
        today: the time at which the page is written, in UTC; by default now.
        **values: the values that the template prints.
    """
    environment = Environment(
        loader=PackageLoader("dpgrain.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    day = f"{datetime.now(UTC) if today is None else today:%Y-%m-%d}"
    return environment.get_template(template).render(version=__version__, date=day, **values)


@dataclass(frozen=True)
class Part:
    """One release on a page of several.

    Args:
        title: the words for what it is.
        page: its promise.
        body: its numbers, as HTML.
    """

    title: str
    page: Page
    body: Markup


def write_page(path: str | Path, html: Callable[[], str]) -> Path:
    """Write a page, whole or not at all.

    Args:
        path: where to write; the folder must exist.
        html: the function that makes the page. It is called once the file could be opened.

    Raises:
        DataError: if the file cannot be written; none is left behind then.
    """
    path = Path(path)
    with whole_file(path) as part:
        part.write_text(html(), encoding="utf-8")
    return path
