"""``python -m rankscope.agent.sentinel``: one process a node, the agents' key on its stdin."""

import argparse
import gc
import os
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import msgspec

from rankscope.agent import nodedir
from rankscope.agent.sentinel.gpuwatch import GpuWatch
from rankscope.agent.sentinel.hubkeeper import HubKeeper
from rankscope.agent.sentinel.link import Link
from rankscope.agent.sentinel.lock import Lock
from rankscope.agent.sentinel.loop import Loop, Settings
from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.keys import MAX_KEY_FILE_BYTES, Z85_CHARS, ClientKey
from rankscope.protocol.rundir import RunDirectory

LOCK_PATIENCE_S = 0.1


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see --help")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = OneLineParser(prog="python -m rankscope.agent.sentinel", description=__doc__)
    parser.add_argument("--run", required=True, help="the run's id")
    parser.add_argument(
        "--node-dir", type=Path, help="where the ranks register (else the run's own on this node)"
    )
    parser.add_argument("--endpoint", required=True, help="the hub's tcp://host:port")
    parser.add_argument(
        "--supervise-hub", type=Path, metavar="RUN_DIR", help="restart this run's hub when killed"
    )
    parser.add_argument(
        "--idle-exit-s", type=float, default=60.0, help="end so long after the last rank ended"
    )
    return parser.parse_args(arguments)


def read_key() -> ClientKey:
    """The agents' key from stdin, which is closed then. Raises :class:`UserError`."""
    raw = sys.stdin.buffer.read(MAX_KEY_FILE_BYTES + 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        key = msgspec.json.decode(raw, type=ClientKey)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise UserError("no agents' key on stdin: give it the run's keys/agent.json") from None
    if any(len(part) != Z85_CHARS for part in (key.public, key.secret, key.hub_public)):
        raise UserError("the agents' key on stdin is damaged: give it the run's keys/agent.json")
    return key


def say(text: str) -> None:
    print(f"rankscope sentinel: {text}", file=sys.stderr, flush=True)


def watch(options: argparse.Namespace, key: ClientKey) -> None:
    """Be the node's sentinel; returns at once where there is one already."""
    if options.node_dir is None:
        if Path(options.run).name != options.run or options.run == "..":
            raise UserError(f"{options.run!r} is no run id")
        options.node_dir = nodedir.make_node_dir(options.run)
    nodedir.check_private_dir(options.node_dir)
    lock = Lock(nodedir.sentinel_lock_path(options.node_dir))
    if not lock.acquire(LOCK_PATIENCE_S):
        return
    supervised = options.supervise_hub
    keeper = HubKeeper(RunDirectory(supervised), say) if supervised is not None else None
    link = Link(options.endpoint, key)
    gpus = GpuWatch()
    gpus.start()
    loop = Loop(
        Settings(options.run, options.node_dir, options.idle_exit_s),
        link,
        gpus,
        keeper,
        say,
        lock.renew,
    )
    gc.collect()
    gc.freeze()  # the modules stay: nobody is to go through them again
    try:
        loop.run()
        while not (loop.stopped_by_signal or loop.displaced):
            loop.tidy()
            lock.release(remove=True)
            # A rank that registered while the lock was still held may have started a sentinel in
            # vain: then this one takes the lock again and goes on.
            if loop.run_over or not loop.look_for_new() or not lock.acquire():
                loop.remove_folders()
                nodedir.forget_launchers_gone()
                break
            loop.run()
    finally:
        lock.release()
        gpus.stop()
        loop.close()
        if keeper is not None:
            keeper.close()
        link.close()


def main(arguments: list[str] | None = None) -> int:
    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
        watch(options, read_key())
    except UserError as error:
        say(str(error))
        return int(error.exit_code)
    except OSError as error:
        say(f"cannot work in {options.node_dir or nodedir.base_dir()}: {error.strerror}")
        return int(Exit.USAGE)
    except Exception:  # noqa: BLE001 - the one place where a bug ends
        traceback.print_exc()
        return int(Exit.BUG)
    return int(Exit.FINE)


if __name__ == "__main__":
    sys.exit(main())
