"""Clients of the classic generation."""
