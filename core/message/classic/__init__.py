"""Classic messages (facts A2): magic 0 and 1, entries without offsets, compressed wrappers."""
