"""Programs that measure trainers: memory in tensor bytes, time of whole updates, what is sent."""
