"""Rules about agents: what an episode is paid for, what the policy wrote, what is compared."""

import re
from statistics import fmean

from rlzoo.runs import metrics as names
from rlzoo_lab.data.record import Record
from rlzoo_lab.doctor.rule import aside, cause
from rlzoo_lab.doctor.series import Finding, late, right_or_wrong, says_yes_or_no, spans

UNEQUAL, PER_EPISODE = "group/unequal_prompts", "reward/per_episode"
OF_IMPORTS = {UNEQUAL, PER_EPISODE}  # rlzoo's own rows are episodes, and its groups of one prompt
# Environments write these; the line above may name one as the speaker.
MARKER = re.compile(
    r"(?<!user\n)(?<!tool\n)(?<!environment\n)^(?:Observation:|<tool_response>|<observation>)", re.M
)
SPEAKERS = re.compile(r"^(?:user|tool|system|environment): .*?(?=^assistant: |\Z)", re.M | re.S)


@aside()
def rewarded_but_unfinished(run: Record) -> Finding | None:
    """Responses that were cut off get the full reward."""
    known = [s for s in run.samples if "score" in s and isinstance(s.get("truncated"), bool)]
    low, high = (f((s["score"] for s in known), default=0.0) for f in (min, max))
    paid = [s["truncated"] for s in known if s["score"] > (low + high) / 2]
    if not (right_or_wrong(run) or says_yes_or_no(run)) or len(paid) < 20 or fmean(paid) < 0.2:
        return None
    return Finding(
        "warning",
        f"{fmean(paid):.0%} of the rewarded responses in samples.jsonl never ended: they were cut "
        "off, so the mean reward counts episodes that are not finished.",
        "Pay only for responses that end, and judge the run by held-out accuracy.",
        {"unfinished": fmean(paid), "rewarded": len(paid)},
    )


@aside(PER_EPISODE, names.REWARD)
def reward_counts_turns(run: Record) -> Finding | None:
    """The mean reward counts each turn, so long episodes weigh more."""
    turns, episodes = late(run, names.REWARD), late(run, PER_EPISODE)
    if abs(turns - episodes) < max(0.02, 0.05 * abs(episodes)):
        return None
    return Finding(
        "warning",
        f"reward/mean is {turns:.3g} in {spans(run, names.REWARD)[1]}, but the mean over episodes "
        f"is {episodes:.3g}: a turn is a row, so long episodes weigh more.",
        f"Read {PER_EPISODE}.",
        {"per_turn": turns, "per_episode": episodes},
    )


@cause()
def policy_writes_observations(run: Record) -> Finding | None:
    """The policy's own text has what only its environment should write."""
    texts = [SPEAKERS.sub("", s["response"]) for s in run.samples if "response" in s]
    found = [text for text in texts if MARKER.search(text)]
    if len(found) < max(3, 0.05 * len(texts)):
        return None
    marker = MARKER.search(found[0])
    return Finding(
        "warning",
        f"{len(found)} of {len(texts)} responses in samples.jsonl contain "
        f"{marker[0] if marker else ''!r}. Unless the environment writes into the response, the "
        "policy makes up its own observations, and is trained on them.",
        "End a turn where the environment's begins (a stop string), or give such episodes no "
        "reward.",
        {"responses": len(found), "of": len(texts)},
    )


@cause(UNEQUAL)
def groups_of_unequal_prompts(run: Record) -> Finding | None:
    """Responses to different prompts are compared as one group."""
    share = max(run.series(UNEQUAL))
    if share == 0:
        return None
    return Finding(
        "problem",
        f"Up to {share:.0%} of a step's groups contain different prompts, so advantages compare "
        "responses to different questions or turns.",
        "Group rows by their whole prompt, or give all turns of an episode its own advantage.",
        {"share": share},
    )
