"""What only a machine with a CUDA device shows: one process, one rank, NCCL.

That watching adds no synchronisation (torch raises at each one meanwhile), that the peaks it tells
are torch's own, that NVML answers, that NCCL's flight recorder is read, and what watching costs.
Without a device it says so in one line and measures nothing.
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import _blocks
from _figure import figure

WIDTH = 4096  # eight layers of 4096 x 4096: 134 million parameters
LAYERS = 8
BATCH = 8192
STEPS_A_BLOCK, PAIRS, SKIPPED = 25, 30, 5


def main() -> int:
    import torch

    if not torch.cuda.is_available():
        print("gpu_check: there is no CUDA device here: nothing was measured", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"RANKSCOPE_HOME": folder, "TORCH_FR_BUFFER_SIZE": "2000"}
        check(Path(folder))
    return 0


def check(folder: Path) -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from rankscope.agent import attach

    torch.cuda.set_device(0)
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).cuda(), device_ids=[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batch = torch.randn(BATCH, WIDTH, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(batch).float().pow(2).mean()
        loss.backward()
        optimizer.step()

    agent = attach(model, optimizer, name="gpu-check")
    session: Any = agent._session
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    card = torch.cuda.get_device_name()
    about = {"card": card, "torch": torch.__version__, "parameters": LAYERS * (WIDTH + 1) * WIDTH}

    figure("gpu.synchronisations", synchronisations(torch, step), "steps", 0, **about)

    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    told = session.observer.memory.read()
    here = torch.cuda.max_memory_allocated()
    known = getattr(told, "peak_allocated_bytes", None) or 0
    figure("gpu.peak_over_torchs", round(known / here, 4), "ratio", None, torch_bytes=here, **about)

    statuses = session.observer.collectives.read_statuses()
    done = max((one.last_completed for one in statuses), default=-1)
    figure("gpu.nccl_groups_seen", len(statuses), "groups", None, last_completed=done, **about)
    figure("gpu.faults", len(faults(session)), "probes", 0, off=faults(session), **about)
    nvml(about)
    ratios = overhead(torch, agent, step)
    detail = {"interval_95": _blocks.interval(ratios), "pairs": len(ratios), **about}
    figure("gpu.step_time", round(statistics.median(ratios), 4), "ratio", 1.02, **detail)
    agent.close()
    dist.destroy_process_group()


def synchronisations(torch: Any, step: Any) -> int:
    """Steps of 50 in which something waited for the device; torch raises at each such call."""
    waited = 0
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(50):
            try:
                step()
            except RuntimeError:
                waited += 1
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return waited


def faults(session: Any) -> list[str]:
    """The probes that have failed, by name: one that waited for the device has."""
    return [name for name, probe in session.observer.probes.items() if not probe.on]


def nvml(about: dict[str, Any]) -> None:
    from rankscope.agent.sentinel import nvml as readings

    module = readings.load()
    devices = readings.open_devices(module)
    samples = [readings.read(module, device) for device in devices]
    named = [name for name in samples[0].__struct_fields__ if getattr(samples[0], name) is not None]
    figure("gpu.nvml_devices", len(devices), "devices", None, fields_read=named, **about)


def overhead(torch: Any, agent: Any, step: Any) -> list[float]:
    """Mean step time with the agent over without, one ratio a pair of blocks."""

    def block(on: bool) -> float:
        (agent.resume_observing if on else agent.pause_observing)()
        for _ in range(SKIPPED):
            step()
        torch.cuda.synchronize()
        began_s = time.perf_counter()
        for _ in range(STEPS_A_BLOCK):
            step()
        torch.cuda.synchronize()
        return (time.perf_counter() - began_s) / STEPS_A_BLOCK

    ratios = []
    for index in range(PAIRS):
        took_s = {on: block(on) for on in ((True, False) if index % 2 else (False, True))}
        ratios.append(took_s[True] / took_s[False])
    return ratios


if __name__ == "__main__":
    raise SystemExit(main())
