"""Saves of a run that is killed at random, again and again, and goes on from what it saved.

A *life* is one start of the ranks: they resume, train, save every few steps, and something is
killed: a rank, all of them, the hub in a save that an operator asked for, or the disk is full. The
next life must go on from a state that was there at that step: each step's whole state is hashed
before it is saved, and in all lives a step's state is the same. ``latest`` must lead to a whole
checkpoint after each.
"""

import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import psutil

from rankscope.protocol import checkpoints

RANKS = 2
WHATS = ("rank",) * 3 + ("job",) * 3 + ("disk",) * 2 + ("hub",) * 2
PHASES = ("staging", "waiting", "writing", "syncing", "publishing")
LIFE_S = 300.0
"""The longest that survivors have before they are killed as a launcher would."""

DISK_BYTES = 24 << 20
PER_DIRECTORY = 25
"""Lives that one directory of checkpoints goes through."""

context = multiprocessing.get_context("forkserver")


class Wrong(Exception):
    """What must never be has been seen."""


@contextlib.contextmanager
def small_disk() -> Iterator[Path]:
    """A file system that is soon full, where one may be mounted; else an ordinary folder."""
    with tempfile.TemporaryDirectory(prefix="rankscope-disk-") as name:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", name]
        mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
        try:
            yield Path(name)
        finally:
            if mounted:
                subprocess.run(["umount", "-l", name], check=False)


class Directory:
    """One directory of checkpoints, and what is known of the states that were saved there."""

    def __init__(self, root: Path, kind: str, dice: random.Random) -> None:
        self.saved, self.log = root / "saved", root / "log"
        self.kind, self._dice = kind, dice
        self.saved.mkdir()
        self.log.touch()
        self.hashes: dict[int, str] = {}

    def life(self, what: str, home: Path) -> dict[str, Any]:
        """One life, ended by ``what``. Raises :class:`Wrong`."""
        dice = self._dice
        at: list[Any] = []
        if what in ("rank", "job") and dice.random() < 0.6:
            at = [dice.randrange(RANKS), dice.choice(PHASES)]
        told = {
            "what": what,
            "kind": self.kind,
            "dir": str(self.saved),
            "log": str(self.log),
            "home": str(home),
            "steps": 60,
            "at": at,
            "skip": dice.randrange(4),
            "wait": dice.random() < 0.7,
            "delay_s": dice.choice([0.0, 0.003, 0.03]),
            "least_bytes": dice.choice([0, 1 << 60]),
        }
        before = self.log.stat().st_size
        newest = next(
            (one.step for one in checkpoints.find(self.saved)[0] if not one.trouble), None
        )
        port = free_port(dice)
        from _killedrank import run

        ranks = [
            context.Process(target=run, args=(rank, RANKS, port, told)) for rank in range(RANKS)
        ]
        for one in ranks:
            one.start()
        try:
            self._end(what, ranks, before, bool(at), home)
        finally:
            end_all(ranks, home if what == "hub" else None)
        found = self._judge(what, before, home)
        if found["resumed"] != newest:
            raise Wrong(f"step {newest} was the newest checkpoint, step {found['resumed']} loaded")
        return found

    def _end(
        self, what: str, ranks: list[ForkServerProcess], before: int, itself: bool, home: Path
    ) -> None:
        dice = self._dice
        deadline_s = time.monotonic() + LIFE_S
        while self.log.stat().st_size == before and time.monotonic() < deadline_s:
            if any(one.exitcode is not None for one in ranks):
                break
            time.sleep(0.01)
        if what == "hub":
            end_hub(home, dice)
        elif what == "disk":
            time.sleep(dice.uniform(0.0, 1.0))
            with (self.saved / "filler").open("wb") as filler:
                space = shutil.disk_usage(self.saved).free
                left = dice.randrange(2 << 20)
                with contextlib.suppress(OSError):
                    filler.write(bytes(max(0, min(space, DISK_BYTES) - left)))
            time.sleep(dice.uniform(0.1, 1.0))
            if dice.random() < 0.5:
                (self.saved / "filler").unlink()
                time.sleep(dice.uniform(0.1, 1.0))
            kill(ranks[dice.randrange(RANKS)])
        elif not itself:
            time.sleep(dice.uniform(0.0, 1.5))
            kill(ranks[dice.randrange(RANKS)])
        while time.monotonic() < deadline_s and all(one.exitcode is None for one in ranks):
            time.sleep(0.01)
        if what == "job":
            for one in ranks:
                kill(one)
        # Survivors have a moment, as under a launcher, in which they may clean up or write on.
        grace_s = time.monotonic() + dice.uniform(0.0, 2.0)
        while time.monotonic() < grace_s and any(one.exitcode is None for one in ranks):
            time.sleep(0.01)

    def _judge(self, what: str, before: int, home: Path) -> dict[str, Any]:
        (self.saved / "filler").unlink(missing_ok=True)
        told: dict[str, Any] = {"what": what, "kind": self.kind, "resumed": None, "saved": 0}
        told["failed"] = 0
        with self.log.open(encoding="ascii") as log:
            log.seek(before)
            lines = [line.split() for line in log if line.endswith("\n")]
        for word, number, *more in lines:
            step = int(number)
            if word in ("saved", "failed"):
                told[word] += 1
            elif word == "loaded":
                told["resumed"] = step
                if self.hashes.get(step) != more[0]:
                    raise Wrong(f"step {step} was loaded as {more[0]}: {self.hashes.get(step)}")
            elif self.hashes.setdefault(step, more[0]) != more[0]:
                raise Wrong(f"step {step} came out as {more[0]}, once as {self.hashes[step]}")
        if not lines:
            said = [path.read_text(errors="replace")[-400:] for path in home.glob("said-*")]
            raise Wrong("the ranks did not begin: " + " | ".join(said).replace("\n", " "))
        whole = [one for one in checkpoints.find(self.saved)[0] if not one.trouble]
        for one in whole:
            verified = checkpoints.verify(self.saved / one.name)
            if verified.state != "complete":
                raise Wrong(f"{one.name} is {verified.state} and looks whole")
        latest = self.saved / checkpoints.LATEST
        if latest.is_symlink() and checkpoints.verify(latest.resolve()).state != "complete":
            raise Wrong(f"latest leads to {latest.resolve().name}")
        told["newest"] = whole[0].step if whole else None
        return told


