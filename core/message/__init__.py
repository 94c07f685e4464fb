"""Messages and the sets of them that travel and rest as bytes."""
