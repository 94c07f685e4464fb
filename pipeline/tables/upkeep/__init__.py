"""What a table needs between its loads: fewer and larger files, old versions away, old rows away, a look at it."""
