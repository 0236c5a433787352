"""What memory and volume a case will take, before it trains; and activations, on a plain model."""

from collections.abc import Callable

import torch
from torch import nn

from rankscope.protocol import budget
from rankscope.protocol.experiments import Case, Predicted
from rankscope.trainers.data import Batch
from rankscope.trainers.experiments.tensorbytes import TensorBytes
from rankscope.trainers.model import Shape, Transformer, initialise
from rankscope.trainers.objective import loss_sum, share, valid_tokens
from rankscope.trainers.precision import DTYPES, autocast
from rankscope.trainers.recompute import recompute

STORED = budget.FP32_ADAM
"""What these trainers keep: everything in fp32, whatever they compute in. No 16-bit copies, and so
not the 2+2+12 bytes of the usual inventory."""


def shape(case: Case) -> Shape:
    return Shape(case.seq_len, case.layers, case.dim, case.heads)


def parameters(case: Case) -> tuple[int, int]:
    """Of a block, and of what is no block: the units that FSDP2 gathers."""
    with torch.device("meta"):
        model = Transformer(shape(case))
    block = sum(p.numel() for p in model.blocks[0].parameters())
    return block, sum(p.numel() for p in model.parameters()) - case.layers * block


def predict(case: Case, ranks: int, activation: float | None) -> Predicted:
    """By the table of memory and the ring formulas. The peak is one from above.

    Of DDP: the state, whose gradients lie in buckets all the time, and the activations. Of FSDP2:
    what is gathered and what of it is being reduced, and either the activations (backward begins,
    and no gradient is there) or the gradients (it ends, and no activation is).
    """
    block, rest = parameters(case)
    total = rest + case.layers * block
    state = budget.state_bytes(_scheme(case), total, ranks, STORED)
    if case.trainer == "ddp":
        peak = None if activation is None else state + activation
        sent = budget.sent_bytes("ddp", total, ranks, STORED)
        return Predicted(
            factors=_factors(), state=state, activation=activation, peak=peak, sent=sent
        )
    element = DTYPES[case.precision].itemsize
    gather = 0.0 if ranks == 1 else float(_in_flight(case, block, rest, element))
    gradients = STORED.gradient * total / ranks
    peak = None
    if activation is not None:
        peak = state - gradients + max(activation, gradients) + gather
    return Predicted(
        factors=_factors(),
        state=state,
        gather=gather,
        activation=activation,
        peak=peak,
        sent=budget.sent_bytes(
            "fsdp",
            total,
            ranks,
            budget.Inventory(parameter=element, gradient=STORED.gradient),
            gathers=2 if case.reshard_after_forward else 1,
        ),
    )


def _in_flight(case: Case, block: int, rest: int, element: int) -> int:
    """Bytes of what FSDP2 has whole for a while: ``element`` is what it computes in.

    Parameters of the rest, of the block in backward and of the next, which is gathered ahead; or
    of all, where they are kept from forward. Gradients of the rest and of a block, and the buffer
    in fp32 in which a block's are reduced.
    """
    blocks = min(2, case.layers) if case.reshard_after_forward else case.layers
    gathered = (rest + blocks * block) * element
    return gathered + (rest + block) * element + block * 4


def _scheme(case: Case) -> str:
    return "ddp" if case.trainer == "ddp" else "fsdp"


def _factors() -> tuple[float, float, float]:
    return STORED.parameter, STORED.gradient, STORED.optimizer


def activation_bytes(case: Case, batch: Batch, device: torch.device, seed: int) -> int:
    """The most that forward and backward of ``batch`` take beside parameters and gradients.

    Of a plain model on this device alone, which computes as the trainer would: under autocast as
    DDP does, or in the lower precision altogether as FSDP2 does.
    """
    cast = case.precision != "fp32" and case.trainer == "fsdp2"
    counted = TensorBytes(device.type)
    with counted:
        model: nn.Module = Transformer(shape(case)).to(device)
        initialise(model, case.layers, seed)
        if cast:
            model = model.to(DTYPES[case.precision])
        recompute(model.blocks, case.recompute)  # type: ignore[arg-type]
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        before = counted.now
        counted.adopt(batch)
        counted.restart()
        precision = "fp32" if cast else case.precision
        inputs, targets = (part.to(device) for part in batch)
        with autocast(precision, device):
            logits = model(inputs)  # kept for as long as the trainers keep them
            total = loss_sum(logits, targets)
        share(total, 1, max(valid_tokens([batch]), 1)).backward()  # type: ignore[no-untyped-call]
        return counted.peak - before


Activations = Callable[[Case], float]


def remembered(measure: Activations) -> Activations:
    """``measure``, once for all cases that compute alike."""
    known: dict[tuple[object, ...], float] = {}

    def activation(case: Case) -> float:
        how = case.trainer if case.precision != "fp32" else ""
        key = (shape(case), case.batch_size, case.precision, case.recompute, how)
        if key not in known:
            known[key] = measure(case)
        return known[key]

    return activation
