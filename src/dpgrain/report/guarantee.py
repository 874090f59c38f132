"""The page of a promise by itself: what is promised, and what is not, for whoever answers for it."""

from __future__ import annotations

from functools import partial

from dpgrain.publishing.guarantee import Guarantee
from dpgrain.report.figures import figures
from dpgrain.report.page import Page
from dpgrain.report.plots import plot_curve
from dpgrain.report.promises import grains_of

# Words for what distorts estimates, on a page without estimates, which cannot say more.
_DISTORTED = "noise, clipping and whatever else was done"


def guarantee_page(guarantee: Guarantee) -> str:
    """Return the page of a promise as HTML.

    Args:
        guarantee: the promise.
    """
    page = Page(
        of="release",
        guarantee=guarantee,
        distorted=_DISTORTED,
        curve_plots=figures("curve", partial(plot_curve, guarantee), 320),
        grains=grains_of(guarantee, {}),
    )
    return page.html("guarantee.html")
