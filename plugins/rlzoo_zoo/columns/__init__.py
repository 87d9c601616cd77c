"""Additional columns: greedy baselines, branch rollouts, extra scorers."""
