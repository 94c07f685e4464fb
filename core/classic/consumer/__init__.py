"""The consumer of the classic generation, which rebalances without a coordinator."""
