"""A trainer at work on one case, one update at a time, as its own step loop makes them."""

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from rankscope.protocol.experiments import Case, Job
from rankscope.trainers import config as settings
from rankscope.trainers import ddp, fsdp2
from rankscope.trainers.config import Config
from rankscope.trainers.data import Data
from rankscope.trainers.launch import Place
from rankscope.trainers.loop import Window, update, windows
from rankscope.trainers.objective import valid_tokens
from rankscope.trainers.parallel import Trainer
from rankscope.trainers.precision import gradient_scaler
from rankscope.trainers.resume import Position
from rankscope.trainers.schedule import learning_rate, set_learning_rate
from rankscope.trainers.watch import Unwatched

TRAINERS: dict[str, Trainer] = {"ddp": ddp.TRAINER, "fsdp2": fsdp2.TRAINER}


def settings_of(case: Case, job: Job) -> Config:
    """The case in a trainer's own terms, checked. Raises ``UserError``."""
    config = Config(
        steps=job.updates,
        batch_size=case.batch_size,
        seq_len=case.seq_len,
        layers=case.layers,
        dim=case.dim,
        heads=case.heads,
        accumulate=case.accumulate,
        seed=job.seed,
        text=Path(job.text) if job.text is not None else None,
        device=job.device,
        precision=case.precision,
        recompute=case.recompute,
        attach="none",
    )
    settings.check(config)
    return config


class Subject:
    """The model of a case laid out over the ranks, its optimizer and its data."""

    def __init__(
        self, case: Case, job: Job, place: Place, device: torch.device, feed: Data
    ) -> None:
        trainer = TRAINERS[case.trainer]
        self.config = settings_of(case, job)
        self._device = device
        parser = settings.parser(trainer.module, trainer.what)
        trainer.add_options(parser)
        options = parser.parse_args([])
        if case.trainer == "fsdp2":
            options.reshard_after_forward = case.reshard_after_forward
        self.parallel = trainer.parallelise(self.config, options, place, device)
        ranks = self.parallel.ranks
        torch.manual_seed(job.seed + 1 + ranks.rank)
        self.optimizer = AdamW(self.model.parameters(), lr=self.config.lr, betas=(0.9, 0.95))
        self._scaler = gradient_scaler(self.config.precision, device)
        self._windows: Iterator[Window] = windows(Unwatched(), feed, self.config, ranks, Position())
        self.updates = 0
        self.tokens = 0
        """Of the last update, on all ranks."""
        self.batches_crc32 = 0
        self._losses: list[Tensor] = []

    @property
    def model(self) -> nn.Module:
        return self.parallel.model

    def update(self) -> None:
        """The next update, whole; on a GPU it is over when the device is done."""
        window = next(self._windows)
        own = torch.tensor(valid_tokens(window))
        self.tokens = int(self.parallel.ranks.sum(own))
        self.updates += 1
        config = self.config
        rate = learning_rate(self.updates, peak=config.lr, warmup=config.warmup, steps=config.steps)
        set_learning_rate(self.optimizer, rate)
        loss, _ = update(
            self.parallel,
            self.optimizer,
            window,
            self.tokens,
            config.clip,
            self._device,
            self._scaler,
        )
        self._losses.append(loss)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        for inputs, _ in window:
            self.batches_crc32 = zlib.crc32(inputs.numpy().tobytes(), self.batches_crc32)

    def losses(self) -> list[float]:
        """Of each update, over the tokens of all ranks; a collective."""
        ranks = self.parallel.ranks
        own = torch.stack(self._losses).double().cpu()
        return [float(loss) for loss in ranks.sum(own) / ranks.size]


def after_step(subject: Subject, call: Callable[[], None]) -> Callable[[], None]:
    """``call`` after each of the optimizer's steps, while there are gradients; returns its end."""
    handle = subject.optimizer.register_step_post_hook(lambda *_: call())
    removed: Callable[[], None] = handle.remove
    return removed
