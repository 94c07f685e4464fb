"""The consumer's state machines, without threads: what to fetch, and how to process the responses."""
