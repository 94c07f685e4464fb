"""The command line `barnabas`: each command is imported when it is called."""
