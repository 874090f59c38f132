"""How Sphinx builds the site: `make docs`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from sphinx.application import Sphinx

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
html_theme = "furo"
html_title = "dpgrain"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
autodoc_typehints = "none"
# Pages of the room that needs PyTorch are made without it, too.
autodoc_mock_imports = [] if find_spec("torch") else ["torch"]
autodoc_member_order = "bysource"
napoleon_use_rtype = False


def _as_written(*given: Any) -> None:
    """Keep bars as they are, which reStructuredText would read as substitutions."""
    lines: list[str] = given[-1]
    for place, line in enumerate(lines):
        if "``" not in line and ">>>" not in line:
            lines[place] = line.replace("|", r"\|")


def _left_out(*given: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator."""
    name: str = given[2]
    return True if name.startswith("set_") and name.endswith("_request") else None


def setup(app: Sphinx) -> None:
    """Register both."""
    app.connect("autodoc-process-docstring", _as_written)
    app.connect("autodoc-skip-member", _left_out)
