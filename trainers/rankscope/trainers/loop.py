"""The step loop, the same for every trainer."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from rankscope.trainers.clip import clip_gradients
from rankscope.trainers.config import Config, signals
from rankscope.trainers.data import Batch, Data
from rankscope.trainers.launch import Ranks
from rankscope.trainers.objective import loss_sum, share, valid_tokens
from rankscope.trainers.parallel import Parallel
from rankscope.trainers.precision import gradient_scaler
from rankscope.trainers.report import Report
from rankscope.trainers.resume import Position, saving
from rankscope.trainers.schedule import learning_rate, set_learning_rate
from rankscope.trainers.uneven import empty, joined
from rankscope.trainers.watch import Watcher, watch

Window = list[Batch]
"""The microbatches of one update."""


def train(
    config: Config,
    parallel: Parallel,
    optimizer: Optimizer,
    data: Data,
    device: torch.device,
    report: Report,
    name: str,
    through: Callable[[Iterator[Window]], Iterator[Window]] = iter,
    phases: Sequence[Callable[[str, int], None]] = (),
) -> None:
    """``config.steps`` updates of ``parallel.model``; the run is called ``name`` on screen.

    The windows come ``through`` what a fault puts in their way, else untouched; ``phases`` are
    called in each phase of a save.
    """
    model, ranks = parallel.model, parallel.ranks
    scaler = gradient_scaler(config.precision, device)
    with (
        saving(config, model, optimizer, scaler, report, data.order, phases) as saver,
        watch(config.attach, model, optimizer, name, saver, signals(config)) as agent,
    ):
        step = saver.start_step + 1
        if step > config.steps:
            report.say(f"all {config.steps} steps are done")
            return
        for window in through(windows(agent, data, config, ranks, saver.position)):
            saver.before_step()
            own = valid_tokens(window)
            tokens = int(ranks.sum(torch.tensor(own)))
            if tokens == 0:  # the same on every rank, so all of them skip the update
                report.rejected(step)
                continue

            rate = learning_rate(step, peak=config.lr, warmup=config.warmup, steps=config.steps)
            set_learning_rate(optimizer, rate)
            loss, norm = update(parallel, optimizer, window, tokens, config.clip, device, scaler)
            with report.boundary():
                goes_on = agent.end_step(loss=loss, tokens=own)  # the same on every rank
            saver.end_step(step)

            report.count(tokens)
            if report.wants(step):
                world_loss = float(ranks.sum(loss.clone()) / ranks.size)
                report.step(step, loss=world_loss, norm=float(norm), lr=rate, tokens=tokens)
            if data.held_out is not None and step % config.eval_every == 0 and goes_on:
                with agent.expect("evaluation"):  # takes long, and is no hang
                    report.evaluation(step, evaluate(parallel, data.held_out, device))
            if not goes_on:
                report.say(f"stopped after step {step}, as was asked")
            if step == config.steps or not goes_on:
                saver.wait()  # while there is somebody to tell what came of it
                return
            step += 1


def windows(
    agent: Watcher, data: Data, config: Config, ranks: Ranks, position: Position
) -> Iterator[Window]:
    """The microbatches of one update after the other, epoch after epoch, from ``position`` on.

    ``position`` is always behind the window that was given last.

    The last window of an epoch may be shorter. It is equally long on every rank: so are the epochs,
    or the ranks that run out join the others.
    """
    for epoch in itertools.count(position.epoch):
        start = position.enter(epoch)
        own = batched(agent.batches(data.epoch(epoch, start)), config.accumulate)
        for window in own if config.uneven != "join" else joined(own, ranks, empty(config)):
            position.seen += len(window) * config.batch_size * ranks.size
            yield window


def batched(batches: Iterable[Batch], accumulate: int) -> Iterator[Window]:
    window: Window = []
    for batch in batches:
        window.append(batch)
        if len(window) == accumulate:
            yield window
            window = []
    if window:
        yield window


def update(
    parallel: Parallel,
    optimizer: Optimizer,
    window: Window,
    tokens: int,
    clip: float,
    device: torch.device,
    scaler: GradScaler,
) -> tuple[Tensor, Tensor]:
    """One update of the parameters with ``window``, one of ``tokens`` valid tokens on all ranks.

    Returns this rank's share of the loss and the gradient's global norm before clipping, scalars.
    """
    loss = accumulate(parallel, window, tokens, device, scaler)
    scaler.unscale_(optimizer)
    norm = clip_gradients(parallel.model.parameters(), clip)
    scaler.step(optimizer)  # skips the update when a gradient overflowed, on all ranks
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    return loss, norm


def accumulate(
    parallel: Parallel, window: Window, tokens: int, device: torch.device, scaler: GradScaler
) -> Tensor:
    """Gradients of one update, reduced over the ranks with the last microbatch.

    ``tokens`` counts the valid tokens of the update on all ranks. Returns this rank's share of the
    loss, a scalar; the mean of all ranks' shares is the loss.
    """
    loss = torch.zeros((), device=device)
    for index, (inputs, targets) in enumerate(window, start=1):
        with parallel.microbatch(index == len(window)):
            with parallel.autocast():
                logits = parallel.model(inputs.to(device, non_blocking=True))
                total = parallel.loss_sum(logits, targets.to(device, non_blocking=True))
            part = share(total, parallel.ranks.size, tokens)
            scaler.scale(part).backward()  # type: ignore[no-untyped-call]
        loss += part.detach()
    return loss


@torch.no_grad()
def evaluate(parallel: Parallel, batches: Iterable[Batch], device: torch.device) -> float:
    """The loss of the held-out text: its sum over its count, both added up over the ranks."""
    parallel.model.eval()
    sums = torch.zeros(2, dtype=torch.float64)
    for inputs, targets in batches:
        with parallel.autocast():
            logits = parallel.model(inputs.to(device))
        sums[0] += loss_sum(logits, targets.to(device)).cpu()
        sums[1] += valid_tokens([(inputs, targets)])
    parallel.model.train()
    total, count = parallel.ranks.sum(sums).tolist()
    return float(total / max(count, 1))
