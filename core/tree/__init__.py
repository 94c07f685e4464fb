"""What all coordination adapters share: the tree of nodes as plain data, its watches, and how they are told."""
