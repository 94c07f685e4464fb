"""The log of one partition: segments, indexes, recovery, retention."""
