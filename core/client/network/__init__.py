"""Connections to brokers: when to connect, what waits for a connection, which broker is unreachable or silent."""
