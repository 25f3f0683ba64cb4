"""Distributional reinforcement learning with normalizing-flow return laws."""
