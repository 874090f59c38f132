"""A mean of the users who agree with each other, and the distances that it needs."""
