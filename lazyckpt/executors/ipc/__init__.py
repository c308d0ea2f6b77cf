"""Communication between processes: pickles, arrays in shared memory, and pipes."""
