"""Frozen events, one for each kind of release, with their privacy losses."""
