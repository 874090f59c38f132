"""Two users of one run: at any line of the first, no step is made twice.

The journal is only a file, so that these tests need no PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.interleaving import Answer, Interleaving
from tests.memory import folder_in_memory

from dpgrain.torch.journal import Journal

RUN = "7f3a"
Do: TypeAlias = Callable[[Path, Journal], object]


@pytest.fixture
def pair() -> Interleaving:
    return Interleaving("dpgrain.torch.journal")


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_in_memory() as found:
        yield found


def twice(place: Path, opened: Journal) -> tuple[int, int]:
    return opened.note(), opened.note(2)


# Each opens the journal itself except "note", with an open journal.
DEEDS: dict[str, Do] = {
    "note": lambda place, opened: opened.note(),
    "note several": lambda place, opened: opened.note(3),
    "note twice": twice,
    "go on": lambda place, opened: Journal(place, RUN).note(),
    "create": lambda place, opened: Journal.create(place, RUN, 0),
    "look": lambda place, opened: opened.steps_started,
}
# Number of steps that each notes, and the result: (steps of one note, answer).
NOTED: dict[str, list[int]] = {
    "note": [1], "note several": [3], "note twice": [1, 2], "go on": [1], "create": [], "look": [],
}  # fmt: skip


def told(name: str, answer: Answer) -> list[tuple[int, int]]:
    """The steps of each note of an action, with the started number according to its answer."""
    assert not answer.raised, answer.raised
    values = answer.value if isinstance(answer.value, tuple) else (answer.value,)
    return list(zip(NOTED[name], values, strict=False))


@pytest.mark.parametrize("second", DEEDS)
@pytest.mark.parametrize("first", DEEDS)
def test_no_unpaid_step_is_made(first: str, second: str, pair: Interleaving, folder: Path) -> None:
    """For any number of paid steps, no more are made by actors with a confirmed one."""
    place, names = folder / f"{RUN}.steps", (first, second)

    def anew() -> list[Callable[[], object]]:
        place.unlink(missing_ok=True)
        Journal.create(place, RUN, 2)
        return [
            lambda name=name, own=own: DEEDS[name](place, own)  # type: ignore[misc]
            for name, own in zip(names, (Journal(place, RUN), Journal(place, RUN)), strict=True)
        ]

    for seam in pair.lines(anew()[0]):
        one, two = anew()
        answers = pair.run(one, two, seam)
        for name, answer in zip(names, answers, strict=True):
            # A journal is never recreated.
            assert bool(answer.raised) == (name == "create"), f"{seam}: {answer}"
        notes = [
            note
            for name, answer in zip(names, answers, strict=True)
            if name != "create"
            for note in told(name, answer)
        ]
        begun = Journal(place, RUN).steps_started
        assert begun == 2 + sum(steps for steps, _ in notes), f"{seam}: a step is lost"
        for paid in range(begun + 1):
            made = sum(steps for steps, so_many in notes if so_many <= paid)
            assert 2 + made <= max(paid, 2), f"{seam}: {made} steps are made where {paid} are paid"


@pytest.mark.parametrize("first", ["go on", "create"])
def test_one_of_two_concurrent_journal_starts_succeeds(
    first: str, pair: Interleaving, folder: Path
) -> None:
    """A concurrent resumption finds no journal, or continues from its contents."""
    place = folder / f"{RUN}.steps"
    create: Callable[[], int] = lambda: Journal.create(place, RUN, 2).note()  # noqa: E731
    other: Callable[[], int] = {"go on": lambda: Journal(place, RUN).note(), "create": create}[
        first
    ]
    for seam in pair.lines(create):
        place.unlink(missing_ok=True)
        answers = pair.run(create, other, seam)
        made = [answer.value for answer in answers if not answer.raised]
        assert made, f"{seam}: {answers}"
        assert Journal(place, RUN).steps_started == 2 + len(made), f"{seam}: {answers}"
        place.unlink()
