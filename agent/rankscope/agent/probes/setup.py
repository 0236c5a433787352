"""How this process is set up: what should be the same on all ranks, and the seed, which should not.

Read on attaching and at the first training forward. No subprocess, no device call, no secrets.
"""

import hashlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch

from rankscope.agent.probes.base import Probe
from rankscope.agent.probes.environment import changed_here, environment_text, parent_environment

HASH_CHARS = 12
MAX_CODE_BYTES = 4 << 20
GIT_LEVELS = 6
"""So many folders upwards is a repository looked for."""


class Setup(Probe):
    """Versions, settings, environment and code, as facts."""

    name: ClassVar[str] = "setup"
    guarded: ClassVar[tuple[str, ...]] = ("on_first_forward", "read")

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self._remove: Callable[[], None] | None = None
        self._random: dict[str, str] = {}
        self._code: dict[str, str] | None = None

    def watch_model(self, model: Any, *, first: bool) -> None:
        if first and not self._random:
            hook = self.observer.guard(self, self.on_first_forward)
            self._remove = self.observer.calls.add(model, before=hook)

    def uninstall(self) -> None:
        if self._remove is not None:
            self._remove()
            self._remove = None

    def on_first_forward(self, now: float, model: Any, args: Any) -> None:
        if torch.is_grad_enabled():
            self.uninstall()
            self._random = random_facts()
            self.observer.facts_changed = True

    def read(self) -> dict[str, str]:
        """The facts; a part that cannot be read is left out.

        Of the code as it was when this rank began: what is committed or edited later runs in none.
        """
        facts = setup_facts()
        if self._code is None:
            self._code = {name: facts[name] for name in CODE if name in facts}
        kept = {name: value for name, value in facts.items() if name not in CODE}
        return {**kept, **self._code, **self._random}


CODE = ("code", "git")
"""Facts of files that may change while they run."""


def setup_facts(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Everything but what is drawn at random."""
    main = main_file()
    parent = parent_environment()
    found: dict[str, Callable[[], str]] = {
        "torch_installed": lambda: importlib.metadata.version("torch"),
        "numpy": lambda: str(sys.modules["numpy"].__version__),
        "machine": platform.machine,
        "driver": nvidia_driver,
        "deterministic": lambda: str(torch.are_deterministic_algorithms_enabled()),
        "matmul_precision": torch.get_float32_matmul_precision,
        "default_dtype": lambda: str(torch.get_default_dtype()).removeprefix("torch."),
        "cudnn_benchmark": lambda: str(torch.backends.cudnn.benchmark),
        "cudnn_deterministic": lambda: str(torch.backends.cudnn.deterministic),
        "code": lambda: code_hash(main),
        "git": lambda: git_commit(main.parent) if main is not None else "",
        "environment": lambda: environment_text(environ),
        "environment_own": lambda: " ".join(changed_here(environ, parent)),
    }
    facts = {}
    for name, read in found.items():
        try:
            value = read()
        except Exception:  # noqa: BLE001 - one odd fact must not take the others with it
            continue
        if value or name in ("environment", "environment_own"):
            facts[name] = value
    return facts


def random_facts() -> dict[str, str]:
    """The CPU generator's seed, and a hash of where it stands; on the training thread."""
    state = torch.get_rng_state().numpy().tobytes()
    return {"seed": str(torch.initial_seed()), "rng": short_hash(state)}


def short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:HASH_CHARS]


def main_file() -> Path | None:
    """The file of the script that runs; None in an interactive session."""
    name = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(name).absolute() if name else None


def code_hash(main: Path | None) -> str:
    """Of the main script's text; empty where there is none, or it is no text of that size."""
    if main is None or main.stat().st_size > MAX_CODE_BYTES:
        return ""
    return short_hash(main.read_bytes())


def git_commit(folder: Path) -> str:
    """The commit that is checked out around ``folder``; empty where that is not plain to see.

    The repository is read as files are: gitrepository-layout(5) has ``HEAD``, loose refs and
    ``packed-refs``. A worktree's ``.git`` is a file that names the folder.
    """
    for place in [folder, *folder.parents][:GIT_LEVELS]:
        git = place / ".git"
        if git.is_file():
            git = place / git.read_text().strip().removeprefix("gitdir: ")
        if (git / "HEAD").is_file():
            return _resolve(git)[:HASH_CHARS]
    return ""


def _resolve(git: Path) -> str:
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref: "):
        return head
    ref = head.removeprefix("ref: ")
    common = git / "commondir"
    folders = [git, git / common.read_text().strip()] if common.is_file() else [git]
    for one in folders:
        if (one / ref).is_file():
            return (one / ref).read_text().strip()
        packed = one / "packed-refs"
        for line in packed.read_text().splitlines() if packed.is_file() else ():
            commit, _, name = line.partition(" ")
            if name == ref:
                return commit
    return ""


def nvidia_driver() -> str:
    """The kernel module's version; empty where there is none."""
    try:
        return Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        return ""
