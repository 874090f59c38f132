"""The values that callers pass: each is read by itself, so that one odd value changes no other."""
