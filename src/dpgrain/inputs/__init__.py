"""Rows and labels from callers, read cell by cell, and their blocks, one per privacy unit."""
