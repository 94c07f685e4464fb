"""The broker's side of the classic generation: its topics, its answers, its place in the registries."""
