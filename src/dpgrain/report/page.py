"""The common parts of all pages: the promise, its curve, the public facts, the events, the file."""

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
from typing import TYPE_CHECKING, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dpgrain import __version__, _validate
from dpgrain._files import check_page, whole_file
from dpgrain._wording import powers
from dpgrain.provenance import IN_WORDS
from dpgrain.publishing.guarantee import Guarantee
from dpgrain.report.curve import CurveTable, curve_table
from dpgrain.report.events import sentences
from dpgrain.report.promises import Grain, Odds, four_sentences, of_a_person, smallest_bound
from dpgrain.report.words import text
from dpgrain.units import RELATIONS, Level, Relation

if TYPE_CHECKING:
    from dpgrain.report.held import Held

# Letters of a promise, at most: it is shorter unless a caller's names are long, so that nothing else
# is ever cut.
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
        hashes: what can be checked by its hash, each with how: the guarantee is always among them.
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
    hashes: tuple[tuple[str, str, str], ...] = ()
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
    def sentences(self) -> list[str]:
        """The promise in four sentences."""
        told = four_sentences(self.guarantee, of_devices=self.of == "sum")
        return [text(sentence) for sentence in told]

    @property
    def of_a_person(self) -> str:
        """The promise to a whole person, in a sentence."""
        return text(of_a_person(self.guarantee), _EVENT_LETTERS)

    @cached_property
    def curve(self) -> CurveTable:
        """The granularity curve in numbers, for the sliders."""
        return curve_table(self.guarantee)

    @property
    def checks(self) -> list[tuple[str, str, str]]:
        """The hashes that identify the release and its promise, and how to ask for each."""
        own = ("The promise", self.guarantee.hash, "dpgrain.Guarantee.from_json(text).hash")
        return [*self.hashes, own]

    @property
    def receipts(self) -> list[str]:
        """The lines of ledgers for its charge."""
        return [text(receipt) for receipt in self.guarantee.receipts]

    @property
    def sentence(self) -> str:
        """The whole promise."""
        return text(self.guarantee, _SENTENCE_LETTERS)

    @cached_property
    def odds(self) -> Odds:
        """The odds left to somebody by the promise."""
        return Odds.of(self.guarantee)

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
        """The facts taken as publicly known."""
        return [text(fact) for fact in self.guarantee.public]

    @property
    def rows(self) -> str:
        """The origin of the rows; empty where data lie on the devices of users."""
        return "" if self.of == "sum" else IN_WORDS[self.guarantee.provenance]

    @property
    def events(self) -> list[str]:
        """The events of the release, each in a few sentences."""
        return [text(told, _EVENT_LETTERS) for told in sentences(self.guarantee.event)]

    @property
    def guarantee_json(self) -> str:
        """The guarantee as :meth:`dpgrain.Guarantee.from_json` reads it."""
        return json.dumps(self.guarantee.to_dict(), ensure_ascii=False, indent=1)

    @property
    def year(self) -> str:
        """The year of the page."""
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
    day = f"{datetime.now(UTC) if today is None else today:%Y-%m-%d}"
    script, digest = _script()
    return (
        _environment()
        .get_template(template)
        .render(version=__version__, date=day, script=Markup(script), script_hash=digest, **values)
    )


@cache
def _environment() -> Environment:
    """Return the finder of templates, which keeps those already read."""
    return Environment(
        loader=PackageLoader("dpgrain.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _script() -> tuple[str, str]:
    """Return the script of all pages, and its hash: a page runs this script and no other.

    The browser compares what stands between the tags, so that a script that came into the page with
    somebody's data would not run, had it passed the escaping of all text.
    """
    script = files("dpgrain.report").joinpath("templates/page.js").read_text(encoding="utf-8")
    digest = hashlib.sha256(script.encode()).digest()
    return script, f"sha256-{base64.b64encode(digest).decode()}"


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
        ParameterError: if its name has the ending of another kind of file.
        DataError: if the file cannot be written; none is left behind then.
    """
    path = _validate.path(path=path)
    check_page(path)
    with whole_file(path) as part:
        part.write_text(html(), encoding="utf-8")
    return path
