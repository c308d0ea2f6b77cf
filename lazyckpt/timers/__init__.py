"""What each stage of a running pipeline takes, for `profile`."""
