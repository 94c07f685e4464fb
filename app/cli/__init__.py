"""The command line `barnabas`: one file per command, imported when it is called for."""
