"""The command line: a module for each command, imported when that is run."""
