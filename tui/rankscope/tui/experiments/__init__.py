"""Experiments on this machine: real trainings that are started to be measured."""
