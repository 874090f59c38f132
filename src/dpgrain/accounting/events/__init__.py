"""Frozen events, one for each kind of release, which know their privacy losses."""
