"""The state and the settings that handlers and life cycle share."""
