"""The classic cluster: registries, topic filters, rebalancing, and the consumer that runs it without a coordinator."""
