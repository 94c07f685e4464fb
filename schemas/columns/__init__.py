"""From columns of encoded values to typed columns of Arrow, many rows at a time."""
