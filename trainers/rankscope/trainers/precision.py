"""What forward and backward compute in; parameters, gradients at rest and optimizer stay fp32."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch.amp.grad_scaler import GradScaler

from rankscope.protocol.exits import UserError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def check_precision(precision: str, device: torch.device) -> None:
    """Raise :class:`UserError` when ``device`` cannot compute in ``precision``."""
    if precision not in DTYPES:
        raise UserError(f"--precision {precision} is unknown; use one of {', '.join(DTYPES)}")
    on_gpu = device.type == "cuda"  # whose emulation of bf16, where there is one, is slow
    if precision == "bf16" and on_gpu and not torch.cuda.is_bf16_supported(False):
        raise UserError("--precision bf16: this GPU has none; use fp16 or fp32")


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Operations that gain from it compute in ``precision``, the others in fp32."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=DTYPES[precision])


def gradient_scaler(precision: str, device: torch.device) -> GradScaler:
    """Scales fp16 losses so that small gradients do not vanish; for other precisions idle.

    An idle scaler hands everything through untouched.
    """
    return GradScaler(device.type, enabled=precision == "fp16")
