"""KL penalties."""
