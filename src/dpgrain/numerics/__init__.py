"""Numerical functions of several packages: rows of arrays, and SciPy's special functions."""
