"""The contract every other room keeps: wire messages, views, keys and the run directory."""
