"""What happened: one frozen event for each kind of release, which knows its privacy loss."""
