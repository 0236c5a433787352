"""Dump files as torch's flight recorder writes them, made by hand."""

import json
import pickle
from pathlib import Path
from typing import Any

BEGAN_NS = 1_790_000_000_000_000_000


class Recorder:
    """One rank's recorder: operations are added, then it is written to a file."""

    def __init__(self, rank: int, *, version: str = "2.10", began_ns: int = BEGAN_NS) -> None:
        self.rank = rank
        self.version = version
        self.now_ns = began_ns
        self.entries: list[dict[str, Any]] = []
        self.seqs: dict[str, int] = {}
        self.config: dict[str, dict[str, str]] = {}

    def group(self, name: str, description: str, ranks: list[int]) -> None:
        """As NCCL's dumps tell who is in a group; gloo's do not."""
        self.config[name] = {"name": name, "desc": description, "ranks": str(ranks)}

    def op(
        self,
        name: str = "all_reduce",
        sizes: tuple[int, ...] = (16,),
        *,
        group: tuple[str, str] = ("0", "default_pg"),
        done: bool = True,
        dtype: str = "Float",
        line: int = 10,
        backend: str = "nccl",
    ) -> "Recorder":
        seq = self.seqs[group[0]] = self.seqs.get(group[0], 0) + 1
        self.now_ns += 1_000_000
        torch = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
        self.entries.append(
            {
                "frames": [
                    {"name": name, "filename": torch, "line": 3245},
                    {"name": "main", "filename": "/home/ada/train.py", "line": line},
                ],
                "record_id": len(self.entries),
                "pg_id": 0 if group[0] == "0" else 1,
                "process_group": group,
                "collective_seq_id": seq,
                "p2p_seq_id": 0,
                "op_id": seq,
                "profiling_name": f"{backend}:{name}",
                "time_created_ns": self.now_ns,
                "input_sizes": [list(sizes)],
                "input_dtypes": [dtype],
                "output_sizes": [list(sizes)],
                "output_dtypes": [dtype],
                "state": "completed" if done else "started",
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": None,
                "retired": done,
                "timeout_ms": 600000,
                "is_p2p": False,
            }
        )
        return self

    def raw(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "pg_config": self.config or {"": {"name": "", "desc": "", "ranks": "[]"}},
            "pg_status": {},
            "entries": self.entries,
        }

    def write(
        self, folder: Path, prefix: str = "nccl_trace_rank_", *, as_json: bool = False
    ) -> Path:
        path = folder / f"{prefix}{self.rank}{'.json' if as_json else ''}"
        if as_json:
            path.write_text(json.dumps(self.raw()))
        else:
            path.write_bytes(pickle.dumps(self.raw(), protocol=2))
        return path


def job(ranks: int, steps: int = 4, **options: Any) -> list[Recorder]:
    """Ranks that have done the same, all of it complete."""
    made = [Recorder(rank, **options) for rank in range(ranks)]
    for one in made:
        for _ in range(steps):
            one.op("all_reduce", (16,), line=10).op("broadcast", (3,), line=12)
    return made
