"""Public names of this tree, compared with the last tagged version.

    python -m shipping.api            # or: make api

A name is public where the ``__all__`` of a public package has it, with its public members. Each
change that would break a caller is printed, and the exit status is then 1.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[1]
PACKAGE = "dpgrain"
_COLOUR = re.compile(r"\x1b\[\d+m")


def last_tag(root: Path) -> str | None:
    """Return the last tag before the newest commit, None where there is none."""
    asked = ["git", "describe", "--tags", "--abbrev=0"]
    found = subprocess.run(asked, cwd=root, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def public(package: griffe.Object | griffe.Alias) -> set[str]:
    """Return where the public names of a package, and of its public packages, are defined."""
    names = [str(name) for name in package.exports or ()]
    if not names:
        return set()
    found = {package.canonical_path}
    for name in names:
        member = package.members.get(name)
        if member is None:
            continue
        try:
            found.add(member.canonical_path)
            inside = member.is_module
        except griffe.AliasResolutionError:
            # It comes from another library, such as NumPy.
            continue
        if inside:
            found |= public(member)
    return found


def broken(old: griffe.Object | griffe.Alias, new: griffe.Object | griffe.Alias) -> list[str]:
    """Return the changes that would break a caller of the old names, one line each."""
    names = public(old)
    lines = [f"{name}: it is gone" for name in sorted(_exported(old) - _exported(new))]
    lines += [
        _COLOUR.sub("", breakage.explain(griffe.ExplanationStyle.ONE_LINE)).strip()
        for breakage in griffe.find_breaking_changes(old, new)
        if _within(breakage.obj, names)
    ]
    return list(dict.fromkeys(lines))


def _exported(package: griffe.Object | griffe.Alias) -> set[str]:
    """Return the public names of a package and its public packages, as callers write them."""
    found = set()
    for name in map(str, package.exports or ()):
        found.add(f"{package.path}.{name}")
        member = package.members.get(name)
        inside = member is not None and not member.is_alias and member.is_module
        if member is not None and inside:
            found |= _exported(member)
    return found


def _within(obj: griffe.Object | griffe.Alias, names: Iterable[str]) -> bool:
    """Whether an object is public, or a member of one that is a class."""
    parent = obj.parent
    own = parent is not None and not parent.is_module and parent.canonical_path in names
    return obj.canonical_path in names or own


def compare(root: Path) -> tuple[str | None, list[str]]:
    """Compare the tree with the last tag.

    Args:
        root: the folder of the repository, with the package in ``src``.

    Returns:
        The tag (None if there is none), and the changes that would break callers.
    """
    tag = last_tag(root)
    if tag is None:
        return None, []
    old = griffe.load_git(PACKAGE, ref=tag, repo=root, search_paths=["src"], resolve_aliases=True)
    new = griffe.load(PACKAGE, search_paths=[str(root / "src")], resolve_aliases=True)
    return tag, broken(old, new)


def main() -> None:
    """Print the breaking changes since the last tag."""
    tag, lines = compare(ROOT)
    if tag is None:
        print("No version is tagged yet: there is nothing to compare the public names with.")
        return
    print("\n".join([*lines, f"{len(lines)} changes since {tag} would break callers."]))
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
