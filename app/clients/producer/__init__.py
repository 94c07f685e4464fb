"""The producer, and the parts that connect it to threads and the reactor."""
