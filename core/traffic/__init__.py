"""What bounds and watches the traffic of a broker: memory, floods of log lines, slow requests."""
