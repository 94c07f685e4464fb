"""The registries of the classic cluster: paths, contents, who is there, and a broker's own registration."""
