"""`barnabas consume`: print the messages of a topic."""
