"""The domain: messages, logs, partitions and the rules between them, without a clock, a socket or a file of its own."""
