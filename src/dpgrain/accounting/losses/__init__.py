"""Privacy losses of events, in closed form where that is exact, else by dominating pairs."""
