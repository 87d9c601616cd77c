"""Statistics of several runs with few seeds. No torch here.

May import `rlzoo.stats`, whose names it has as well. Names are taken from the package:
`stats.block`.

    aggregates  interquartile means, P(X > Y), as in rliable
    blocks      rows paired by seed: which differ, and what N seeds can detect
    means       intervals of means, and numbers of one curve
    skewed      when a paired t test is unreliable
    signs       sign-flip tests of paired differences, and Holm's correction
"""

# ruff: noqa: F401 (names to be taken from here)

from rlzoo.stats import ALPHA, Interval, critical, mean_over, share_over, wilson, within
from rlzoo_lab.stats.aggregates import (
    improvement,
    improvement_interval,
    iqm,
    iqm_interval,
)
from rlzoo_lab.stats.blocks import (
    LARGE,
    OWN,
    Contrast,
    block,
    detectable,
    power,
    seeds_to_show,
    spread_range,
    turned,
    welch,
)
from rlzoo_lab.stats.means import (
    area,
    censored_median,
    distinct,
    mean_interval,
    over_prompts,
    reached,
    running_mean,
    smoothed,
    t_interval,
    variance_over_prompts,
)
from rlzoo_lab.stats.signs import Paired, holm, paired, smallest_p
from rlzoo_lab.stats.skewed import NEAR, doubts
