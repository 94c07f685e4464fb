"""OAuth tokens: validated with joserfc against a key set, and obtained from a token endpoint over HTTP."""
