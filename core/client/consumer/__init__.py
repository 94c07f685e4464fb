"""What a consumer decides, without threads: what to fetch, and what to do with it."""
