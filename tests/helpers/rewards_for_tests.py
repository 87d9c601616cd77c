"""Rewards that tests name as `helpers.rewards_for_tests:letters`."""


def letters(prompts, responses, answers):
    """The number of letters and digits, over ten."""
    return [sum(c.isalnum() for c in r) / 10 for r in responses]


def one_argument(responses):
    """Not what a reward takes."""
