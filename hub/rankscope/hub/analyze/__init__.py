"""The verdict from torch's flight-recorder dump files alone: no agent, no hub, any torch job.

``python -m rankscope.hub.analyze DIR`` prints one JSON document (``shapes.Analysis``).
"""
