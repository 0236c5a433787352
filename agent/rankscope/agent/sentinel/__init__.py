"""The sentinel: one process a node that sees what a rank cannot say about itself."""
