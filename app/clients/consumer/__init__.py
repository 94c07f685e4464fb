"""The consumers, as users see them, and the threads' side of them."""
