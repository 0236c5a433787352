"""Every fault in a line: what the rank does, and what a run must be called then."""

from rankscope.protocol.faulttable import FAULTS


def listing() -> list[str]:
    width = max(len(fault.name) for fault in FAULTS)
    return [
        f"{fault.name:<{width}}  {fault.does}  → {' or '.join(fault.kinds)}"
        + (f"  (needs {fault.missing})" if fault.missing else "")
        for fault in FAULTS
    ]
