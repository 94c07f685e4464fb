"""Tables in Iceberg's format: a catalog, a snapshot per commit, the offsets in the snapshot's summary."""
