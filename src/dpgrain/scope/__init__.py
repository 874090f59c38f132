"""Public facts about rows: their region, their partition into cells, and where they come from."""
