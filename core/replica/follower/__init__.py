"""The follower side of a partition: fetching from its leader."""
