"""``rankscope run``: a training command, its hub beside it, and what becomes of both."""
