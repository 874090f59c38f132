"""Records with several owners: the largest sum of which nobody's records are more than a bound."""
