"""The consumer of the classic generation, which rebalances by itself."""
