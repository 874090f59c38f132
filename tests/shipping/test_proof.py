"""Chains of events are read off a tree, and a missing piece is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from shipping.proof import Chain, chains, page, unseen

EVENT = '''
class Event:
    pass

class Noise(Event):
    """Noise on a sum.

    Proof: docs/theory,
    "Composition" and "Scopes".
    """

def PureNoise():
    return Noise()

def _helper():
    return Noise()
'''
FILES = {
    "src/dpgrain/__init__.py": "",
    "src/dpgrain/accounting/__init__.py": (
        "from dpgrain.accounting.events.additive import Noise, PureNoise\n"
    ),
    "src/dpgrain/accounting/events/additive.py": EVENT,
    "src/dpgrain/sums.py": (
        "from dpgrain.accounting import PureNoise\n\ndef doubled(x):\n    return 2 * x\n"
    ),
    "src/dpgrain/means/mean.py": "from dpgrain import accounting\nevent = accounting.Noise()\n",
    "src/dpgrain/report/said.py": "from dpgrain.accounting import Noise\n",
    "src/dpgrain/other.py": "from dpgrain.elsewhere import Noise\n",
    "docs/theory/curve.md": "# 7. Composition\n\n## Scopes: of regions\n",
    "tests/test_sums.py": """
import pytest

@pytest.mark.proof("search", "Noise")
def test_search():
    from dpgrain.sums import doubled
    assert doubled(2) == 4

class TestMean:
    @pytest.mark.parametrize("x", [1, 2])
    @pytest.mark.proof("audit", "Noise")
    def test_audit(self, x):
        assert x
""",
    "tests/mutants/alone.toml": """
[[mutant]]
function = "dpgrain.sums:doubled"
property = "It is doubled."
kind = "promise"
origin = "tests"
event = "Noise"
seen_by = "tests/test_sums.py::test_search"
old = '''2 * x'''
new = '''3 * x'''
""",
}


def tree(folder: Path, **changes: tuple[str, str, str]) -> Path:
    """A tree with files as above and some replacements: file, text, new text."""
    files = dict(FILES)
    for file, old, new in changes.values():
        assert old in files[file]
        files[file] = files[file].replace(old, new)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def the_chain(root: Path) -> Chain:
    (chain,) = chains(root)
    return chain


def test_a_chain_is_read_off_the_tree(tmp_path: Path) -> None:
    chain = the_chain(tree(tmp_path))
    assert chain.missing == ()
    assert (chain.event, chain.says) == ("Noise", "Noise on a sum")
    # A report about an event publishes nothing, and another class Noise is unrelated.
    assert chain.mechanisms == ("dpgrain.means.mean", "dpgrain.sums")
    assert [(one.page, one.anchor) for one in chain.theorems] == [
        ("curve.md", ""),
        ("curve.md", "scopes-of-regions"),
    ]
    assert chain.searches == ("tests/test_sums.py::test_search",)
    assert chain.audits == ("tests/test_sums.py::TestMean::test_audit",)
    assert [bug.holds for bug in chain.bugs] == ["It is doubled."]
    shown = page([chain])
    for said in (
        "## Noise",
        "(theory/curve.md#scopes-of-regions)",
        "`test_sums.py::test_search`",
    ):
        assert said in shown
    assert "bug        It is doubled. [dpgrain.sums:doubled]" in str(chain)


EVENTS, TESTS = "src/dpgrain/accounting/events/additive.py", "tests/test_sums.py"
BUGS = "tests/mutants/alone.toml"
OF_EVENT = 'event = "Noise"\n'
MISSING = {
    "theorem": (EVENTS, '"Composition" and "Scopes".', "None.", "no theorem"),
    "search": (TESTS, '@pytest.mark.proof("search", "Noise")', "", "no search"),
    "audit": (TESTS, '@pytest.mark.proof("audit", "Noise")', "", "no audit"),
    "bug": (BUGS, OF_EVENT, "", "no injected bug"),
    "test of a bug": (BUGS, "::test_search", "::test_other", "seen_by must be a search or an audit"),
}  # fmt: skip


@pytest.mark.parametrize("piece", MISSING)
def test_a_missing_piece_is_named(piece: str, tmp_path: Path) -> None:
    file, old, new, said = MISSING[piece]
    lost = the_chain(tree(tmp_path, one=(file, old, new))).missing
    assert any(said in line and "Noise" in line for line in lost), lost


def test_event_without_mechanism_belongs_to_callers_or_states_so(tmp_path: Path) -> None:
    none = tree(
        tmp_path,
        one=("src/dpgrain/sums.py", "PureNoise", "Other"),
        two=("src/dpgrain/means/mean.py", "Noise", "Other"),
    )
    assert the_chain(none).missing == ("Noise has no mechanism: no module publishes under it.",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((TESTS, '"search", "Noise"', '"search", "Nose"'), "No such event"),
        ((TESTS, '"search", "Noise"', '"look", "Noise"'), "not 'look'"),
        (
            (TESTS, "def test_search", "@pytest.mark.slow(full=True)\ndef test_search"),
            "make test-all",
        ),
    ],
    ids=["event", "kind", "slow"],
)
def test_invalid_mark_is_rejected(change: tuple[str, str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        chains(tree(tmp_path, one=change))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "why"),
    [("3 * x", "3 * x", ""), ("3 * x", "2 * x + 0", "its test stays green")],
    ids=["seen", "unseen"],
)
def test_bugs_are_tried(old: str, new: str, why: str, tmp_path: Path) -> None:
    root = tree(tmp_path, one=(BUGS, old, new))
    (root / "conftest.py").write_text(
        "def pytest_configure(config):\n    config.addinivalue_line('markers', 'proof(*of): a piece')\n"
    )
    found = [said for _, said in unseen(root, the_chain(root).bugs)]
    assert found == ([why] if why else [])


@pytest.mark.slow
def test_test_failing_without_a_bug_sees_none(tmp_path: Path) -> None:
    root = tree(tmp_path, one=(TESTS, "== 4", "== 5"))
    with pytest.raises(RuntimeError, match="red without a bug"):
        list(unseen(root, the_chain(root).bugs))
