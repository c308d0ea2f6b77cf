"""The documentation as it was built, and as a browser shows it: needs `build/docs`."""
