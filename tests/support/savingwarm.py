"""What is done once, before ranks of ``savingrank`` are forked: imports that take seconds.

The first optimizer brings in more of torch than all the rest.
"""

import torch
import torch.distributed.checkpoint.state_dict
import torch.distributed.fsdp
import torch.nn.parallel

import support.savingrank  # noqa: F401 - its imports are what it is here for

torch.optim.AdamW([torch.zeros(1)])
