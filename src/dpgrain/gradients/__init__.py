"""Clipped sums of gradients, from blocks of rows to one round of a fit."""
