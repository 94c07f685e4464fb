"""Consumer groups as the broker sees them: who is a member, who reads what, and how far they have come."""
