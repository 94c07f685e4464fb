"""All logs of a broker: data folders, creation, retention, flushing and shutdown."""
