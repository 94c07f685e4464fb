"""Producer, Consumer, SimpleConsumer and Admin: the shells that drive `core.client` in a user's process."""
