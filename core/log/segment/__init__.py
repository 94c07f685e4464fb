"""A segment of a log: its file, its indexes, and the search for intact batches behind damage."""
