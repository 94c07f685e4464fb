"""Verification and repair of a log's files: `barnabas log verify` and `barnabas log repair`."""
