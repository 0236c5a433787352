"""What a checkpoint costs training, beside ``dcp.save`` of the same state in the same run.

Two ranks train a sharded model; each writes over 300 MB. A round is a few steps without a save, one
synchronous save of DCP, and one of ours with steps until it is published. The stall of ours is all
that these steps and the save's own call took beyond the median of the steps without one. Beside it
stand what a save took that is written by a thread of the rank, and the noise: what as many steps
without a save took beyond that median.
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
from typing import Any

import _figure

RANKS = 2
WIDTH, LAYERS = 2048, 12
"""50 million parameters: with AdamW's state 600 MB, 300 on each of two ranks."""

ROUNDS, WARM = 5, 1
STEPS = 6
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "RANKSCOPE": "off"}
BLOCK = 4 << 20


# --- in the ranks ------------------------------------------------------------------------------


def rank_main(folder: Path, rounds: int) -> None:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.checkpoint.state_dict_saver import save as dcp_save
    from torch.distributed.fsdp import fully_shard

    from rankscope.agent.checkpoint import Checkpointer, hands

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model: nn.Module = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    for layer in model:  # type: ignore[attr-defined]
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    inputs = torch.randn(64, WIDTH)

    def step() -> float:
        begun_s = time.perf_counter()
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - begun_s

    def theirs(path: Path) -> float:
        dist.barrier()
        begun_s = time.perf_counter()
        states = get_state_dict(model, optimizer)
        dcp_save({"model": states[0], "optimizer": states[1]}, checkpoint_id=path)
        return time.perf_counter() - begun_s

    saver = Checkpointer(state={"model": model, "optimizer": optimizer}, dir=folder / "ours")

    def ours(number: int, least_bytes: int, usual_s: float) -> dict[str, float]:
        """One save and the steps until it is published; by a process from ``least_bytes`` on."""
        hands.LEAST_BYTES = least_bytes
        dist.barrier()
        begun_s = time.perf_counter()
        saver.save(number)
        call_s = time.perf_counter() - begun_s
        busy = []
        while True:  # as many steps on all ranks, as the training of a real run has
            busy.append(step())
            saving = torch.tensor(int(saver.saving))
            dist.all_reduce(saving, dist.ReduceOp.MAX)
            if not saving:
                break
        published_s = time.perf_counter() - begun_s
        outcome = saver.wait()
        assert outcome is not None
        assert outcome.ok, outcome
        dist.barrier()
        if rank == 0:
            shutil.rmtree(outcome.path)
        return {
            "call_s": call_s,
            "stall_s": call_s + sum(busy) - len(busy) * usual_s,
            "published_s": published_s,
            "steps": len(busy),
            "bytes": float(saver.progress().total_bytes),
        }

    for _ in range(STEPS):
        step()
    told: list[dict[str, float]] = []
    for number in range(rounds + WARM):
        dist.barrier()
        plain = [step() for _ in range(STEPS)]
        theirs_s = theirs(folder / f"theirs-{number}")
        step()
        dist.barrier()
        usual_s = statistics.median(plain)
        by_thread = ours(number * 2 + 1, 1 << 60, usual_s)
        by_process = ours(number * 2 + 2, 0, usual_s)
        after = [step() for _ in range(STEPS)]
        found = by_process | {"thread_stall_s": by_thread["stall_s"]}
        found["noise_s"] = (sum(after) / STEPS - usual_s) * found["steps"]
        told.append(found | {"theirs_s": theirs_s, "step_s": usual_s})
        if rank == 0:
            shutil.rmtree(folder / f"theirs-{number}")
            print(json.dumps(told[-1]), file=sys.stderr, flush=True)
    if rank == 0:
        (folder / "told.json").write_text(json.dumps(told[WARM:]))
    dist.barrier()
    dist.destroy_process_group()


