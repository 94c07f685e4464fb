"""Log compaction: the choice of the dirtiest log, and the cleaning of its segments."""
