"""Clipped sums of records with several owners: one person changes them by at most a bound."""
