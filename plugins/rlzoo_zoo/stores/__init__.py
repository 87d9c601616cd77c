"""Stores: copies of a run's folder."""
