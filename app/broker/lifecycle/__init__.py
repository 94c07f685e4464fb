"""Start and stop of a broker, its registration and cluster membership, and its background tasks."""
