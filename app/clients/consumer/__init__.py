"""The consumers, and the parts that connect them to threads and the reactor."""
