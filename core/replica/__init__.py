"""What a broker does with its partitions: append, read, and the requests that wait for it."""
