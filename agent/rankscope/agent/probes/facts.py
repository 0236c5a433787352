"""What this process is: versions, device, how the model is wrapped."""

import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch

from rankscope.agent import goneon
from rankscope.agent.probes.base import Probe
from rankscope.agent.probes.gradients.names import uncompiled
from rankscope.protocol import limits, resumed


class Facts(Probe):
    """Looked at on attaching and at the first forward, by when wrappers and devices are final."""

    name: ClassVar[str] = "facts"
    guarded: ClassVar[tuple[str, ...]] = ("on_first_forward", "read")

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self.trainer = "plain"
        self.device: torch.device | None = None
        self._looked = False
        self._remove: Callable[[], None] | None = None

    def watch_model(self, model: Any, *, first: bool) -> None:
        if first and not self._looked:
            self.look(model)
            hook = self.observer.guard(self, self.on_first_forward)
            self._remove = self.observer.calls.add(model, before=hook)

    def uninstall(self) -> None:
        if self._remove is not None:
            self._remove()
            self._remove = None

    def on_first_forward(self, now: float, model: Any, args: Any) -> None:
        self.uninstall()
        self._looked = True
        self.look(model)
        self.observer.facts_changed = True

    def look(self, model: Any) -> None:
        self.trainer = trainer_of(model)
        parameter = next(iter(model.parameters()), None)
        if parameter is not None:
            self.device = torch.device(parameter.device)
        if self.device is not None and self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self.observer.cuda = self.device is not None and self.device.type == "cuda"

    def read(self) -> dict[str, str]:
        facts = {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "rankscope": _version(),
            "script": sys.argv[0] if sys.argv else "",
            "threads": str(torch.get_num_threads()),
            "cuda": str(torch.version.cuda or "none"),
        }
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            facts["backend"] = str(distributed.get_backend())
            nccl: Any = torch.cuda.nccl
            if torch.version.cuda and distributed.is_nccl_available():
                facts["nccl"] = ".".join(str(part) for part in nccl.version())
        if self.device is not None and self.device.type == "cuda":
            facts["device_name"] = torch.cuda.get_device_name(self.device)
        launcher = os.environ.get("TORCHELASTIC_RUN_ID")
        if launcher:
            facts["torchelastic_run"] = launcher
        facts |= resumed.told(goneon.newest())
        for name in ("setup", "gradients"):
            probe: Any = self.observer.probes[name]
            facts |= self.observer.ask(probe, probe.read) or {}
        state: Any = self.observer.probes["state"]
        facts |= self.observer.ask(state, state.facts) or {}
        return {name: value[: limits.MAX_TEXT_CHARS] for name, value in facts.items()}


def trainer_of(model: Any) -> str:
    """``ddp``, ``fsdp2``, ``fsdp1`` or ``plain``, by the classes around the model.

    By name, so that nothing is imported; a compiled model is looked through. A plain module that
    runs inside a DDP wrapper (attached before it was wrapped) is recognised while it does.
    """
    kinds = (*type(model).__mro__, *type(uncompiled(model)).__mro__)
    names = {cls.__name__ for cls in kinds}
    if "DistributedDataParallel" in names:
        return "ddp"
    if "FullyShardedDataParallel" in names:
        return "fsdp1"
    if "FSDPModule" in names:
        return "fsdp2"
    ddp = getattr(torch.nn.parallel, "DistributedDataParallel", None)
    return "ddp" if getattr(ddp, "_active_ddp_module", None) is not None else "plain"


def script_name() -> str:
    """What the user calls the run unless told otherwise: the script's name."""
    script = Path(sys.argv[0] if sys.argv else "").name
    return Path(script).stem or "python"


def _version() -> str:
    try:
        return importlib.metadata.version("rankscope")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
