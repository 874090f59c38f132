"""Engines for reading tables, and the integer kernel behind every engine."""
