"""Whether a finding is what the injected fault must be called. Pure.

``exact`` means: the kind is one of the table's, the ranks are those to blame, the step is right (of
a fault that happens in one step), so is every key of ``where`` that the table names, and there was
no other critical finding but those the table allows.
"""

import re
from collections.abc import Iterable, Sequence

from rankscope.protocol.faults import Fault
from rankscope.protocol.shapes import Finding, Injected

_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.")
_SOURCE = re.compile(r"(?P<file>[^:]+):(?P<first>\d+)(-(?P<last>\d+))? in (?P<function>.+)")


def choose(fault: Fault, findings: Sequence[Finding]) -> Finding | None:
    """Among the open findings the one to be judged: of the right kind, else the gravest."""
    for finding in findings:
        if finding.kind in fault.kinds:
            return finding
    told = [finding for finding in findings if finding.severity != "info"]
    return next((f for f in told if f.severity == "critical"), told[0] if told else None)


def wrong(
    fault: Fault, injected: Injected, found: Finding | None, criticals: Iterable[Finding]
) -> list[str]:
    """What is wrong with ``found``, in words; nothing when it is exact.

    ``criticals`` are all critical findings the run ever had.
    """
    if found is None:
        return ["nothing was found"]
    reasons = []
    if found.kind not in fault.kinds:
        reasons.append(f"called {found.kind}, not {' or '.join(fault.kinds)}")
    if sorted(found.ranks) != sorted(injected.ranks):
        reasons.append(f"ranks {found.ranks}, not {injected.ranks}")
    if fault.one_step and found.step != injected.step:
        reasons.append(f"step {found.step}, not {injected.step}")
    if found.kind in fault.kinds:
        reasons += [
            f"{key} {found.where.get(key, 'not said')}, not {injected.where.get(key, 'known')}"
            for key in fault.where
            if not same(key, found.where.get(key), injected.where.get(key))
        ]
    others = {other.kind for other in criticals if not _may_stand(fault, injected, found, other)}
    reasons += [f"also called {kind}" for kind in sorted(others)]
    return reasons


def _may_stand(fault: Fault, injected: Injected, found: Finding, other: Finding) -> bool:
    if other.kind == found.kind and other.ranks == found.ranks:
        return True
    if other.kind in fault.allowed:
        return True
    on_victims = not set(other.ranks) & set(injected.ranks)
    return other.kind in fault.allowed_on_victims and on_victims


def same(key: str, found: str | int | None, truth: str | int | None) -> bool:
    """Whether two values of ``where`` mean the same."""
    if found is None or truth is None:
        return False
    if key in ("parameter", "module"):
        return _plain_name(str(found)) == _plain_name(str(truth))
    if key == "collective":
        one, other = _operation(str(found)), _operation(str(truth))
        # gloo reduces and scatters by an all-reduce, and calls it that.
        return one == other or (one, other) == ("allreduce", "reducescatter")
    if key == "source":
        return _same_source(str(found), str(truth))
    return found == truth


def _plain_name(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _operation(name: str) -> str:
    """``gloo:all_gather``, ``_allgather_base`` and ``allgather`` are one operation."""
    return name.rpartition(":")[2].replace("_", "").lower().removesuffix("base")


def _same_source(found: str, truth: str) -> bool:
    """Equal, or the line found is one of the truth's ``first-last``."""
    one, other = _SOURCE.fullmatch(found), _SOURCE.fullmatch(truth)
    if one is None or other is None:
        return found == truth
    if (one["file"], one["function"]) != (other["file"], other["function"]):
        return False
    return int(other["first"]) <= int(one["first"]) <= int(other["last"] or other["first"])
