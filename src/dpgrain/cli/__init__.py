"""The command line: one command for each statistic, and guarantee, plan, fit, predict, demo."""

from dpgrain.cli.app import main

__all__ = ["main"]
