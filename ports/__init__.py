"""What the domain needs from the world: interfaces, and the plain types in their signatures."""
