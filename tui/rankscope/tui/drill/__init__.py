"""``rankscope drill``: each fault in a real run, and whether it was called what it is."""
