"""How Sphinx builds the site: `make docs`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from inspect import isclass, isfunction
from types import ModuleType
from typing import Any

import scipy.signal  # noqa: F401
from pygments.lexer import Lexer
from pygments.token import Generic, Text
from sphinx.application import Sphinx
from sphinx.ext.autodoc.mock import mock
from sphinx.util import logging

import dpgrain

project = "dpgrain"
author = "the dpgrain developers"
release = version = dpgrain.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = False
myst_enable_extensions = ["deflist", "dollarmath", "colon_fence"]
myst_heading_anchors = 3
# Blocks without a language are output of examples.
highlight_language = "output"
# Lines up to this length do not wrap on a narrow screen.
_SHORT = 40
html_theme = "furo"
html_title = "dpgrain"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
autodoc_typehints = "none"
# Packages that need PyTorch or pytest are also described without them; SciPy, which checks for PyTorch
# arrays during its import, is loaded before.
autodoc_mock_imports = [name for name in ("torch", "transformers", "pytest") if not find_spec(name)]
autodoc_member_order = "bysource"
# All public names, which packages load lazily: here, under the mocks.
with mock(autodoc_mock_imports):
    _public = {name: getattr(dpgrain, name) for name in dpgrain.__all__}
    for _package in [value for value in _public.values() if isinstance(value, ModuleType)]:
        _names = {
            f"{_package.__name__.partition('.')[2]}.{name}": name for name in _package.__all__
        }
        _public |= {whole: getattr(_package, name) for whole, name in _names.items()}
napoleon_use_rtype = False


class _Output(Lexer):
    """Output of examples: sentences, which wrap at the end of the column, and unwrapped tables."""

    name = "output"

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        """Yield lines; the lines of one sentence, wrapped at 100 letters, are one."""
        sentence = ""
        for line in text.splitlines():
            if sentence and len(sentence.rpartition("\n")[2]) + 1 + len(line.split(" ")[0]) > 100:
                sentence = f"{sentence}\n{line}"
                continue
            yield from self._sentence(sentence)
            sentence = ""
            if re.search(r"^ |\S {2,}\S|[━│─┃]", line) or len(line) < _SHORT:
                yield 0, Text, f"{line}\n"
            else:
                sentence = line
        yield from self._sentence(sentence)

    def _sentence(self, text: str) -> Iterator[tuple[int, Any, str]]:
        if text:
            yield 0, Generic.Output, text.replace("\n", " ") + "\n"


def _as_written(*given: Any) -> None:
    """Escape bars, which reStructuredText would read as substitutions."""
    lines: list[str] = given[-1]
    for place, line in enumerate(lines):
        if "``" not in line and ">>>" not in line:
            lines[place] = line.replace("|", r"\|")


def _left_out(*given: Any) -> bool | None:
    """Omit members that scikit-learn adds to every estimator."""
    name: str = given[2]
    return True if name.startswith("set_") and name.endswith("_request") else None


def _all_described(*given: Any) -> None:
    """Warn of public classes and functions that the reference does not describe."""
    described = set(given[-1].domaindata["py"]["objects"])
    for name, value in _public.items():
        # A name that is public in two places is described in one of them.
        places = {f"dpgrain.{name}", f"dpgrain.{name.rpartition('.')[2]}"}
        if (isclass(value) or isfunction(value)) and not places & described:
            logging.getLogger(__name__).warning("dpgrain.%s is not in the reference", name)


def setup(app: Sphinx) -> None:
    """Register the steps of the site's build."""
    app.add_lexer("output", _Output)
    app.connect("autodoc-process-docstring", _as_written)
    app.connect("autodoc-skip-member", _left_out)
    app.connect("env-check-consistency", _all_described)
