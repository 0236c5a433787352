"""The agent: what is embedded in every rank, and the sentinel beside it."""
