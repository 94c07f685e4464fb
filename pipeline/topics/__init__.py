"""Topics of clusters of either generation as the pipeline sees them: partitions, offsets, columns of records."""
