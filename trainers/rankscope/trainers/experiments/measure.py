"""``torchrun … -m rankscope.trainers.experiments.measure JOB FOLDER``: measure trainers.

Each rank runs the cases of the job in turn and writes a line for each. See
:mod:`rankscope.protocol.experiments`.
"""

import gc
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import torch
import torch.distributed as dist

from rankscope.protocol import experiments
from rankscope.protocol.exits import Exit, UserError
from rankscope.protocol.experiments import UPDATES_COUNTED, Case, Job, Measured
from rankscope.trainers import data
from rankscope.trainers.data import Data
from rankscope.trainers.experiments import prediction
from rankscope.trainers.experiments.state import placements, state_bytes
from rankscope.trainers.experiments.subject import Subject, after_step, settings_of
from rankscope.trainers.experiments.tensorbytes import TensorBytes
from rankscope.trainers.experiments.volume import Recorder
from rankscope.trainers.launch import (
    Place,
    check_same_text,
    choose_device,
    everyone,
    process_group,
    refuse,
)
from rankscope.trainers.precision import check_precision
from rankscope.trainers.text import read_text

PROGRAM = "rankscope.trainers.experiments.measure"


def main(arguments: Sequence[str]) -> int:
    """The exit code. What can be refused is refused before there is a process group."""
    place = Place.from_environment()
    try:
        job = experiments.decode_job(Path(arguments[0]).read_bytes())
        configs = [settings_of(case, job) for case in job.cases]
        device = choose_device(job.device, place)
        text = read_text(configs[0].text, configs[0].text_bytes)
        for config in configs:
            check_precision(config.precision, device)
            data.check_text(config, text, place.world_size)
    except UserError as error:
        return refuse(PROGRAM, error, place)
    file = Path(arguments[1]) / f"rank-{place.rank}.jsonl"
    with file.open("wb") as out, process_group(place, device, when_alone=True):
        check_same_text(text)
        if device.type == "cpu":
            torch.set_num_threads(configs[0].threads)
        measure_all(job, place, device, text, out)
    return int(Exit.FINE)


def measure_all(job: Job, place: Place, device: torch.device, text: bytes, out: BinaryIO) -> None:
    """Every case of ``job``, a line each to ``out``; to be entered by all ranks together."""

    def feed(case: Case) -> Data:
        config, pinned = settings_of(case, job), device.type == "cuda"
        return data.build(config, text, place.rank, place.world_size, pinned)

    def on_plain_model(case: Case) -> float:
        batch = next(iter(feed(case).epoch(0)))
        return float(prediction.activation_bytes(case, batch, device, job.seed))

    activation = prediction.remembered(on_plain_model)
    for index, case in enumerate(job.cases):
        found = Measured(
            rank=place.rank,
            ranks=place.world_size,
            case=index,
            device=device.type,
            backend=str(dist.get_backend()),
        )
        known = activation if job.predict else None
        measure(found, case, job, place, device, feed(case), known)
        out.write(experiments.encode(found) + b"\n")
        out.flush()
        gc.collect()  # a model of DDP's is in cycles of references


def measure(
    found: Measured,
    case: Case,
    job: Job,
    place: Place,
    device: torch.device,
    feed: Data,
    activation: prediction.Activations | None,
) -> None:
    """Fill in ``found``, as far as the limit lets the case get: alike on all ranks."""
    block, rest = prediction.parameters(case)
    found.parameters = rest + case.layers * block
    found.predicted = prediction.predict(case, place.world_size, None)
    if job.limit_bytes is not None and found.predicted.state > job.limit_bytes:
        found.refused = (
            f"its state alone takes {_mb(found.predicted.state)} a rank "
            f"({sum(found.predicted.factors):g} bytes a parameter"
            f"{f' over {place.world_size} ranks' if case.trainer == 'fsdp2' else ''}), "
            f"and {_mb(job.limit_bytes)} is the limit"
        )
        return
    if activation is not None:
        found.predicted = prediction.predict(case, place.world_size, activation(case))
    counted = TensorBytes(device.type)
    with counted:
        subject = Subject(case, job, place, device, feed)
        found.tensors = len(list(subject.model.parameters()))
        found.placements = placements(subject.model)

        def look() -> None:
            found.state = state_bytes(subject.model, subject.optimizer)

        done = after_step(subject, look)
        for _ in range(UPDATES_COUNTED):
            counted.restart()
            subject.update()
        done()
        found.peak_bytes = counted.peak
    if job.limit_bytes is not None:
        worst = int(everyone(place).most(torch.tensor(counted.peak)))
        if worst > job.limit_bytes:
            found.refused = (
                f"an update has {_mb(worst)} of tensors at once on a rank, "
                f"and {_mb(job.limit_bytes)} is the limit"
            )
            return
    timed(found, job, subject)
    found.losses = subject.losses()
    found.batches_crc32 = subject.batches_crc32


def timed(found: Measured, job: Job, subject: Subject) -> None:
    """The updates after the counted ones: the warm-up, and those whose time is taken.

    What the last one of the warm-up sends is read from the flight recorder.
    """
    while subject.updates < job.untimed - 1:
        subject.update()
    recorder = Recorder(found.ranks)
    recorder.start()
    subject.update()
    found.sent = recorder.sent()
    dist.barrier()  # reading the recorder took some ranks longer than others
    while subject.updates < job.updates:
        start_s = time.perf_counter()
        subject.update()
        found.step_s.append(time.perf_counter() - start_s)
        found.tokens += subject.tokens


def _mb(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
