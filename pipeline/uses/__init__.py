"""What the log is for: each use of the paper as an example on real data, for `barnabas examples`."""
