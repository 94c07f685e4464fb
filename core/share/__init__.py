"""Share groups (KIP-932) at the leaders of partitions, and the interface to their durable state."""
