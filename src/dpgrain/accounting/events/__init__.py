"""Frozen events, one for each type of release, with their privacy losses."""
