"""Assignors of the group coordinator: they assign partitions to the members of a group."""
