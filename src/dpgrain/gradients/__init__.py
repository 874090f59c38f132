"""Clipped sums of gradients: what blocks of rows add to one round of a fit."""
