"""The admin client: topics, configurations, groups, transactions, the cluster."""
