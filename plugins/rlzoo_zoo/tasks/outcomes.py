"""Scores that tasks made by rules share."""

import torch


class OneAnswer:
    """The correct response is `Example.answer`, then EOS, and nothing else."""

    one_answer = True

    def is_correct(self, responses, answers):
        return torch.tensor([r == a for r, a in zip(responses, answers, strict=True)])  # (B,)


class LastTurn:
    """A conversation is correct if the policy's last turn is the answer.

    Score (B,): 1.0 if the row is correct and terminated, otherwise 0.0.
    """

    def score(self, turns, answers, terminated):
        return outcome(self.is_correct(turns, answers), terminated)

    def is_correct(self, turns, answers):
        pairs = zip(turns, answers, strict=True)
        return torch.tensor([len(t) % 2 == 1 and self.final(t[-1]) == a for t, a in pairs])  # (B,)

    def final(self, text):
        """The answer that a turn gives."""
        return text


def outcome(correct, terminated):
    """1.0 where `correct` (B,) on the host and `terminated` (B,) hold, otherwise 0.0."""
    return (correct.to(terminated.device) & terminated).float()


def by_token(rewards, response_mask):
    """Scores (B, T) of lists of rewards, one for each action of each row."""
    scores = torch.zeros(response_mask.shape, device=response_mask.device)
    paid = torch.tensor([x for row in rewards for x in row])
    scores[response_mask > 0] = paid.to(scores)  # both in row order, holes skipped
    return scores
