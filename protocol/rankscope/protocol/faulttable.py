"""The table of faults: what each does, and what a run that has it must be called."""

from rankscope.protocol.faults import Fault

PHASE = "phase: data, forward, backward or optimizer"
PARAMETER = "parameter"
GRADIENT = "parameter, or parameter/microbatch"
SECONDS = "seconds, such as 0.3"
OTHER = "the other rank"
MICROBATCH = "microbatch"
MODULE = "module, or module/microbatch"
VARIABLE = "NAME=VALUE"
VERSION = "version"
SAVES = ("--checkpoint-dir", "{folder}", "--checkpoint-every", "{step}")

STACK = ("source", "collective", "phase")
CALL = ("collective", "source")
ENDED = ("exception", "rank-dead")

PROCESS = (
    Fault("sigkill", "dies of SIGKILL", ("rank-dead",), ("phase",), argument=PHASE),
    Fault("exit0", "ends early, with code 0", ("rank-dead",), ("phase",), argument=PHASE),
    Fault("abort", "aborts in a thread that is not Python's", ("rank-dead",), ("phase",),
          argument=PHASE),
    Fault("sigstop", "is stopped by SIGSTOP", ("rank-stopped",), ("phase",), argument=PHASE),
)  # fmt: skip

HANG = (
    Fault("gil-held", "waits in C, holding the GIL", ("gil-held",), ("source",), argument=PHASE),
    Fault("endless-loop", "loops for ever in Python", ("missing-collective",), STACK,
          argument=PHASE),
    Fault("lock", "waits for a lock that nobody gives back", ("missing-collective",), STACK,
          argument=PHASE),
    Fault("blocked-read", "reads from a pipe that nobody writes to", ("missing-collective",),
          STACK, argument=PHASE),
)  # fmt: skip

LOADER = (
    Fault("loader-stuck", "waits for ever for its next batch", ("loader-stalled",),
          ("source", "phase")),
    Fault("loader-slow", "waits longer for every batch from then on", ("straggler",), ("phase",),
          one_step=False, argument=SECONDS),
    Fault("data-exhausted", "has no more data and leaves the loop", ("uneven-data",), ("source",)),
)  # fmt: skip

COMPUTE = (
    Fault("exception", "raises", ("exception",), ("source",), argument=PHASE),
    Fault("slow-forward", "is slower in every forward from then on", ("straggler",), ("phase",),
          one_step=False, argument=SECONDS),
    Fault("slow-backward", "is slower in every backward from then on", ("straggler",), ("phase",),
          one_step=False, argument=SECONDS),
    Fault("slow-optimizer", "is slower in every optimizer step from then on", ("straggler",),
          ("phase",), one_step=False, argument=SECONDS),
)  # fmt: skip

COLLECTIVE = (
    # It is inside a later collective while the others wait; else it would be missing-collective.
    Fault("skipped-collective", "leaves out an all-reduce", ("collective-mismatch",), CALL,
          least_ranks=2),
    Fault("extra-collective", "does an all-reduce more than the others",
          ("collective-mismatch",), CALL, allowed_on_victims=ENDED, least_ranks=2),
    Fault("wrong-operation", "broadcasts where the others all-reduce",
          ("collective-mismatch",), CALL, allowed_on_victims=ENDED, least_ranks=2),
    Fault("wrong-size", "all-reduces 1,024 numbers where the others have one",
          ("collective-mismatch",), CALL, allowed_on_victims=ENDED, least_ranks=2),
    Fault("wrong-dtype", "all-reduces float32 where the others have int64",
          ("collective-mismatch",), CALL, allowed_on_victims=ENDED, least_ranks=2),
    Fault("wrong-order", "does two collectives of one group in the other order",
          ("collective-mismatch",), CALL, allowed_on_victims=ENDED, least_ranks=2),
    Fault("group-order", "takes two groups in the other order", ("group-deadlock",),
          ("collective",), least_ranks=2),
    Fault("early-exit", "leaves the step loop before the others",
          ("collective-mismatch", "missing-collective"), ("source",), least_ranks=2),
    Fault("blocked-exit", "leaves the step loop and waits for a thread that never ends",
          ("missing-collective", "collective-mismatch"), ("source",), least_ranks=2),
)  # fmt: skip

