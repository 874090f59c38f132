"""Differentially private choice among finitely many candidates."""
