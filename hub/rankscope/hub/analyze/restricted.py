"""Reading a pickle that may be hostile: plain data, or nothing.

torch's own dumps hold dicts, lists, tuples, strings and numbers. Whatever would import or call
something is refused before it is done; memory is limited by whoever runs this process.
"""

import io
import pickle
from typing import Any, NoReturn


class Refused(ValueError):
    """The bytes are no plain data; the text says what they ask for."""


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise Refused(f"it asks for {module}.{name}: no dump of torch's does")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise Refused("it asks for an object from outside: no dump of torch's does")


def loads(data: bytes) -> Any:
    """The data in a pickle. Raises :class:`Refused`; nothing of it is ever executed."""
    try:
        return _Plain(io.BytesIO(data)).load()
    except Refused:
        raise
    except MemoryError:
        raise Refused("it asks for more memory than its size explains") from None
    except Exception as error:  # noqa: BLE001 - damaged pickles raise nearly anything
        raise Refused(f"it is damaged or cut off ({type(error).__name__})") from None
