"""Bounds of a broker: request memory, rate of log lines, slow requests, long work in steps."""
