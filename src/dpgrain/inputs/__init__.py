"""Values that callers pass, each read by itself, so that one odd value changes no other."""
