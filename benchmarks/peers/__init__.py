"""dpgrain beside other libraries, each in an environment of its own: `make peers`."""
