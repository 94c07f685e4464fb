"""The producer of the classic generation: queue, runs of messages, requests, connections."""
