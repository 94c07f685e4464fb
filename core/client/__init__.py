"""What clients decide, as state machines that take messages and the time: cluster view, sender, fetcher, partitioners."""
