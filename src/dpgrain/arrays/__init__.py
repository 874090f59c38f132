"""People's rows in arrays: whose each row is, what is kept of it, and how many people there are."""
