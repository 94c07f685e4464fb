"""The audit trail: what each tier counted, and whether the tiers agree."""
