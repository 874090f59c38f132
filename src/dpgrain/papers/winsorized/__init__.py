"""A mean of vectors that are rotated and cut to a private range, coordinate by coordinate."""
