"""The parts shared by the coordination adapters: the tree of nodes as plain data, and its watches."""
