"""Runs of a cluster: real nodes with few clients, every fault there is, and what the protocol promises judged by what was told."""
