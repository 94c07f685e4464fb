"""Encoders and decoders of values with a schema in a registry."""
