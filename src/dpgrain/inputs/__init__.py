"""The values that callers pass, read one by one, so that an odd value changes no other."""
