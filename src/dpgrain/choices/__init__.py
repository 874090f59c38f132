"""One of finitely many candidates, chosen under differential privacy."""
