"""The environment variables that change how ranks compute or talk, as one fact. Pure but for /proc.

Values are cut and long ones hashed. Whatever could be a secret, and what launchers set differently
for each rank by design, is left out.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from rankscope.protocol import limits

PREFIXES = (
    *("NCCL_", "TORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_", "PYTORCH_", "GLOO_", "UCX_", "FI_"),
    *("CUDA_", "CUDNN_", "CUBLAS_", "NVIDIA_", "NVTE_", "TRITON_", "RDMAV_", "IBV_", "XLA_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "MALLOC_", "GLIBC_"),
)
NAMES = frozenset(
    {
        *("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHASHSEED", "PYTHONOPTIMIZE"),
        *("VIRTUAL_ENV", "CONDA_PREFIX"),
    }
)
BY_DESIGN = frozenset(
    {
        # one device, log or socket for each rank
        *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY"),
        *("NCCL_DEBUG_FILE", "NCCL_ASYNC_ERROR_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
        *("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DUMP_TEMP_FILE", "TORCHINDUCTOR_CACHE_DIR"),
        *("TRITON_CACHE_DIR", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"),
        *("NVIDIA_REQUIRE_CUDA", "TORCH_DISTRIBUTED_DEBUG_FILE"),
    }
)
SECRET_WORDS = ("TOKEN", "SECRET", "PASSW", "CREDENTIAL", "AUTH", "COOKIE", "API_KEY", "_KEY")

MAX_VALUE_CHARS = 48
MAX_CHARS = limits.MAX_TEXT_CHARS - 64


def environment_text(environ: Mapping[str, str]) -> str:
    """``NAME=value`` lines in order of names; at the end a hash of what was too much."""
    lines = [f"{name}={shortened(value)}" for name, value in sorted(environ.items()) if told(name)]
    kept: list[str] = []
    size = 0
    for line in lines:
        size += len(line) + 1
        if size > MAX_CHARS:
            break
        kept.append(line)
    if len(kept) < len(lines):
        rest = "\n".join(lines[len(kept) :])
        kept.append(f"…={len(lines) - len(kept)} more, {_hash(rest)}")
    return "\n".join(kept)


def told(name: str) -> bool:
    """Whether the variable is one that ranks are compared by."""
    if name in BY_DESIGN or any(word in name.upper() for word in SECRET_WORDS):
        return False
    return name in NAMES or name.startswith(PREFIXES)


def shortened(value: str) -> str:
    """``value`` in one line; a long one by its beginning and its hash."""
    value = "".join(c if c.isprintable() else "?" for c in value)
    if len(value) <= MAX_VALUE_CHARS:
        return value
    return f"{value[:MAX_VALUE_CHARS]}… {_hash(value)}"


def changed_here(environ: Mapping[str, str], parent: Mapping[str, str] | None) -> list[str]:
    """Names whose values this process does not have from its parent, sorted.

    A launcher hands all its ranks the same; of two ranks that differ, the one that has a value of
    its own is the odd one. Empty where the parent's environment is not known.
    """
    if parent is None:
        return []
    names = {name for name in (*environ, *parent) if told(name)}
    return sorted(name for name in names if environ.get(name) != parent.get(name))[:64]


def parent_environment(proc: Path = Path("/proc")) -> dict[str, str] | None:
    """The environment with which this process's parent was started; None where it is not shown."""
    try:
        data = (proc / str(os.getppid()) / "environ").read_bytes()
    except OSError:
        return None
    pairs = (entry.partition(b"=") for entry in data.split(b"\0") if entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:8]
