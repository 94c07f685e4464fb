"""The two formats of a log: record batches and classic messages."""
