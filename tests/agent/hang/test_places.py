"""Which line of a stack is the user's, and what a message can carry of it."""

import sys
import sysconfig
import threading
from pathlib import Path

import pytest
import torch

from rankscope.agent.evidence import places, stacks
from rankscope.agent.evidence.places import Place, users_place
from rankscope.protocol import codec, limits
from rankscope.protocol import messages as m

STDLIB = sysconfig.get_path("stdlib")
PACKAGES = sysconfig.get_path("purelib")
TORCH = str(Path(torch.__file__).parent)
AGENT = str(Path(places.__file__).parent)
TRAINERS = str(Path(__file__).parents[3] / "trainers" / "rankscope" / "trainers")
MINE = "/home/me/train.py"


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        ([f"{TORCH}/nn/modules/module.py", MINE, "/home/me/other.py"], MINE),
        ([f"{STDLIB}/threading.py", f"{TORCH}/x.py", MINE], MINE),
        ([f"{PACKAGES}/lightning/loop.py", MINE], MINE),
        ([f"{AGENT}/stacks.py", MINE], MINE),
        ([f"{STDLIB}/threading.py", f"{TRAINERS}/loop.py", MINE], f"{TRAINERS}/loop.py"),
        (["<frozen runpy>", "<eval_with_key>.3", MINE], MINE),
        (["<stdin>", MINE], "<stdin>"),
        # A program that is itself installed: any package but torch, and not the library's wait.
        ([f"{STDLIB}/threading.py", f"{PACKAGES}/app/main.py"], f"{PACKAGES}/app/main.py"),
        ([f"{TORCH}/x.py", f"{PACKAGES}/app/main.py"], f"{PACKAGES}/app/main.py"),
        ([f"{STDLIB}/threading.py", "<frozen runpy>"], None),
        ([], None),
    ],
)
def test_the_users_line_is_the_innermost_of_their_own_code(
    files: list[str], chosen: str | None
) -> None:
    """Not torch's, the library's, a package's or ours; the trainers are a user's."""
    found = users_place(Place(file, 7, "f") for file in files)
    assert (found.file if found else None) == chosen


def test_a_thread_is_shown_where_it_is() -> None:
    """The one that trains first, with the line it waits at; hidden threads are left out."""
    entered, leave = threading.Event(), threading.Event()

    def waits_here() -> None:
        entered.set()
        leave.wait()

    waiting = threading.Thread(target=waits_here, name="waiting", daemon=True)
    waiting.start()
    entered.wait()
    try:
        assert waiting.ident is not None
        source, threads = stacks.read(waiting.ident, (threading.get_ident(),))
    finally:
        leave.set()
        waiting.join()
    assert source.startswith("test_places.py:")
    assert source.endswith(" in waits_here")
    assert (threads[0].name, threads[0].main) == ("waiting", True)
    assert threading.main_thread().name not in [thread.name for thread in threads]
    assert not any(thread.main for thread in threads[1:])


def deep(depth: int) -> list[Place]:
    if depth:
        return deep(depth - 1)
    return stacks.places(sys._getframe())


def test_a_deep_stack_keeps_both_ends() -> None:
    """The innermost frames say where it is, the outermost who called."""
    frames = deep(500)
    (thread,) = stacks.fitted([("main", True, frames, None)])
    assert len(thread.frames) == limits.MAX_FRAMES
    assert thread.frames[0].function == "deep"
    assert thread.frames[-1].function == frames[-1].function


def test_what_many_threads_are_in_fits_into_one_frame() -> None:
    """However many there are, and however long the paths: the training thread comes first."""
    frames = [Place("/" + "ä" * 300 + f"/{index}.py", index, "g" * 300) for index in range(200)]
    threads = stacks.fitted((f"t{index}", index == 0, frames, None) for index in range(200))
    assert len(threads) == limits.MAX_THREADS
    assert len(threads[0].frames) > 20
    frame = codec.encode(m.Stacks(0, 0, 1, 0.0, "asked", "", threads))
    assert len(frame) < limits.MAX_INBOUND_FRAME_BYTES
