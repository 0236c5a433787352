"""Which code is the user's, and the line of it that a stack is in. Pure; imports no torch.

Shared by tracebacks, stacks from within, stacks from outside and notes of collectives, so that the
same line is called the same everywhere.
"""

import functools
import importlib.util
import sysconfig
from collections.abc import Iterable
from os.path import abspath, basename, dirname, join, sep
from typing import NamedTuple

GENERATED = ("<frozen", "<eval_with_key>", "<__array_function__")
"""Code without a file that the interpreter or torch has made."""


class Place(NamedTuple):
    """One frame of Python: where it is."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{basename(self.file)}:{self.line} in {self.function}"  # noqa: PTH119


def users_place(frames: Iterable[Place]) -> Place | None:
    """The innermost frame of the user's own code; ``frames`` come with the innermost first.

    That is the innermost one not in torch, the standard library, an installed package or the
    agent (the project's own trainers are a user's). Of a program that is itself an installed
    package, it is the innermost one in any package but torch. None when there is neither.
    """
    known = list(frames)
    for is_meant in (is_users, is_packages):
        for frame in known:
            if is_meant(frame.file):
                return frame
    return None


@functools.lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """Whether ``file`` (as the interpreter names it) is code of the user's own."""
    if file.startswith(GENERATED):
        return False
    return not file.startswith(_foreign_folders()) or file.startswith(_trainers_folder())


@functools.lru_cache(maxsize=4096)
def is_packages(file: str) -> bool:
    """Whether ``file`` is the user's or an installed package's, but not torch's or the agent's."""
    if file.startswith((*GENERATED, *_library_folders())):
        return False
    return file.startswith(_package_folders()) or not file.startswith(_standard_folders())


def is_torchs(file: str) -> bool:
    """Whether ``file`` is torch's own."""
    return file.startswith(_library_folders()[1:])


def is_agents(file: str) -> bool:
    """Whether ``file`` is the agent's own."""
    return file.startswith(_library_folders()[0])


@functools.cache
def _trainers_folder() -> str:
    spec = importlib.util.find_spec("rankscope.trainers")
    found = list(spec.submodule_search_locations or ()) if spec is not None else []
    return abspath(found[0]) + sep if found else "\0"  # noqa: PTH100


@functools.cache
def _library_folders() -> tuple[str, ...]:
    """The agent itself, then torch. Finding torch does not import it."""
    agent = dirname(dirname(abspath(__file__)))  # noqa: PTH100,PTH120
    spec = importlib.util.find_spec("torch")
    torch = [abspath(one) for one in (spec.submodule_search_locations or ())] if spec else []  # noqa: PTH100
    return tuple(folder + sep for folder in (agent, *torch))


@functools.cache
def _standard_folders() -> tuple[str, ...]:
    return _paths("stdlib", "platstdlib")


@functools.cache
def _package_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    # Debian keeps its packages beside the standard library in a folder of its own name.
    more = tuple(join(paths[name], "dist-packages") + sep for name in ("stdlib", "platstdlib"))  # noqa: PTH118
    return _paths("purelib", "platlib") + more


@functools.cache
def _foreign_folders() -> tuple[str, ...]:
    return _library_folders() + _standard_folders() + _package_folders()


def _paths(*names: str) -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(sorted({paths[name] + sep for name in names}))