def cpu_main(folder: Path) -> None:
    """CPU time of a save and of ``dcp.save`` in one process: what no load beside it changes much.

    Training can lose no more to a save than what its thread spends and, where nothing of the cores
    is left over, what the rest takes from it.
    """
    import resource
    import warnings

    import torch
    from torch import nn
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

    from rankscope.agent.checkpoint import Checkpointer

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of a process group that is not there
    layers = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS // RANKS))
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(8, WIDTH)).square().mean().backward()
    optimizer.step()
    saver = Checkpointer(state={"model": model, "optimizer": optimizer}, dir=folder / "ours")

    def children_s() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    told = []
    for number in range(ROUNDS + WARM):
        thread_s, all_s, outside_s = time.thread_time(), time.process_time(), children_s()
        saver.save(number)
        thread_s = time.thread_time() - thread_s
        outcome = saver.wait()
        assert outcome is not None
        assert outcome.ok, outcome
        others_s = time.process_time() - all_s - thread_s
        outside_s = children_s() - outside_s
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
                "process_s": outside_s,
                "theirs_s": theirs_s,
                "theirs_wall_s": wall_s,
            }
        )
    (folder / "cpu.json").write_text(json.dumps(told[WARM:]))


# --- outside -----------------------------------------------------------------------------------


def write_rates(folder: Path, size_bytes: int) -> tuple[float, float]:
    """Seconds for a plain sequential write of ``size_bytes`` and for ours, both synced."""
    import torch

    from rankscope.agent.checkpoint.hands import Inside, sync
    from rankscope.agent.checkpoint.staging import Copied
    from rankscope.agent.checkpoint.writing import write

    data = memoryview(bytearray(os.urandom(1 << 20) * (size_bytes >> 20)))
    piece = 32 << 20
    copies = [
        Copied(f"t{at}", torch.uint8, (piece,), (0,), (piece,), at, at + piece)
        for at in range(0, len(data) - piece + 1, piece)
    ]
    whole = data[: len(copies) * piece]
    plain, ours = [], []
    for number in range(5):
        begun_s = time.perf_counter()
        with (folder / f"plain-{number}").open("wb", buffering=0) as file:
            for at in range(0, len(whole), BLOCK):
                file.write(whole[at : at + BLOCK])
            os.fsync(file.fileno())
        plain.append(time.perf_counter() - begun_s)
        begun_s = time.perf_counter()
        write(folder, f"ours-{number}", 0, copies, Inside(data), {}, lambda count: None)
        sync(folder / f"ours-{number}")
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


def main(rounds: int) -> int:
    with tempfile.TemporaryDirectory(prefix="rankscope-bench-") as name:
        folder = Path(name)
        launch(["--rank", name, "--rounds", str(rounds)])
        told: list[dict[str, Any]] = json.loads((folder / "told.json").read_text())
        subprocess.run([sys.executable, __file__, "--cpu", name], env=ENVIRONMENT, check=True)
        spent: list[dict[str, float]] = json.loads((folder / "cpu.json").read_text())
        plain_s, ours_s = write_rates(folder, 300 << 20)

    def middle(name: str) -> float:
        return round(float(statistics.median(one[name] for one in told)), 4)

    _figure.figure(
        "checkpoint.stall",
        statistics.median(one["stall_s"] / one["theirs_s"] for one in told),
        "of dcp.save",
        0.1,
        rounds=len(told),
        bytes_a_rank=int(told[0]["bytes"]),
        **_figure.load(),
        **{
            name: middle(name)
            for name in (
                *("theirs_s", "stall_s", "thread_stall_s", "noise_s"),
                *("call_s", "published_s", "step_s", "steps"),
            )
        },
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
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--full", action="store_true", help="saves under random kills, too")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=120.0, help="for the kills")
    parser.add_argument("--out", type=Path, help="one JSON line a kill; goes on from what is there")
    parser.add_argument("--only-kills", action="store_true")
    asked = parser.parse_args()
    if asked.rank is not None:
        rank_main(asked.rank, asked.rounds)
        sys.exit(0)
    if asked.cpu is not None:
        cpu_main(asked.cpu)
        sys.exit(0)
    code = 0 if asked.only_kills else main(asked.rounds)
    if asked.full or asked.only_kills:
        code = killed(asked.kills, asked.out, asked.minutes) or code
    sys.exit(code)
