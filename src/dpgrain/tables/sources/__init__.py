"""Sources of a table's rows: files, frames, streams, databases, and wrappers of other sources."""
