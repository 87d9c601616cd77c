"""Statistics on plain numbers: what a handful of seeds can tell. No torch here.

May import `numpy` alone. Its names are taken from the package, `stats.block`.

    aggregates  interquartile means, P(X > Y) and profiles, as rliable has them
    blocks      rows paired by seed: which differ, and what so many seeds could show
    clusters    intervals where values come in clusters: samples of one prompt
    intervals   intervals of shares and means, and numbers of one curve
    signs       sign-flip tests of paired differences, and Holm's correction
    student     Student's t, Tukey's range, Dunnett's t, and intervals that rest on them
"""

from rlzoo.stats.aggregates import (
    REPETITIONS,
    improvement,
    improvement_interval,
    iqm,
    iqm_band,
    iqm_interval,
    performance_profile,
)
from rlzoo.stats.blocks import (
    LARGE,
    OWN,
    POWER,
    Block,
    Contrast,
    block,
    detectable,
    power,
    seeds_to_show,
)
from rlzoo.stats.clusters import mean_over, share_over
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
from rlzoo.stats.signs import EXACT_SEEDS, Paired, holm, paired, seeds_needed, smallest_p
from rlzoo.stats.student import (
    critical,
    distinct,
    over_prompts,
    student_quantile,
    t_interval,
    variance_over_prompts,
    within,
)

__all__ = [
    "ALPHA",
    "EXACT_SEEDS",
    "LARGE",
    "OWN",
    "POWER",
    "REPETITIONS",
    "Block",
    "Contrast",
    "Interval",
    "Paired",
    "area",
    "block",
    "censored_median",
    "critical",
    "detectable",
    "distinct",
    "holm",
    "improvement",
    "improvement_interval",
    "iqm",
    "iqm_band",
    "iqm_interval",
    "jackknife_se",
    "mean_interval",
    "mean_over",
    "over_prompts",
    "paired",
    "performance_profile",
    "power",
    "reached",
    "seeds_needed",
    "seeds_to_show",
    "share_over",
    "smallest_p",
    "student_quantile",
    "t_interval",
    "variance_over_prompts",
    "wilson",
    "within",
]