def kill(process: ForkServerProcess) -> None:
    with contextlib.suppress(ProcessLookupError):
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)


def free_port(dice: random.Random) -> int:
    """One that nobody is given by the kernel while the ranks begin, as ephemeral ones are."""
    while True:
        port = dice.randrange(15000, 29000)
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


def end_hub(home: Path, dice: random.Random) -> None:
    """Ask for a checkpoint, then kill the hub at some moment."""
    deadline_s = time.monotonic() + LIFE_S / 3
    while hub_of(home) is None and time.monotonic() < deadline_s:
        time.sleep(0.02)
    command = [str(Path(sys.executable).with_name("rankscope")), "checkpoint", "--no-wait"]
    environment = os.environ | {"RANKSCOPE_HOME": str(home)}
    asked = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with contextlib.suppress(subprocess.TimeoutExpired):
        asked.wait(dice.uniform(0.5, 6.0))
    hub = hub_of(home)
    if hub is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(hub, signal.SIGKILL)
    asked.kill()
    asked.wait()


def hub_of(home: Path) -> int | None:
    """The hub's pid, once there is one."""
    try:
        told = json.loads((home / "runs" / "latest" / "run.json").read_text())
    except (OSError, ValueError):
        return None
    return told["hub"]["pid"] if told.get("hub") else None


def end_all(ranks: list[ForkServerProcess], home: Path | None) -> None:
    """End what this life has started."""
    for one in ranks:
        kill(one)
        one.join()
        one.close()
    for process in psutil.process_iter() if home is not None else ():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("RANKSCOPE_HOME") == str(home):
                process.kill()


def lives(count: int, out: Path | None, until_s: float) -> list[dict[str, Any]]:
    """Go on until there are ``count`` lives in ``out``, or it is ``until_s`` (monotonic)."""
    found: list[dict[str, Any]] = []
    if out is not None and out.exists():
        found = [json.loads(line) for line in out.read_text().splitlines()]
    context.set_forkserver_preload(["_killedrank"])
    while len(found) < count and time.monotonic() < until_s:
        with small_disk() as root, tempfile.TemporaryDirectory(prefix="rs-") as home:
            seed = time.time_ns()
            dice = random.Random(seed)
            directory = Directory(root, dice.choice(["ddp", "fsdp2"]), dice)
            for number in range(PER_DIRECTORY):
                if len(found) >= count or time.monotonic() >= until_s:
                    break
                life = Path(home) / str(number)
                life.mkdir()
                one = directory.life(dice.choice(WHATS), life)
                found.append(one)
                if out is not None:
                    with out.open("a") as file:
                        file.write(json.dumps(one) + "\n")
    return found
