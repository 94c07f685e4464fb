"""The interfaces of the domain to the outside, and the plain types in their signatures."""
