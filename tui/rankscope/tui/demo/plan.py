"""What a demonstration will run, checked before anything is started."""

import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rankscope.protocol.exits import UserError

TRAINERS = ("ddp", "fsdp2")
MAX_RANKS_PER_CORE = 8
"""More ranks on a machine than this only wait for each other."""
STEPS = 400
"""Without ``--steps``: a minute or so on two cores."""


@dataclass(frozen=True)
class Plan:
    command: tuple[str, ...]
    environ: dict[str, str]
    trainer: str
    ranks: int
    steps: int


def plan(
    trainer: str,
    ranks: int,
    steps: int | None,
    text: Path | None,
    cores: int | None = os.cpu_count(),
) -> Plan:
    """The command of a demonstration. Raises :class:`UserError` for what cannot work."""
    if trainer not in TRAINERS:
        raise UserError(f"--trainer {trainer}: there are {' and '.join(TRAINERS)}")
    check_ranks(ranks, cores)
    wanted = STEPS if steps is None else steps
    if wanted < 1:
        raise UserError(f"--steps {wanted}: at least 1 step is needed")
    module = f"rankscope.trainers.{trainer}"
    if find_spec("rankscope.trainers") is None or find_spec(module) is None:
        raise UserError(f"--trainer {trainer}: not available in this version")
    if find_spec("torch") is None:
        raise UserError("the demo trains for real and needs torch: pip install 'rankscope[torch]'")
    options = ["--steps", str(wanted)]
    if text is not None:
        if not text.exists():
            raise UserError(f"--text {text}: no such file or folder")
        if text.is_file() and text.stat().st_size == 0:
            raise UserError(f"--text {text}: the file is empty")
        options += ["--text", str(text.absolute())]
    return Plan(
        command=torchrun(ranks, module, *options),
        environ={"OMP_NUM_THREADS": "1"},
        trainer=trainer,
        ranks=ranks,
        steps=wanted,
    )


def check_ranks(ranks: int, cores: int | None = os.cpu_count()) -> None:
    """Raise :class:`UserError` for a number of ranks that this machine cannot have."""
    most = MAX_RANKS_PER_CORE * (cores or 1)
    if ranks < 1:
        raise UserError(f"--ranks {ranks}: at least 1 rank is needed")
    if ranks > most:
        raise UserError(f"--ranks {ranks}: this machine has {cores} cores, use at most {most}")


def torchrun(ranks: int, module: str, *options: str) -> tuple[str, ...]:
    """The command that runs ``module`` on ``ranks`` processes of this machine."""
    return (
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1"),
        *(f"--nproc-per-node={ranks}", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"),
        *("-m", module, *options),
    )
