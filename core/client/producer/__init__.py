"""The producer's state machines, without threads: batches, partitions, sequences, what to send and when."""
