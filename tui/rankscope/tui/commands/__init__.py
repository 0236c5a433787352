"""One file a command: each only wires arguments to the parts that do the work."""
