"""The agent: what is embedded in every rank, and the sentinel beside it.

    from rankscope.agent import attach

    with attach(model, optimizer) as agent:
        for batch in agent.batches(loader):
            ...
            agent.end_step(loss=loss, tokens=n)

Importing this package does not import torch; ``attach`` does.
"""

from rankscope.agent.agent import Agent
from rankscope.agent.attach import attach

__all__ = ["Agent", "attach"]
