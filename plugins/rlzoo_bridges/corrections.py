"""`rlzoo show correction`: the space of rollout corrections, and each trainer's words for a point.

mu is the distribution that sampled, pi_old the policy at the rollout, l = log pi_old - log mu.
"""

from typing import NamedTuple

ABOUT = (
    "Samples come from mu: an inference engine, half precision, or weights of N updates ago. "
    "pi_old is the trained policy at the rollout. Two choices: what the loss's ratio compares "
    "with, and which function of pi_old / mu weighs a token or a response."
)


class Point(NamedTuple):
    words: str
    does: str
    verl: str = ""
    trl: str = ""
    nemo_rl: str = ""
    skyrl: str = ""


POINTS = [
    Point(
        "rollout.old_log_probs=sampled",
        "no weight: the loss's ratio is pi / mu, and its clip bounds it",
        "bypass_ppo_clip (bypass_mode)",
    ),
    Point(
        "rollout.old_log_probs=recomputed",
        "no weight: pi_old from a pass; mu is taken for pi_old",
        "disabled (decoupled)",
        "vllm_importance_sampling_correction=False",
        "no correction",
        "tis_ratio_type=null",
    ),
    Point(
        "correction=tis",
        "each token's ratio, at most cap",
        "decoupled_token_is, rollout_is=token",
        "token_truncate",
        "tis",
        "tis_ratio_type=token",
    ),
    Point(
        "correction=tis correction.level=sequence",
        "the response's ratio (a product), at most cap",
        "decoupled_seq_is, rollout_is=sequence",
        "sequence_truncate",
        "",
        "tis_ratio_type=sequence",
    ),
    Point(
        "correction=tis correction.level=prefix",
        "the product up to the token, at most cap (CTPO)",
    ),
    Point(
        "correction=tis correction.level=geometric",
        "the geometric mean over the response, at most cap",
    ),
    Point(
        "correction=tis correction.floor=0.5",
        "each token's ratio, within both bounds",
        "",
        "token_truncate with clip_min",
        "tis with ratio_min",
    ),
    Point(
        "correction=icepop",
        "each token's ratio, 0 outside [low, high]",
        "decoupled_token_icepop, lower_upper (a threshold such as 0.5_5.0)",
        "token_mask",
        "icepop",
    ),
    Point(
        "correction=icepop correction.level=sequence correction.high=2",
        "the response's ratio, 0 outside [low, high]",
        "decoupled_seq_is_rs",
        "sequence_mask",
        "",
        "sequence_mask_metric=product, tis_ratio_type=sequence",
    ),
    Point(
        "correction=tis correction.reject=0.001 correction.cap=1e9",
        "each token's ratio; 0 where |mean l| of the response exceeds reject (Geo-RS)",
        "",
        "",
        "seq-mask-tis",
    ),
    Point(
        "correction=tis correction.reject=0.001",
        "the same, at most cap",
        "decoupled_geo_rs_token_tis",
        "",
        "",
        "sequence_mask_metric=geometric, tis_ratio_type=token",
    ),
    Point(
        "correction=tis correction.level=sequence correction.reject=0.001",
        "the response's ratio, at most cap; 0 where its |mean l| exceeds reject",
        "decoupled_geo_rs_seq_tis",
        "",
        "",
        "sequence_mask_metric=geometric, tis_ratio_type=sequence",
    ),
    Point(
        "correction=tis correction.normalize=true",
        "any of these, divided by the batch's mean weight",
        "rollout_is_batch_normalize=true",
    ),
    Point(
        "correction=rejection correction.estimator=k1 correction.threshold=0.001",
        "1, or 0 where |mean l| of the response exceeds threshold (Geo-RS)",
        "decoupled_geo_rs, rollout_rs=seq_mean_k1",
        "",
        "",
        "sequence_mask_metric=geometric",
    ),
    Point(
        "correction=rejection",
        "the same by the mean of k3 = exp(l) - 1 - l, an estimate of KL(mu || pi_old)",
        "decoupled_k3_rs, rollout_rs=seq_mean_k3",
    ),
    Point(
        "correction=rejection correction.level=sum correction.estimator=k1 "
        "correction.threshold=0.69",
        "1, or 0 where the response's ratio is outside [1/2, 2]",
        "rollout_rs=seq_sum_k1 (also k2, k3)",
        "",
        "",
        "sequence_mask_metric=product",
    ),
    Point(
        "correction=rejection correction.level=max correction.estimator=k1 "
        "correction.threshold=4.6",
        "1, or 0 for a response with one outlier (a ratio outside [0.01, 100])",
        "rollout_rs=seq_max_k2, seq_max_k3",
        "",
        "",
        "outlier_token_is_threshold_high=100",
    ),
    Point(
        "correction=rejection correction.level=token correction.estimator=k1 "
        "correction.threshold=0.69",
        "1, or 0 at a token whose ratio is outside [1/2, 2]",
        "rollout_rs=token_k1 (also k2, k3)",
        "",
        "",
        "token_mask_is_threshold_high=2",
    ),
    Point(
        "policy_loss=score_centering sampler.distribution=true",
        "no weight: what every token drifts by is subtracted",
        "",
        "",
        "score_centering=true",
        "score centering (0.5)",
    ),
]
NOT_HERE = (
    "decoupled_k3_rs_token_tis and _seq_tis (verl): a weight with a rejection by k3",
    "bypass_pg_is, bypass_pg_geo_rs and related (verl): REINFORCE weighed by the whole "
    "response's pi / mu; policy_loss=cispo rollout.old_log_probs=sampled weighs by the token's",
)
