"""Statistics on plain numbers. No torch here."""

import math


def wilson(successes: float, n: int, z: float = 1.959964) -> tuple[float, float]:
    """The Wilson score interval of a proportion, 95 % by default; (0, 1) for n = 0.

    Source: Wilson 1927, doi:10.1080/01621459.1927.10502953.
    """
    if n == 0:
        return 0.0, 1.0
    p, zz = successes / n, z * z
    middle = (p + zz / (2 * n)) / (1 + zz / n)
    half = z / (1 + zz / n) * math.sqrt(p * (1 - p) / n + zz / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def mean_interval(values: list[float], z: float = 1.959964) -> tuple[float, float]:
    """Normal 95 % interval of a mean; degenerate for fewer than two values."""
    n = len(values)
    mean = sum(values) / max(n, 1)
    if n < 2:
        return mean, mean
    var = sum((v - mean) ** 2 for v in values) / (n - 1)
    half = z * math.sqrt(var / n)
    return mean - half, mean + half
