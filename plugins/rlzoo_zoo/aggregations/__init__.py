"""Aggregations: a weight per token of the mini-batch."""
