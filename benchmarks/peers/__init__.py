"""dpgrain compared with other libraries, each in a separate environment: `make peers`."""
