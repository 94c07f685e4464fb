"""Maintenance of a table between its loads: compaction, removal of old versions and of old rows, description."""
