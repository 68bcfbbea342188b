"""The command line: everything above as commands."""