NUMERICS = (
    Fault("nan-input", "gets a batch with a NaN in it", ("nonfinite-input",), ("microbatch",),
          argument=MICROBATCH),
    Fault("nan-module", "puts a NaN out of one module", ("nonfinite-forward",),
          ("module", "microbatch"), argument=MODULE),
    Fault("nan-loss", "has a loss of NaN with finite gradients", ("nonfinite-loss",),
          ("microbatch",), argument=MICROBATCH),
    Fault("nan-gradient", "has a NaN in one parameter's gradient of one microbatch",
          ("nonfinite-gradient",), ("parameter", "microbatch"), argument=GRADIENT,
          options=("--accumulate", "2")),
    Fault("nan-parameter", "has a NaN in a parameter", ("nonfinite-parameter",), ("parameter",),
          argument=PARAMETER),
    Fault("nan-optimizer", "has a NaN in the optimizer's state", ("nonfinite-optimizer",),
          ("parameter",), argument=PARAMETER, least_step=2),
    Fault("cast-overflow", "has a gradient beyond fp16, which gradients are cast to",
          ("nonfinite-cast",), ("parameter",), argument=PARAMETER, least_ranks=2,
          fsdp2_options=("--reduce-dtype", "fp16")),
    Fault("reduction-overflow", "gradients of all ranks are finite and their sum is not",
          ("nonfinite-reduction",), ("parameter",), blame="nobody", argument=PARAMETER,
          least_ranks=2),
    Fault("gradient-outlier", "has a finite gradient 10,000 times too large",
          ("gradient-outlier",), ("parameter",), argument=GRADIENT),
    Fault("sticky-nan", "has a NaN in a gradient that is never cleared", ("nonfinite-gradient",),
          ("parameter",), argument=GRADIENT),
)  # fmt: skip

REPLICAS = (
    Fault("bit-flip", "has one bit of a parameter flipped", ("replica-divergence",),
          ("parameter",), argument=PARAMETER, least_ranks=2,
          fsdp2_options=("--replicas", "{ranks}")),
    Fault("lone-step", "updates its parameters while the others skip the update",
          ("silent-skip",), blame="others", allowed=("replica-divergence",), least_ranks=2),
    Fault("same-data", "trains on another rank's data", ("duplicate-data",), one_step=False,
          blame="pair", argument=OTHER, whole_run=True, least_ranks=2),
    Fault("same-seed", "has another rank's seed", ("duplicate-seed",), one_step=False,
          blame="pair", argument=OTHER, whole_run=True, least_ranks=2),
)  # fmt: skip

SETUP = (
    Fault("environment", "has an environment variable the others do not have",
          ("environment-mismatch",), one_step=False, argument=VARIABLE, whole_run=True,
          least_ranks=2),
    Fault("library-version", "has another version of torch, by its own account",
          ("environment-mismatch",), one_step=False, argument=VERSION, whole_run=True,
          least_ranks=2),
)  # fmt: skip

MEMORY = (
    Fault("memory-growth", "keeps 4 MiB more after every step", ("memory-growth",), one_step=False),
    Fault("memory-limit", "grows by 16 MiB a step below a limit half a GiB away",
          ("out-of-memory-forecast",), one_step=False),
)  # fmt: skip

CHECKPOINT = (
    Fault("write-fails", "cannot write its part of a checkpoint", ("checkpoint-failed",),
          ("phase",), options=SAVES),
    Fault("disk-full", "finds the disk full while it writes a checkpoint",
          ("checkpoint-failed",), ("phase",), options=SAVES),
    Fault("killed-in-save", "dies of SIGKILL while it writes a checkpoint",
          ("checkpoint-failed",), ("phase",), allowed=("rank-dead",), options=SAVES),
    Fault("stopped-in-save", "is stopped while it writes a checkpoint", ("checkpoint-failed",),
          ("phase",), allowed=("rank-stopped",), options=SAVES),
    Fault("save-slow", "is far slower than the others in writing a checkpoint",
          ("checkpoint-slow",), ("phase",), argument=SECONDS, least_ranks=2, options=SAVES),
)  # fmt: skip

FAULTS: tuple[Fault, ...] = (
    *PROCESS, *HANG, *LOADER, *COMPUTE, *COLLECTIVE, *NUMERICS, *REPLICAS, *SETUP, *MEMORY,
    *CHECKPOINT,
)  # fmt: skip
"""Every fault, in the order in which a drill goes through them."""

IN_SCRIPTS: tuple[str, ...] = (
    *(fault.name for fault in PROCESS), "gil-held", "environment",
)  # fmt: skip
"""Those that need no help from the trainer: ``drill --script`` injects them into any script."""
