"""What all shapes have in common, and the words that several of them use."""

from typing import Literal

import msgspec

State = Literal["starting", "running", "paused", "stalled", "finished", "failed"]
Severity = Literal["info", "warning", "critical"]
Link = Literal["up", "silent", "down"]


class Shape(msgspec.Struct, kw_only=True):
    """Base of all shapes: a map with its fields' names."""
