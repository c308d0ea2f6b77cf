"""What a run would do, said before it runs: `explain`."""
