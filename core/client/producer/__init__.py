"""What a producer decides, without threads: batches, partitions, sequences, what to send and when."""
