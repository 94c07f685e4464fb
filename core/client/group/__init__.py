"""A consumer's membership in its group: the protocol of members, assignment, and the membership itself."""
