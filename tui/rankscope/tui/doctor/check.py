"""One thing that was checked."""

import msgspec


class Check(msgspec.Struct):
    """``essential``: rankscope cannot do its work without it."""

    name: str
    works: bool
    says: str
    essential: bool = True
    do: str = ""
    """What to do when it does not work."""
