"""Winsorized mean of vectors, clipped to a private range per coordinate."""
