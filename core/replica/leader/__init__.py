"""The leader side of a partition: appends, fetches, and the requests that wait."""
