"""Engines, which read tables, and the integer kernel that every engine feeds."""
