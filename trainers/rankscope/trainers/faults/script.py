"""A fault in anybody's training script: ``-m rankscope.trainers.faults.script … -- FILE ARGS``.

Started by ``rankscope drill --script`` under torchrun. The script runs as it would by itself, as
``__main__``, with its own arguments and folder; the rank that goes wrong does so at a point of
:mod:`rankscope.trainers.faults.scriptpoints`.
"""

import argparse
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope.protocol import faults
from rankscope.protocol.faults import Fault, Spec
from rankscope.protocol.faulttable import FAULTS
from rankscope.trainers.faults import hang, process, setup
from rankscope.trainers.faults.hit import Struck
from rankscope.trainers.faults.scriptpoints import ScriptPoints
from rankscope.trainers.faults.truth import Log

INSTALL: dict[str, Callable[[Struck], None]] = {
    "sigkill": process.sigkill,
    "exit0": process.exit0,
    "abort": process.abort,
    "sigstop": process.sigstop,
    "gil-held": hang.gil_held,
    "environment": setup.environment,
}
"""The faults that need nothing of the script; ``protocol.faulttable.IN_SCRIPTS`` names them too."""


@dataclass(frozen=True)
class ScriptHit:
    """The fault ``spec`` as a rank of somebody's script meets it."""

    spec: Spec
    fault: Fault
    rank: int
    points: ScriptPoints
    log: Log

    @property
    def here(self) -> bool:
        return self.rank == self.spec.rank

    def tell(self, **where: str | int) -> None:
        kind = self.fault.kinds[0]
        self.log.write(self.spec, [self.spec.rank], self.points.step, kind, where)

    def in_phase(self, action: Callable[[str], None], *, default: str = "forward") -> None:
        phase = self.spec.where or default
        if self.here:
            self.points.once(phase, self.spec.step, lambda: action(phase))


def main(arguments: Sequence[str] | None = None) -> None:
    """Put the fault in place and become the script."""
    parser = argparse.ArgumentParser(prog="rankscope.trainers.faults.script")
    parser.add_argument("--fault", required=True)
    parser.add_argument("--fault-log", type=Path, required=True)
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    spec = faults.parse(given.fault, FAULTS)
    fault = faults.find(spec.name, FAULTS)
    rank = int(os.environ.get("RANK", "0"))
    INSTALL[spec.name](ScriptHit(spec, fault, rank, ScriptPoints(), Log(given.fault_log)))
    sys.argv = [str(given.script), *given.arguments]
    sys.path[0] = str(given.script.absolute().parent)
    runpy.run_path(str(given.script), run_name="__main__")


if __name__ == "__main__":
    main()
