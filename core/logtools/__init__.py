"""Offline tools for the files of a log: verify, repair, statistics and dumps."""
