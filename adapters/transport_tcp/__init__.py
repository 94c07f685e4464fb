"""The reactor (scheduler and sockets are one loop) and TCP connections on it."""
