"""Decoders of columns of encoded values into typed Arrow columns, many rows at a time."""
