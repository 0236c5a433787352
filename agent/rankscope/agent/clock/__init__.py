"""Time, as pure functions: the phases of a step, and the offset to the hub's clock."""
