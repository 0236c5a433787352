"""The demonstration: a real run of a real trainer, through the same machinery as any other."""
