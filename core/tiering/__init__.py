"""Tiered storage (KIP-405): the manifest of a partition, what is copied and what expires, reading back."""
