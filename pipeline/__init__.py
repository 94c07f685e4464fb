"""From topics to a warehouse and back, on Spark."""
