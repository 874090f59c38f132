"""The report of a guarantee without numbers, for privacy officers."""

from __future__ import annotations

from functools import partial

from dpgrain.publishing.guarantee import Guarantee
from dpgrain.report.figures import figures
from dpgrain.report.page import Page
from dpgrain.report.plots import plot_curve
from dpgrain.report.promises import grains_of

# A report without estimates does not know more.
_DISTORTED = "noise, clipping and other steps"


def guarantee_page(guarantee: Guarantee) -> str:
    """Return the report of a guarantee as HTML."""
    page = Page(
        of="release",
        guarantee=guarantee,
        distorted=_DISTORTED,
        curve_plots=figures("curve", partial(plot_curve, guarantee), 320),
        grains=grains_of(guarantee, {}),
    )
    return page.html("guarantee.html")
