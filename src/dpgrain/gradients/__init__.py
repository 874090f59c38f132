"""Clipped sums of gradients, which blocks of rows add to one round of a fit."""
