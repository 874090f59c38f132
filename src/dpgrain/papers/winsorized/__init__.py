"""A mean of vectors, rotated and cut to a private range, coordinate by coordinate."""
