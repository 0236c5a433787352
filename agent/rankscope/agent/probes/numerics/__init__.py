"""The stages of a step around the gradient: what comes in, what modules give, what is updated."""
