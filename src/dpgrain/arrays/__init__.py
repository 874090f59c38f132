"""Users' rows in arrays: their blocks, and the number of users."""
