"""Who asks, for the log of the run."""

from rankscope.tui.asking import author

__all__ = ["author"]
