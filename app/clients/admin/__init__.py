"""The admin client, as users see it: topics, configs, groups, transactions, the cluster."""
