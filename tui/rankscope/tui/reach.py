"""From what a command was given to a hub that answers.

A live run is reached at its endpoint. A run whose hub has ended or died is answered from its
directory: the same hub code serves the recording, started for this one command and ended with it.
"""

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import msgspec

from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.keys import ClientKey, Role, read_client_key
from rankscope.protocol.launch import python_module
from rankscope.protocol.messages import CommandReply
from rankscope.protocol.pasting import words_elsewhere, words_for
from rankscope.protocol.rundir import (
    RunDirectory,
    RunInfo,
    find_run,
    hub_is_alive,
    list_runs,
    live_runs,
    runs_home,
)
from rankscope.protocol.shapes import Status
from rankscope.tui.feed.client import HubClient, Reply
from rankscope.tui.feed.link import LinkError
from rankscope.tui.words.nohub import no_hub

REPLAY_START_S = 20.0
START_S = 5.0
"""How long the first hub of a run that has just begun is waited for."""
NEW_S = 20.0
"""A run that is older and never had a hub will not get one."""
RESTART_S = 2.0
"""How long a supervised hub may take to come back."""
RECENT_S = 10.0
"""A recording that grew so lately may belong to a hub that is being restarted."""
MAX_REPLAY_LINE_BYTES = 4096


class Greeting(msgspec.Struct):
    """What a replaying hub prints, as one JSON line."""

    endpoint: str
    key: ClientKey


class ReplayClient(HubClient):
    """A client of a hub that serves a recording; the hub ends when this is closed, or with us."""

    replay = True

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        with tempfile.TemporaryFile() as words:
            self._hub = _start_replay(directory, words)
            try:
                endpoint, key = _read_greeting(self._hub, directory, words)
            except BaseException:
                _end(self._hub)
                raise
        try:
            super().__init__(endpoint, key, run_words=words_for(directory.path))
        except BaseException:
            _end(self._hub)
            raise

    def command(
        self,
        name: str,
        *,
        author: str,
        args: dict[str, int | str] | None = None,
        timeout_s: float | None = None,
    ) -> CommandReply:
        """Raises :class:`UserError`: a recording follows none."""
        status = self.ask("status").body
        gone = no_hub(status) if isinstance(status, Status) else None
        if gone is None:
            why = f"is over: nobody is there to follow {name!r} (what is live: rankscope ls)"
        else:
            again = gone.next.partition("; ")[0]
            why = f"had not ended, but its hub is gone and {name!r} was not given; {again}"
        raise UserError(f"run {self._directory.run} {why}", Exit.UNREACHABLE)

    def close(self) -> None:
        super().close()
        _end(self._hub)

    def superseded(self) -> bool:
        """Whether the run has a live hub again."""
        try:
            return hub_is_alive(self._directory.read_info())
        except UserError:
            return False


def connect(directory: RunDirectory, role: Role = "operator") -> HubClient:
    """A client of the hub of ``directory``: the live one, else one that replays its recording.

    Raises :class:`UserError` when the directory is damaged, not private, or holds no recording.
    """
    info = check(directory)
    if not hub_is_alive(info) and _may_come_back(directory, info):
        info = _wait_for_hub(directory, info, RESTART_S)
    if hub_is_alive(info) and info.endpoint is not None:
        words, key = words_for(directory.path), directory.read_key(role)
        client = HubClient(info.endpoint, key, run_words=words, process=info.hub)
        client.incidents = directory.incidents
        return client
    return ReplayClient(directory)


class OnceClient(HubClient):
    """A client for one command of the live hub of ``directory``, and, where that ends before it has
    answered, of what comes after it: a hub that was started again, else the recording."""

    def __init__(self, directory: RunDirectory, info: RunInfo, endpoint: str, role: Role) -> None:
        super().__init__(
            endpoint,
            directory.read_key(role),
            run_words=words_for(directory.path),
            process=info.hub,
        )
        self.incidents = directory.incidents
        self._directory = directory
        self._asked_as = role
        self._after: HubClient | None = None

    def ask(
        self,
        view: str,
        *,
        since: int = 0,
        args: dict[str, int | str] | None = None,
        timeout_s: float | None = None,
    ) -> Reply:
        if self._after is None:
            try:
                return super().ask(view, since=since, args=args, timeout_s=timeout_s)
            except LinkError as error:
                if error.cause != "nobody" or hub_is_alive(self._directory.read_info()):
                    raise
            self._after = connect(self._directory, self._asked_as)
            self.replay = self._after.replay
            since = 0
        return self._after.ask(view, since=since, args=args, timeout_s=timeout_s)

    def close(self) -> None:
        super().close()
        if self._after is not None:
            self._after.close()


def connect_once(directory: RunDirectory, role: Role = "operator") -> HubClient:
    """As :func:`connect`, for a command that asks and is done: its hub may end meanwhile."""
    info = check(directory)
    if hub_is_alive(info) and info.endpoint is not None:
        return OnceClient(directory, info, info.endpoint, role)
    return connect(directory, role)


