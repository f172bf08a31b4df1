"""Decides what the next step computes. Pure Python, no tensors."""
