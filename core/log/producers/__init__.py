"""The state of a partition's producers: sequence numbers, open transactions, snapshots."""
