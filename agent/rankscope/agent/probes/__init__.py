"""What is observed in a rank, one probe a file, each of them able to fail alone."""
