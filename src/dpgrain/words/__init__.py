"""Words: sentences about queries, plans and releases, built from their numbers."""
