"""A consumer as the member of a group: what members tell each other, who gets what, and the membership itself."""
