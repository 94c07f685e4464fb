"""The log of one partition, and the parts that it delegates to."""
