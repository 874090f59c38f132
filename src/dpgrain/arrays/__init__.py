"""People's rows in arrays: their users, the rows that are kept, and the number of people."""
