"""People's rows in arrays: their users, the kept rows, and the number of people."""
