"""What is wrong with the files of a log, and how it is mended: `barnabas log verify` and `barnabas log repair`."""
