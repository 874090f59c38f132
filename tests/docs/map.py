"""The map of the packages in docs/architecture.md, drawn from their imports.

A package is above all packages that it needs. A line leads to a needed package, unless another
needed one also needs it, so that packages reachable over several lines have no direct line.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import pairwise

from tests.docs.pages import PICTURES
from tests.rooms import SOURCE, Graph, needed, tree_of

MAP = PICTURES / "rooms.svg"
SHARED = "units, errors, words"
_WIDTH, _BOX, _HEIGHT, _ROW = 760, 104, 32, 70
# Number of passes that sort rows by the positions of their targets.
_SWEEPS = 12
_STYLE = """
  path { fill: none; stroke: #8a8f98; stroke-width: 1.4; }
  rect { fill: #e8eef7; stroke: #4f6d9a; stroke-width: 1.2; }
  rect.shared { fill: #f2efe4; stroke: #8d7a3d; }
  text { fill: #1b2330; font: 14px system-ui, sans-serif; text-anchor: middle; }
"""


def rooms() -> Graph:
    """Return the imports between packages, without the shared modules."""
    found: Graph = defaultdict(set)
    for importer, modules in needed(SOURCE).items():
        for module in modules:
            pair = _room(importer), _room(module)
            if all(pair) and pair[0] != pair[1]:
                found[pair[0]].add(pair[1])
            elif pair[0]:
                found[pair[0]] |= set()
    return dict(found)


def _room(module: str) -> str:
    name = ([*module.split("."), ""])[1]
    return name if (SOURCE / "dpgrain" / name / "__init__.py").exists() and name else ""


def reached(graph: Graph, start: str) -> set[str]:
    """Return all that can be reached from one place, without itself."""
    return graph[start].union(*(reached(graph, below) for below in graph[start]))


def direct(graph: Graph) -> Graph:
    """Return the arrows that no way over another place replaces."""
    return {
        room: {
            below
            for below in targets
            if not any(below in reached(graph, other) for other in targets)
        }
        for room, targets in graph.items()
    }


def floors(graph: Graph) -> dict[str, int]:
    """Return how many floors up each room is: one above the highest that it needs."""

    @cache
    def floor(room: str) -> int:
        return 1 + max(map(floor, graph[room]), default=-1)

    return {room: floor(room) for room in graph}


@dataclass(frozen=True, order=True)
class Place:
    """A room, or where a line passes a floor.

    Args:
        name: the package, or both ends of the line.
    """

    floor: int
    name: str


def ways(graph: Graph) -> list[list[Place]]:
    """Return each line as the places that it passes, from above to below."""
    floor = floors(graph)
    return [
        [
            Place(floor[room], room),
            *(Place(at, f"{room}>{below}") for at in range(floor[room] - 1, floor[below], -1)),
            Place(floor[below], below),
        ]
        for room, targets in sorted(direct(graph).items())
        for below in sorted(targets)
    ]


def across(graph: Graph) -> dict[Place, float]:
    """Return how far to the right each place is, so that few lines cross."""
    lines = ways(graph)
    places = {place for line in lines for place in line}
    places |= {Place(floor, room) for room, floor in floors(graph).items()}
    rows = [
        sorted(place for place in places if place.floor == floor)
        for floor in range(1 + max(place.floor for place in places))
    ]
    near: dict[Place, list[Place]] = defaultdict(list)
    for line in lines:
        for upper, lower in pairwise(line):
            near[upper].append(lower)
            near[lower].append(upper)
    x = {place: at for row in rows for place, at in _spread(row).items()}
    for sweep in range(_SWEEPS):
        step = 1 if sweep % 2 else -1
        for row in rows[::step]:
            middle = {
                place: _mean([x[other] for other in near[place] if other.floor != place.floor])
                for place in row
            }
            row.sort(key=lambda place: (middle[place], place))
            x |= _spread(row)
    return x


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else _WIDTH / 2


def _spread(row: list[Place]) -> dict[Place, float]:
    """Return places side by side; a line that passes needs less room than a box."""
    widths = [0.35 if ">" in place.name else 1.0 for place in row]
    unit = min(_WIDTH / sum(widths), _BOX + 44)
    at, spread = (_WIDTH - unit * sum(widths)) / 2, {}
    for place, width in zip(row, widths, strict=True):
        spread[place] = at + unit * width / 2
        at += unit * width
    return spread


def drawn() -> str:
    """Return the map as SVG, which needs no style from outside and is read in light and dark."""
    graph = rooms()
    x, floor = across(graph), floors(graph)
    top = max(floor.values())
    height = (top + 2) * _ROW - (_ROW - _HEIGHT) + 4

    def y(place: Place) -> float:
        return 2 + (top - place.floor) * _ROW + _HEIGHT / 2

    parts = []
    for line in ways(graph):
        points = [(x[place], y(place)) for place in line]
        parts.append(f'<path d="{_curve(points)}"/>')
    for room, at in sorted(floor.items()):
        place = Place(at, room)
        parts.append(_box(x[place], y(place), _BOX, room, _says(room), ""))
    parts.append(
        _box(_WIDTH / 2, height - 2 - _HEIGHT / 2, _WIDTH - 4, SHARED, "", ' class="shared"')
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">'
    return "\n".join([head, f"<style>{_STYLE}</style>", *parts, "</svg>\n"])


def _curve(points: list[tuple[float, float]]) -> str:
    start = "M{:.0f} {:.0f}".format(*points[0])
    bends = []
    for (left, above), (right, below) in pairwise(points):
        middle = (above + below) / 2
        bends.append(f"C{left:.0f} {middle:.0f} {right:.0f} {middle:.0f} {right:.0f} {below:.0f}")
    return " ".join([start, *bends])


def _box(x: float, y: float, width: float, name: str, title: str, kind: str) -> str:
    return (
        f'<g><title>{escape(title or name)}</title><rect{kind} x="{x - width / 2:.0f}" '
        f'y="{y - _HEIGHT / 2:.0f}" width="{width}" height="{_HEIGHT}" rx="6"/>'
        f'<text x="{x:.0f}" y="{y + 5:.0f}">{escape(name)}</text></g>'
    )


def _says(room: str) -> str:
    """Return the first sentence of a package's docstring."""
    text = ast.get_docstring(tree_of(SOURCE / "dpgrain" / room / "__init__.py")) or ""
    return text.split("\n\n")[0].replace("\n", " ")
