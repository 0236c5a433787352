"""Gradients before reduction: this rank's own, per parameter, before another rank's is mixed in.

Where a gradient is looked at depends on who reduces it (``places``); what was seen ends in one
ledger for each process. Nothing here changes a gradient, a hook or a collective of the user's.
"""
