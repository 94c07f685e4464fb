"""The producer, as users see it, and the threads' side of it."""
