"""The partitions of a broker: appends, reads, replication, and the requests that wait for them."""
