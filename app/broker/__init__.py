"""The broker: request handlers, life cycle, and the state that both share."""
