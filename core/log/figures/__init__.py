"""What a log holds, in figures: `barnabas log stats`."""
