"""The background check of closed segments, and the rebuild of damaged ones."""
