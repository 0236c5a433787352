"""The hub: receives, aggregates, diagnoses, records and serves views."""
