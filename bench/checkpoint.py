"""What a checkpoint costs training, beside ``dcp.save`` of the same state in the same run.

How the stall is measured stands in ``_stall``. Beside it: the CPU time of a save, and what it takes
to write 300 MB as a save does, over a plain sequential write of as much to the same disk, both
synced.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _figure
import _stall
from _stall import LAYERS, RANKS, WIDTH

SECONDS = 225.0
"""Of saves and steps in turn; start and end come on top."""

ROUNDS, WARM = 5, 1
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "RANKSCOPE": "off"}
BLOCK = 4 << 20
WRITES = 7


# --- in a rank -----------------------------------------------------------------------------------


def cpu_main(folder: Path) -> None:
    """CPU time of a save and of ``dcp.save`` in one process: what no load beside it changes much.

    Training can lose no more to a save than what its thread spends and, where nothing of the cores
    is left over, what the rest takes from it.
    """
    import warnings

    import psutil
    import torch
    from torch import nn
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

    from rankscope.agent.checkpoint import Checkpointer

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of a process group that is not there
    layers = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(8, WIDTH)).square().mean().backward()
    optimizer.step()
    saver = Checkpointer(state={"model": model, "optimizer": optimizer}, dir=folder / "ours")

    def outside() -> float:
        """CPU seconds of the process that writes, which lives on; none before there is one."""
        kept = saver._stager._buffer.scribe
        if kept is None:
            return 0.0
        times = psutil.Process(kept.process.pid).cpu_times()
        return float(times.user + times.system)

    told = []
    from_s = 0.0
    for number in range(ROUNDS + WARM):
        if number == WARM:
            from_s = outside()
        thread_s, all_s = time.thread_time(), time.process_time()
        saver.save(number)
        thread_s = time.thread_time() - thread_s
        outcome = saver.wait()
        assert outcome is not None
        assert outcome.ok, outcome
        others_s = time.process_time() - all_s - thread_s
        shutil.rmtree(outcome.path)
        begun_s, wall_s = time.process_time(), time.perf_counter()
        states = get_state_dict(model, optimizer)
        path = folder / f"theirs-{number}"
        dcp_save({"model": states[0], "optimizer": states[1]}, checkpoint_id=path, no_dist=True)
        theirs_s, wall_s = time.process_time() - begun_s, time.perf_counter() - wall_s
        shutil.rmtree(path)
        told.append(
            {
                "training_s": thread_s,
                "others_s": others_s,
                "theirs_s": theirs_s,
                "theirs_wall_s": wall_s,
            }
        )
    # Told in hundredths of a second: all of them together.
    process_s = (outside() - from_s) / ROUNDS
    (folder / "cpu.json").write_text(
        json.dumps([one | {"process_s": process_s} for one in told[WARM:]])
    )


# --- outside -----------------------------------------------------------------------------------


def write_rates(folder: Path, size_bytes: int) -> tuple[float, float]:
    """Seconds for a plain sequential write of ``size_bytes`` and for ours, both synced."""
    import threading

    import torch

    from rankscope.agent.checkpoint.hands import hand
    from rankscope.agent.checkpoint.staging import Buffer, Copied, Staged
    from rankscope.agent.checkpoint.writing import write

    piece = 32 << 20
    buffer = Buffer(size_bytes // piece * piece)
    buffer.tensor.random_(256)
    copies = [
        Copied(f"t{at}", torch.uint8, (piece,), (0,), (piece,), at, at + piece)
        for at in range(0, buffer.tensor.numel(), piece)
    ]
    staged = Staged(copies, buffer, None)
    whole = staged.bytes()
    plain, ours = [], []
    for number in range(WRITES):
        begun_s = time.perf_counter()
        with (folder / f"plain-{number}").open("wb", buffering=0) as file:
            for at in range(0, len(whole), BLOCK):
                file.write(whole[at : at + BLOCK])
            os.fsync(file.fileno())
        plain.append(time.perf_counter() - begun_s)
        begun_s = time.perf_counter()
        with hand(staged, threading.Event(), threading.Event()) as writer:
            write(folder, f"ours-{number}", 0, copies, writer, {}, lambda count: None)
            writer.sync(folder / f"ours-{number}")
        ours.append(time.perf_counter() - begun_s)
        for name in ("plain", "ours"):
            (folder / f"{name}-{number}").unlink()
    return statistics.median(plain), statistics.median(ours)


def launch(arguments: list[str]) -> None:
    """Run this file as each of the ranks. Raises when one of them fails."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = ENVIRONMENT | {
        "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, *arguments], env=environment | {"RANK": str(rank)}
        )
        for rank in range(RANKS)
    ]
    try:
        for one in ranks:
            if one.wait() != 0:
                raise SystemExit(f"a rank failed with exit code {one.returncode}")
    finally:
        for one in ranks:
            one.kill()
            one.wait()


def main(seconds: float) -> int:
    with tempfile.TemporaryDirectory(prefix="rankscope-bench-") as name:
        folder = Path(name)
        launch(["--rank", name, "--seconds", str(seconds)])
        stall = _stall.result(folder)
        subprocess.run([sys.executable, __file__, "--cpu", name], env=ENVIRONMENT, check=True)
        spent: list[dict[str, float]] = json.loads((folder / "cpu.json").read_text())
        plain_s, ours_s = write_rates(folder, 300 << 20)

    name, unit = "checkpoint.stall", "of dcp.save"
    _figure.figure(name, stall.whole, unit, 0.1, **stall.whole_detail, **_figure.load())
    _figure.figure(
        f"{name}.own", stall.own, f"{unit}, of the thread itself", None, **stall.own_detail
    )
    _figure.figure(
        "checkpoint.cpu",
        statistics.median(one["training_s"] / one["theirs_wall_s"] for one in spent),
        "CPU time of the training thread over dcp.save's duration",
        None,
        **{
            name: round(float(statistics.median(one[name] for one in spent)), 4)
            for name in ("training_s", "others_s", "process_s", "theirs_s", "theirs_wall_s")
        },
    )
    _figure.figure("checkpoint.write", ours_s / plain_s, "of a plain write", 1.43, plain_s=plain_s)
    return 0


def killed(count: int, out: Path | None, minutes: float) -> int:
    """``count`` lives of a run that is killed at random, as far as time allows."""
    import _kills

    try:
        found = _kills.lives(count, out, time.monotonic() + 60 * minutes)
    except _kills.Wrong as wrong:
        print(f"checkpoint.kills: {wrong}", file=sys.stderr)
        return 1
    _figure.figure(
        "checkpoint.kills",
        len(found),
        "lives without a wrong state",
        None,
        by={what: sum(one["what"] == what for one in found) for what in sorted(set(_kills.WHATS))},
        resumed=sum(one["resumed"] is not None for one in found),
        saved=sum(one["saved"] for one in found),
        failed=sum(one["failed"] for one in found),
    )
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cpu", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for the stall")
    parser.add_argument("--full", action="store_true", help="saves under random kills, too")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=120.0, help="for the kills")
    parser.add_argument("--out", type=Path, help="one JSON line a kill; goes on from what is there")
    parser.add_argument("--only-kills", action="store_true")
    asked = parser.parse_args()
    if asked.rank is not None:
        _stall.rank_main(asked.rank, asked.seconds)
        sys.exit(0)
    if asked.cpu is not None:
        cpu_main(asked.cpu)
        sys.exit(0)
    code = 0 if asked.only_kills else main(asked.seconds)
    if asked.full or asked.only_kills:
        code = killed(asked.kills, asked.out, asked.minutes) or code
    sys.exit(code)