def connect_past(directory: RunDirectory) -> HubClient:
    """A client of a hub that serves the recording of ``directory``, also of a live run.

    Raises :class:`UserError` when there is none that can be read.
    """
    if not any(directory.recording.glob("*.rec")):
        raise UserError(f"run {directory.run} has no recording to go back to", Exit.UNREACHABLE)
    return ReplayClient(directory)


def check(directory: RunDirectory) -> RunInfo:
    """``run.json`` of a run that can be shown; raises :class:`UserError` when it cannot."""
    if not directory.path.exists():
        raise UserError(
            f"the run's folder is gone (deleted or moved; a drill deletes its own when the verdict "
            f"was exact): {directory.path}",
            Exit.UNREACHABLE,
        )
    directory.check()
    info = directory.read_info()
    if info.hub is None and info.ended_s is None and abs(time.time() - info.created_s) < NEW_S:
        info = _wait_for_hub(directory, info, START_S)
    if not hub_is_alive(info) and not any(directory.recording.glob("*.rec")):
        raise UserError(
            f"run {info.run} has no live hub and no recording; see {directory.log}, "
            "or choose another (rankscope ls)",
            Exit.UNREACHABLE,
        )
    return info


def connect_remote(endpoint: str, key_file: Path) -> HubClient:
    """A client of a hub known by its endpoint and a key file only."""
    words = words_elsewhere(endpoint, key_file)
    return HubClient(endpoint, read_client_key(key_file), run_words=words)


def choose(wanted: str | None) -> RunDirectory:
    """The run a command means. With several live ones a person is asked, a script is told."""
    home = runs_home()
    if wanted is None and sys.stdin.isatty() and sys.stderr.isatty():
        live = live_runs(list_runs(home))
        if len(live) > 1:
            return _ask_which(live)
    return find_run(home, wanted)


def _ask_which(live: Sequence[RunDirectory]) -> RunDirectory:
    for number, directory in enumerate(live, 1):
        name = directory.read_info().name
        print(f"{number:3}  {directory.run}  {name}", file=sys.stderr)
    print(f"{len(live)} runs are live. Which one? [1] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip() or "1"
    if not answer.isdigit() or not 1 <= int(answer) <= len(live):
        raise UserError(f"{answer!r} is none of 1 to {len(live)}; name the run instead")
    return live[int(answer) - 1]


def _may_come_back(directory: RunDirectory, info: RunInfo) -> bool:
    if info.ended_s is not None or info.hub is None:
        return False
    try:
        newest = max((path.stat().st_mtime for path in directory.recording.iterdir()), default=0.0)
    except OSError:
        return False
    return time.time() - newest < RECENT_S


def _wait_for_hub(directory: RunDirectory, info: RunInfo, for_s: float) -> RunInfo:
    deadline = time.monotonic() + for_s
    while time.monotonic() < deadline and not hub_is_alive(info):
        time.sleep(0.05)
        info = directory.read_info()
    return info


def _start_replay(directory: RunDirectory, words: IO[bytes]) -> "subprocess.Popen[bytes]":
    # Its stdin is a pipe of which only we hold the other end: it closes with us, also when we are
    # killed, and the hub ends. A session of its own keeps the terminal's Ctrl-C from it.
    return subprocess.Popen(
        [*python_module("rankscope.hub"), "--replay", str(directory.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=words,
        start_new_session=True,
    )


def _read_greeting(
    hub: "subprocess.Popen[bytes]", directory: RunDirectory, words: IO[bytes]
) -> tuple[str, ClientKey]:
    """The endpoint of a replaying hub and the key that it made for us."""
    assert hub.stdout is not None
    descriptor, line = hub.stdout.fileno(), b""
    deadline = time.monotonic() + REPLAY_START_S
    while not line.endswith(b"\n") and len(line) < MAX_REPLAY_LINE_BYTES:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise UserError(
                f"the recording of {directory.run} was not read within {REPLAY_START_S:.0f} s",
                Exit.TIMED_OUT,
            )
        piece = os.read(descriptor, MAX_REPLAY_LINE_BYTES)
        if not piece:
            words.seek(0)
            said = words.read().decode("utf-8", "replace").splitlines()
            last = next((line for line in reversed(said) if line.strip()), "it said nothing")
            last = last.strip().removeprefix("rankscope: ")
            raise UserError(f"cannot replay run {directory.run}: {last}", Exit.UNREACHABLE)
        line += piece
    greeting = msgspec.json.decode(line, type=Greeting)
    return greeting.endpoint, greeting.key


def _end(hub: "subprocess.Popen[bytes]") -> None:
    for pipe in (hub.stdin, hub.stdout):
        if pipe is not None:
            pipe.close()
    try:
        hub.wait(2.0)
    except subprocess.TimeoutExpired:
        hub.kill()
        hub.wait()
