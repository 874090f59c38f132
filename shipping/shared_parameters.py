"""Keep the descriptions of shared parameters identical in all publishing functions.

    python -m shipping.shared_parameters          # or: make check
    python -m shipping.shared_parameters --fix

The check covers functions decorated with ``@publishes``: the docstring describes each parameter, in the
order of the signature, and a shared parameter as below unless ``OWN`` exempts the function. ``--fix``
rewrites the descriptions.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill

from dpgrain.publishing.parameters import argument_lines, arguments

SOURCE = Path(__file__).parents[1] / "src"
#: The descriptions of shared parameters, by name.
SHARED: Mapping[str, str] = {
    "table": "table from :func:`dpgrain.read`.",
    "unit": "privacy unit: ``Record()``, ``Element(by)`` or ``User()``.",
    "epsilon": "privacy parameter ε, such as 1; smaller protects more. Omit it if you pass ``share``.",
    "delta": "privacy parameter δ, in (0, 1), such as 1e-6. Use 0 only with Laplace noise.",
    "share": "share of the open budget, such as 0.5, instead of ε and δ; see :func:`dpgrain.budget`.",
    "relation": "neighbouring relation: a unit is removed, ``zero_out``, or replaced by another, "
    "``replace``.",
    "value": "column of numbers. Rows without a finite value are dropped.",
    "by": "column or columns to group by; if omitted, one answer for all rows.",
    "bounds": "public range (low, high) for clamping numbers; if omitted, chosen privately with 20% of "
    "the budget.",
    "estimate_clipping": "estimate the share of values outside of ``bounds`` and, for counts and "
    "sums, of units clipped by an explicit ``clip``, with 5% of the budget each; by default, neither "
    "is estimated.",
    "clip": "clipping bound of a unit's data, a number or ``auto``. It bounds the l2 norm, or the l1 "
    "norm under Laplace noise; by default, one for each cell is chosen privately with a share of the "
    "budget.",
    "domain": "public list of groups to publish. By default, groups are selected "
    "privately. For several columns, pass a mapping from columns to values (other columns are "
    "selected privately) or a list of tuples.",
    "noise": "noise distribution; ``auto`` uses Laplace noise if known to be smaller.",
    "max_items": "maximum number of groups or items of one unit used in selection.",
    "random_state": "seed, for tests and research. The release is then *not private*.",
    "progress": "show progress; by default on a terminal, after two seconds.",
}
#: Functions with their own description of a shared parameter.
OWN: Mapping[str, Sequence[str]] = {
    "delta": ("accuracy", "auc", "marginals", "mean_of_users", "minimise", "r2", "select", "top"),
    "unit": ("accuracy", "auc", "minimise", "r2", "select"),
    "clip": ("marginals", "minimise", "sum", "top"),
    "relation": ("release_mean",),
    "noise": ("elements_per_user", "histogram", "quantiles", "release_mean"),
    "epsilon": ("typical_records",),
    "by": ("elements_per_user", "marginals"),
    "bounds": ("correlation", "covariance", "quantiles"),
    "estimate_clipping": ("correlation", "covariance"),
    "table": ("distribution",),
    "domain": ("histogram", "marginals", "top"),
    "value": ("count", "quantile"),
    "max_items": ("top",),
}
# Line width of docstrings, in characters.
_WIDTH = 100


def main() -> None:
    """Check or fix the source, and exit with 1 if descriptions differ."""
    fix, errors = "--fix" in sys.argv[1:], list[str]()
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        fixed = "@publishes\n" in text and with_shared(text)
        if fixed and fixed != text:
            if fix:
                path.write_text(fixed, encoding="utf-8")
            else:
                errors.append(f"{path.relative_to(SOURCE)}: run this program with --fix.")
        errors += [f"{path.relative_to(SOURCE)}: {error}" for error in undescribed(fixed or "")]
    if errors:
        sys.exit("\n".join(errors))


def with_shared(source: str) -> str:
    """Return the source of a module with the shared descriptions in its publishing functions."""
    lines = source.splitlines()
    for function, docstring in reversed(list(_publishing(source))):
        start, end = docstring.lineno - 1, docstring.end_lineno
        lines[start:end] = _with_shared(lines[start:end], function.name, _names(function))
    return "\n".join([*lines, ""])


def undescribed(source: str) -> list[str]:
    """Return an error for each parameter without a description, and each needless exemption."""
    errors = []
    for function, docstring in _publishing(source):
        texts = arguments(str(docstring.value))
        errors += [
            f"{function.name} has a parameter {name!r} without a description."
            for name in _names(function)
            if name not in texts
        ]
        errors += [
            f"{function.name} needs no exemption for {name!r}."
            for name, functions in OWN.items()
            if function.name in functions and texts.get(name, SHARED[name]) == SHARED[name]
        ]
    return errors


def _publishing(source: str) -> Iterator[tuple[ast.FunctionDef, ast.Constant]]:
    """Return the publishing functions of a module that describe arguments, with their docstrings."""
    for node in ast.parse(source).body:
        match node:
            case ast.FunctionDef(
                body=[ast.Expr(value=ast.Constant(value=str(text)) as docstring), *_]
            ):
                if "publishes" in map(ast.unparse, node.decorator_list) and "Args:" in text:
                    yield node, docstring


def _names(function: ast.FunctionDef) -> list[str]:
    named, more = function.args, function.args.kwarg
    return [one.arg for one in (*named.args, *named.kwonlyargs, *([] if more is None else [more]))]


def _with_shared(lines: Sequence[str], function: str, names: Sequence[str]) -> list[str]:
    """Return the lines of a docstring with the shared descriptions."""
    listed = argument_lines(lines)
    start = next(place for place, line in enumerate(lines) if line.strip() == "Args:") + 1
    margin = " " * (len(lines[start - 1]) - len(lines[start - 1].lstrip()) + 4)
    result = []
    for name in names:
        if name in SHARED and function not in OWN.get(name, ()):
            result += _wrapped(name, margin)
        else:
            result += listed.get(name, [])
    return [*lines[:start], *result, *lines[start + sum(map(len, listed.values())) :]]


def _wrapped(name: str, margin: str) -> list[str]:
    """Return the lines of a shared description."""
    text = fill(
        f"{name}: {SHARED[name]}",
        _WIDTH,
        initial_indent=margin,
        subsequent_indent=f"{margin}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return text.splitlines()


if __name__ == "__main__":
    main()
