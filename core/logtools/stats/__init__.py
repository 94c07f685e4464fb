"""Statistics of a log's content: `barnabas log stats`."""
