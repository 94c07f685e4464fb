"""Hook specifications, the plugin host, and the built-in plugins."""
