"""Statistics on plain numbers: what a handful of seeds can tell. No torch here.

May import `numpy` alone. Its names are taken from the package, `stats.block`.

    aggregates  interquartile means, P(X > Y) and profiles, as rliable has them
    blocks      rows paired by seed: which differ, and what so many seeds could show
    clusters    intervals where values come in clusters: samples of one prompt
    intervals   intervals of shares and means, and numbers of one curve
    signs       sign-flip tests of paired differences, and Holm's correction
    student     Student's t, Tukey's range, Dunnett's t, and intervals that rest on them
"""

# ruff: noqa: F401 (names to be taken from here)

from rlzoo.stats.aggregates import (
    improvement,
    improvement_interval,
    iqm,
    iqm_band,
    iqm_interval,
    performance_profile,
)
from rlzoo.stats.blocks import LARGE, OWN, Contrast, block, detectable, power, seeds_to_show
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
from rlzoo.stats.signs import Paired, holm, paired, seeds_needed, smallest_p
from rlzoo.stats.student import critical, student_quantile, t_interval, within
