"""Messages, record batches and message sets, in memory and as bytes."""
