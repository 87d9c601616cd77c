"""Statistics on plain numbers: intervals of what was measured once. No torch here.

May import `numpy` alone. Its names are taken from the package, `stats.wilson`.

    clusters   intervals where values come in clusters: samples of one prompt
    intervals  intervals of shares and means, and numbers of one curve
    student    Student's t, Tukey's range, Dunnett's t, and intervals that rest on them
"""

# ruff: noqa: F401 (names to be taken from here)

from rlzoo.stats.clusters import (
    distinct,
    mean_over,
    over_prompts,
    share_over,
    variance_over_prompts,
)
from rlzoo.stats.intervals import (
    ALPHA,
    Interval,
    area,
    censored_median,
    jackknife_se,
    mean_interval,
    reached,
    wilson,
)
from rlzoo.stats.student import critical, student_quantile, t_interval, within
