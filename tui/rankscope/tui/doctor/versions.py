"""Versions, without importing what they are versions of; torch is tried in a process of its own."""

import json
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

from rankscope.tui.doctor.check import Check

BASE = ("pyzmq", "msgspec", "msgpack", "numpy", "psutil")
EXTRAS = {
    "textual": "the dashboard needs it: pip install 'rankscope[tui]'",
    "torch": "ranks need it, and demo: pip install 'rankscope[torch]'",
    "py-spy": "stacks of hung ranks need it: pip install 'rankscope[torch]'",
    "isal": "zlib checksums what is saved without it, slower: pip install 'rankscope[torch]'",
    "nvidia-ml-py": "GPU readings need it: pip install 'rankscope[gpu]'",
}
TORCH_TIMEOUT_S = 120.0

# The symbols the agent reads collectives from; importing torch takes seconds and much memory, and
# may fail in ways that end a process, so it is not done in this one.
PROBE = """
import json, torch
found = {"torch": torch.__version__, "cuda": torch.version.cuda}
import torch.distributed as dist
found["distributed"] = dist.is_available()
c10d = getattr(torch._C, "_distributed_c10d", None)
found["recorder"] = hasattr(c10d, "_dump_fr_trace_json")
found["gloo"] = dist.is_available() and dist.is_gloo_available()
found["nccl"] = dist.is_available() and dist.is_nccl_available()
print(json.dumps(found))
"""


def python() -> list[Check]:
    return [
        Check(
            "python",
            works=sys.version_info >= (3, 11),
            says=f"{platform.python_version()} at {sys.executable}",
            do="use Python 3.11 or newer",
        )
    ]


def libraries() -> list[Check]:
    """Whether the base is complete, and which extras are there."""
    missing = [name for name in BASE if installed(name) is None]
    there = ", ".join(f"{name} {installed(name)}" for name in BASE if name not in missing)
    checks = [
        Check(
            "rankscope",
            works=not missing,
            says=f"{installed('rankscope') or 'not installed'}; {there}",
            do=f"install what is missing: pip install {' '.join(missing)}",
        )
    ]
    for name, do in EXTRAS.items():
        found = installed(name)
        checks.append(
            Check(name, found is not None, found or "not installed", essential=False, do=do)
        )
    return checks


def flight_recorder() -> list[Check]:
    """What torch offers to see collectives with."""
    if installed("torch") is None:
        return []
    result = subprocess.run(
        [sys.executable, "-c", PROBE],
        capture_output=True,
        text=True,
        timeout=TORCH_TIMEOUT_S,
        check=False,
    )
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or ["no word"])[-1]
        return [
            Check(
                "torch starts",
                works=False,
                essential=False,
                says=last,
                do="mend the torch installation: python -c 'import torch'",
            )
        ]
    found = json.loads(result.stdout.splitlines()[-1])
    backends = [name for name in ("gloo", "nccl") if found[name]]
    device = f"CUDA {found['cuda']}" if found["cuda"] else "a CPU build"
    return [
        Check(
            "distributed",
            works=bool(backends),
            essential=False,
            says=f"{', '.join(backends) or 'no backend'}; torch is {device}",
            do="use a torch that was built with torch.distributed",
        ),
        Check(
            "flight recorder",
            works=found["recorder"],
            essential=False,
            says="collectives can be seen" if found["recorder"] else "this torch has none",
            do="use torch 2.9 or newer; without it collectives are not shown",
        ),
    ]


def installed(name: str) -> str | None:
    """The installed version of a distribution."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
