"""Privacy losses of events, exact in closed form or bounded by dominating pairs."""
