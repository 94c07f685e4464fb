"""Uses of the log: each use of the paper as an example on real data, for `barnabas examples`."""
