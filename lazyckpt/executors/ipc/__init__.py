"""How it gets there: pickles, arrays in shared memory, and the pipe that carries both."""
