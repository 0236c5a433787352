"""What py-spy says of a process, as the frames of a message. Pure."""

import re
import sysconfig
from shutil import which

import msgspec

from rankscope.agent.evidence.places import Place, users_place
from rankscope.agent.evidence.stacks import fitted
from rankscope.protocol import limits
from rankscope.protocol.messages import Thread

OWN_THREAD = "rankscope"
"""The agent's own thread in a rank, which is not shown."""

MISSING = "py-spy is not installed where the sentinel runs: pip install py-spy"
FORBIDDEN = (
    "not permitted to read its memory: give the container --cap-add=SYS_PTRACE, or have an "
    "administrator run sysctl kernel.yama.ptrace_scope=0"
)
GONE = "the process has ended"
NOT_FOUND = "py-spy finds no Python in it: it is ending, or of a version that py-spy does not know"
MAX_ERROR_CHARS = 160

NO_PYTHON = re.compile(r"python (interpreter|version)", re.IGNORECASE)
BACKTRACE = re.compile(r"(<?\w+( as [\w:]+>)?::|__libc_|_start\b|main\b|at )")
"""What a line of a backtrace begins with: no cause."""

FINAL = (MISSING, FORBIDDEN, GONE)
"""Trying again would not help."""


class SpyFrame(msgspec.Struct):
    name: str
    filename: str
    line: int = 0
    module: str | None = None
    """The library of a frame of C or C++; None of one of Python."""


class SpyThread(msgspec.Struct):
    thread_name: str | None = None
    os_thread_id: int | None = None
    owns_gil: bool = False
    frames: list[SpyFrame] = []


_decoder = msgspec.json.Decoder(list[SpyThread])


class Reading(msgspec.Struct, frozen=True):
    """The threads of a process, the main one first."""

    threads: tuple[Thread, ...]
    source: str
    """The user's line that the main thread is in; empty when there is none."""


def program() -> str | None:
    """Where py-spy is: beside this interpreter, else on the path."""
    return which("py-spy", path=sysconfig.get_path("scripts")) or which("py-spy")


def command(spy: str, pid: int, *, native: bool) -> list[str]:
    """The command line. Without ``native`` the process goes on undisturbed while it is read.

    With it, it is held for as long as that takes (some 0.5 s of a process with torch). Values of
    variables are not asked for.
    """
    how = "--native" if native else "--nonblocking"
    return [spy, "dump", "--json", how, "--pid", str(pid)]


def parse(raw: bytes, pid: int) -> Reading | None:
    """What a dump of ``pid`` says; None when it is none."""
    try:
        known = _decoder.decode(raw)
    except msgspec.DecodeError:
        return None
    shown = [one for one in known if one.thread_name != OWN_THREAD]
    if not shown:
        return None
    shown.sort(key=lambda one: (one.os_thread_id != pid, one.thread_name or ""))
    main = [_place(one) for one in shown[0].frames if one.module is None]
    source = str(users_place(main) or "")
    threads = fitted(
        (
            one.thread_name or f"thread {one.os_thread_id}",
            one.os_thread_id == pid,
            [_place(frame) for frame in one.frames],
            one.owns_gil,
        )
        for one in shown
    )
    return Reading(threads, source[: limits.MAX_TEXT_CHARS])


def _place(frame: SpyFrame) -> Place:
    name = frame.name
    if frame.module is None:  # qualified names become what tracebacks say: Thread.run is run
        name = name.rsplit(".", 1)[-1]
    return Place(frame.filename, max(0, frame.line), name)


def same_main(first: Reading, second: Reading) -> bool:
    """Whether the main thread was in the same place both times: it does not advance."""
    return bool(first.threads and second.threads) and (
        first.threads[0].main
        and second.threads[0].main
        and first.threads[0].frames == second.threads[0].frames
    )


def error_in_words(said: str) -> str:
    """Why there is no reading, from what py-spy wrote to its standard error."""
    if re.search(r"permission denied|operation not permitted|EPERM", said, re.IGNORECASE):
        return FORBIDDEN
    if re.search(r"process executable name|no such process", said, re.IGNORECASE):
        return GONE
    # The numbered lines of the backtrace below it look like causes.
    lines = [line.strip() for line in said.partition("Stack backtrace")[0].splitlines()]
    heading = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    causes = [re.sub(r"^\d+: ", "", line) for line in lines if re.match(r"\d+: ", line)]
    if any(NO_PYTHON.search(line) for line in heading):
        return NOT_FOUND
    parts = heading[:1] + [cause for cause in causes if not BACKTRACE.match(cause)][:1]
    return ("py-spy: " + "; ".join(parts) if parts else "py-spy said nothing")[:MAX_ERROR_CHARS]
