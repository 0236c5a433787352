"""A byte-level decoder-only transformer, and its initial values."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn import functional as F

VOCABULARY = 256
STANDARD_DEVIATION = 0.02


@dataclass(frozen=True)
class Shape:
    seq_len: int
    layers: int
    dim: int
    heads: int


class Attention(nn.Module):
    """Causal self-attention over (batch, seq, dim)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.dim, 3 * shape.dim, bias=False)
        self.out = nn.Linear(shape.dim, shape.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, dim = x.shape
        q, k, v = (
            part.view(batch, seq, self.heads, dim // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, seq, dim))
        return out


class MLP(nn.Module):
    """Position-wise feed-forward layer over (batch, seq, dim)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.dim, 4 * shape.dim, bias=False)
        self.down = nn.Linear(4 * shape.dim, shape.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        down: Tensor = self.down(F.gelu(self.up(x), approximate="tanh"))
        return down


class Block(nn.Module):
    """One layer, (batch, seq, dim) to (batch, seq, dim); the unit that sharding wraps."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.dim, eps=1e-6)
        self.attention = Attention(shape)
        self.mlp_norm = nn.RMSNorm(shape.dim, eps=1e-6)
        self.mlp = MLP(shape)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        out: Tensor = x + self.mlp(self.mlp_norm(x))
        return out


class Transformer(nn.Module):
    """Logits (batch, seq, 256) for the byte after each of the bytes (batch, seq), int64.

    The parameters are without meaning until :func:`initialise` has run, so the model can be built
    on the meta device.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, shape.dim)
        self.position = nn.Embedding(shape.seq_len, shape.dim)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.dim, eps=1e-6)
        self.head = nn.Linear(shape.dim, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(positions)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


@torch.no_grad()
def initialise(model: nn.Module, layers: int, seed: int) -> None:
    """Give every parameter of ``model`` its initial value, which depends on ``seed`` alone.

    Values are drawn on the CPU, one parameter at a time in the model's own order, so they are the
    same to the bit on every device and however the parameters are sharded, and no rank ever holds
    more than one of them whole. Normal with standard deviation 0.02; layers that write into the
    residual stream have it divided by sqrt(2·layers) (Radford et al., 2019, section 2.3).
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:  # the scale of a norm
            parameter.fill_(1.0)
            continue
        deviation = STANDARD_DEVIATION
        if name.endswith(("attention.out.weight", "mlp.down.weight")):
            deviation /= math.sqrt(2 * layers)
        value = torch.empty(parameter.shape, dtype=torch.float32)
        value.normal_(0.0, deviation, generator=generator)
        if isinstance(parameter, DTensor):
            # src_data_rank=None: every rank cuts its own shard out of its own copy.
            mesh, placements = parameter.device_mesh, parameter.placements
            value = value.to(parameter.device)
            value = distribute_tensor(value, mesh, placements, src_data_rank=None)
        parameter.copy_(value)
