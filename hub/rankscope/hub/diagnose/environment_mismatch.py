"""``environment-mismatch``: ranks that are not set up like the others.

By count where most ranks agree. Where they do not, as of two ranks, by what each rank says of
itself: a variable that it has from nobody who started it, a version that is not the installed one.
Where that tells nothing, nobody is accused.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from rankscope.hub.diagnose.text import ranks_text
from rankscope.hub.state import RunState
from rankscope.protocol.shapes import Finding

SETTLED_S = 3.0
"""Ranks that never step, perhaps for this very reason, are compared this long after their last
word."""

MAX_FINDINGS = 4
MAX_LINES = 12
MAX_IDENTITIES = 1024
"""So many different ones are compared, those of the lowest ranks; a fleet has a handful."""

WORDS = {
    "python": "Python",
    "torch": "torch",
    "rankscope": "rankscope",
    "numpy": "numpy",
    "cuda": "CUDA",
    "nccl": "NCCL",
    "driver": "NVIDIA driver",
    "backend": "backend",
    "device_name": "device",
    "machine": "machine",
    "code": "code of the main script (hash)",
    "git": "git commit",
    "threads": "torch threads",
    "deterministic": "deterministic algorithms",
    "matmul_precision": "float32 matmul precision",
    "default_dtype": "default dtype",
    "cudnn_benchmark": "cuDNN benchmark",
    "cudnn_deterministic": "cuDNN deterministic",
}
"""The facts that are compared, in order, and what they are called."""

OF_A_NODE = frozenset(
    {
        *("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_HOSTID"),
        *("NCCL_TOPO_FILE", "UCX_NET_DEVICES", "LD_LIBRARY_PATH", "PYTHONPATH", "LD_PRELOAD"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "NVIDIA_DRIVER_CAPABILITIES"),
    }
)
"""Variables that may differ from node to node, and are compared within one."""

NOT_SET = "not set"


class Group(NamedTuple):
    """Ranks that said the same of themselves, on one node."""

    ranks: list[int]
    host: int
    facts: Mapping[str, str]
    environment: Mapping[str, str]
    own: frozenset[str]
    """Variables it does not have from its parent."""


class Difference(NamedTuple):
    what: str
    values: dict[str, list[int]]
    """Ranks by value."""
    odd: list[int]
    """Empty: it cannot be told whose is the odd one."""


def environment_mismatch(state: RunState, now_s: float) -> list[Finding]:
    """One finding for each set of odd ranks."""
    derived = state.setup.derived
    if derived is not None and derived[0] == state.setup.version and not derived[1]:
        return []  # no rank has said hello since
    ranks = state.ranks
    known = ranks.known[: state.size()]
    if known.sum() < 2:
        return []
    stepped = bool(
        (ranks.step[: state.size()][known] > ranks.start_step[: state.size()][known]).all()
    )
    if not stepped and now_s - state.setup.changed_s < SETTLED_S:
        return []
    known_odd = _by_odd(state)
    return [
        _finding(state, list(odd), found, now_s)
        for odd, found in list(known_odd.items())[:MAX_FINDINGS]
    ]


def _by_odd(state: RunState) -> "dict[tuple[int, ...], list[Difference]]":
    """The differences by who is odd; worked out when a rank has said hello since."""
    setup = state.setup
    if setup.derived is None or setup.derived[0] != setup.version:
        by_odd: dict[tuple[int, ...], list[Difference]] = {}
        for difference in differences(groups(state)):
            by_odd.setdefault(tuple(difference.odd), []).append(difference)
        setup.derived = (setup.version, by_odd)
    found: dict[tuple[int, ...], list[Difference]] = setup.derived[1]
    return found


def groups(state: RunState) -> list[Group]:
    """The known ranks by what they said of themselves and their node."""
    size = state.size()
    ranks = state.ranks
    identity = np.where(ranks.known[:size], ranks.identity[:size], -1)
    keys = identity * (int(ranks.host[:size].max(initial=0)) + 2) + ranks.host[:size] + 1
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=np.iinfo(np.int64).min))
    found = []
    for here in np.split(order, starts[1:])[: MAX_IDENTITIES + 1]:
        index = int(identity[here[0]]) if here.size else -1
        if index < 0:
            continue
        facts = dict(state.words.identities.values[index].facts)
        found.append(
            Group(
                here.tolist(),
                int(ranks.host[here[0]]),
                facts,
                parsed(facts.get("environment")),
                frozenset(facts.get("environment_own", "").split()),
            )
        )
    return found


def parsed(text: str | None) -> dict[str, str]:
    """The lines ``NAME=value`` of the fact ``environment``."""
    pairs = (line.partition("=") for line in (text or "").splitlines())
    return {name: value for name, _, value in pairs}


def differences(found: list[Group]) -> list[Difference]:
    """What is not the same in all ``found``, settings first."""
    if len(found) < 2:
        return []
    differ = []
    for name, words in WORDS.items():
        told = [group for group in found if name in group.facts]
        here = [(group.facts[name], group, _not_the_installed(name, group)) for group in told]
        differ += _compared(words, here)
    told = [group for group in found if "environment" in group.facts]
    names = sorted({name for group in told for name in group.environment})
    for name in names:
        here = [(group.environment.get(name, NOT_SET), group, name in group.own) for group in told]
        if name in OF_A_NODE:
            for host in sorted({group.host for group in told}):
                differ += _compared(name, [one for one in here if one[1].host == host])
        else:
            differ += _compared("further variables" if name == "…" else name, here)
    return differ


def _not_the_installed(name: str, group: Group) -> bool:
    """Whether torch calls itself another version than the one that is installed there."""
    installed = group.facts.get("torch_installed")
    return name == "torch" and installed is not None and installed != group.facts["torch"]


def _compared(what: str, here: Iterable[tuple[str, Group, bool]]) -> list[Difference]:
    values: dict[str, list[int]] = {}
    own: dict[str, bool] = {}
    for value, group, is_own in here:
        values.setdefault(value, []).extend(group.ranks)
        own[value] = own.get(value, False) or is_own
    if len(values) < 2:
        return []
    total = sum(len(ranks) for ranks in values.values())
    most = max(values, key=lambda value: len(values[value]))
    if 2 * len(values[most]) > total:
        odd = [value for value in values if value != most]
    else:
        odd = [value for value in values if own[value]]
        if len(odd) == len(values):
            odd = []
    return [Difference(what, values, sorted(rank for value in odd for rank in values[value]))]


def _finding(state: RunState, odd: list[int], found: list[Difference], now_s: float) -> Finding:
    first = found[0]
    if odd:
        head = f"{ranks_text(odd)} {'is' if len(odd) == 1 else 'are'} set up differently: "
        head += f"{first.what} {_of(first, odd)}, not {_of(first, _others(first, odd))}"
        ask = odd[0]
    else:
        head = f"ranks are set up differently: {first.what} is {_listed(first)}"
        ask = min(rank for ranks in first.values.values() for rank in ranks)
    if len(found) > 1:
        head += f" (and {len(found) - 1} more)"
    host = state.host(ask)
    return Finding(
        kind="environment-mismatch",
        severity="warning",
        ranks=odd,
        victims=[],
        step=None,
        since_s=max(0.0, now_s - state.setup.changed_s),
        headline=head,
        evidence=[f"{one.what}: {_listed(one)}" for one in found[:MAX_LINES]]
        + ([] if odd else ["which of them is meant cannot be told from the ranks alone"]),
        next=f"compare how rank {ask} was started: tr '\\0' '\\n' < /proc/"
        f"{state.ranks.pid.item(ask)}/environ" + (f" (on {host})" if host else ""),
    )


def _listed(difference: Difference) -> str:
    return "; ".join(
        f"{value} on {ranks_text(sorted(ranks))}"
        for value, ranks in sorted(difference.values.items(), key=lambda item: -len(item[1]))[:4]
    )


def _of(difference: Difference, ranks: list[int]) -> str:
    return next(value for value, here in difference.values.items() if set(here) & set(ranks))


def _others(difference: Difference, odd: list[int]) -> list[int]:
    others = {rank for ranks in difference.values.values() for rank in ranks} - set(odd)
    biggest = max(difference.values.values(), key=lambda ranks: len(set(ranks) & others))
    return [rank for rank in biggest if rank in others]
