"""Columns of their own: greedy baselines, branch rollouts, extra scorers."""
