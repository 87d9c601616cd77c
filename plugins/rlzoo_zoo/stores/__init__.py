"""Stores: where a run's folder is kept, too."""
