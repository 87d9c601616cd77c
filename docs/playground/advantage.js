"use strict";
// The zoo's arithmetic in plain JavaScript, in float64. A batch is an object of columns under the
// zoo's names: (B, T) columns are arrays of rows, (B,) columns arrays of numbers. Every function is
// pure. Tests compare each of them with the component of the same name.

const perRow = (batch, f) => batch.response_mask.map((mask, row) => f(row, mask));
const perToken = (batch, f) =>
  perRow(batch, (row, mask) => mask.map((on, t) => (on ? f(row, t) : 0)));
const sum = xs => xs.reduce((total, x) => total + x, 0);
const maskedSum = (xs, mask) => sum(xs.map((x, t) => (mask[t] ? x : 0)));
const actions = mask => mask.flatMap((on, t) => (on ? [t] : []));

// ---------------------------------------------------------------- recursions over one row

// x at the next action of each action; `end` after the last one; 0 where there is no action.
function nextAction(x, mask, end) {
  const out = x.map(() => 0);
  let after = end;
  for (let t = x.length - 1; t >= 0; t--) {
    if (!mask[t]) continue;
    out[t] = after;
    after = x[t];
  }
  return out;
}

// delta_t = r_t + gamma V_next - V_t at the actions of a row.
function tdErrors(rewards, values, end, mask, gamma) {
  const after = nextAction(values, mask, end);
  return rewards.map((r, t) => (mask[t] ? r + gamma * after[t] - values[t] : 0));
}

// A_t = delta_t + gamma lam A_next at the actions of a row.
function tdLambda(rewards, values, end, mask, gamma, lam) {
  const out = tdErrors(rewards, values, end, mask, gamma);
  let ahead = 0;
  for (let t = out.length - 1; t >= 0; t--) {
    if (mask[t]) ahead = out[t] += gamma * lam * ahead;
  }
  return out;
}

// All rows by tdLambda; `returns`, the critic's targets, are advantages + values.
function tdFamily(batch, gamma, lam) {
  return withReturns(
    batch,
    perRow(batch, (row, mask) =>
      tdLambda(
        batch.rewards[row],
        batch.values[row],
        batch.bootstrap_values[row],
        mask,
        gamma,
        lam,
      ),
    ),
  );
}

function withReturns(batch, advantages) {
  return { advantages, returns: perToken(batch, (i, t) => advantages[i][t] + batch.values[i][t]) };
}

// n rewards, then the critic's value; where fewer than n actions are left, the bootstrap value.
function nStepRow(rewards, values, end, mask, gamma, n) {
  const at = actions(mask),
    out = mask.map(() => 0);
  at.forEach((t, i) => {
    const until = Math.min(i + n, at.length);
    let total = 0;
    for (let k = i; k < until; k++) total += gamma ** (k - i) * rewards[at[k]];
    total += gamma ** (until - i) * (until < at.length ? values[at[until]] : end);
    out[t] = total - values[t];
  });
  return out;
}

// The turns of a row: runs of actions with one id, each an array of positions.
function turnsOf(ids, mask) {
  const turns = [];
  for (const t of actions(mask)) {
    const open = turns.at(-1);
    if (open && ids[open[0]] === ids[t]) open.push(t);
    else turns.push([t]);
  }
  return turns;
}

// GAE over turns: the tokens of a turn share its advantage; targets are what is left of the turn's
// rewards, and what follows the turn.
function turnGaeRow(rewards, values, end, mask, ids, gamma, lam) {
  const advantages = mask.map(() => 0),
    returns = mask.map(() => 0);
  let ahead = 0,
    value = end;
  for (const turn of turnsOf(ids, mask).reverse()) {
    const after = gamma * (value + lam * ahead);
    let left = after;
    for (const t of [...turn].reverse()) returns[t] = left += rewards[t];
    value = values[turn[0]];
    ahead = left - value;
    for (const t of turn) advantages[t] = ahead;
  }
  return { advantages, returns };
}

// ---------------------------------------------------------------- groups

// Mean, standard deviation (over G - 1), size of each row's group, and whether its numbers are
// equal up to rounding.
function groupsOf(x, ids) {
  const members = new Map();
  ids.forEach((id, row) => members.set(id, [...(members.get(id) || []), row]));
  const out = new Array(x.length);
  for (const rows of members.values()) {
    const xs = rows.map(row => x[row]),
      mean = sum(xs) / xs.length;
    const square = sum(xs.map(v => (v - mean) ** 2));
    const high = Math.max(...xs),
      low = Math.min(...xs);
    const flat = high - low <= 4 * Number.EPSILON * Math.max(1, Math.abs(high), Math.abs(low));
    const std = Math.sqrt(square / Math.max(1, xs.length - 1));
    for (const row of rows) out[row] = { mean, std, size: xs.length, flat };
  }
  return out;
}

// One advantage for each response, the same at all of its actions; 0 in a group without a spread.
function groupFamily(batch, x, advantage) {
  const groups = groupsOf(x, batch.group_ids);
  return {
    advantages: perToken(batch, row => (groups[row].flat ? 0 : advantage(x[row], groups[row]))),
  };
}

// ---------------------------------------------------------------- the estimators

// `reads`: the columns that the advantages are computed from. `form`: how the arithmetic is
// written: as a recursion, as a weighted sum, or as a centred and scaled reward.
const ESTIMATORS = {
  gae: {
    reads: ["rewards", "values", "bootstrap_values"],
    form: "recursion",
    run: (b, { gamma, lam }) => tdFamily(b, gamma, lam),
  },
  td0: {
    reads: ["rewards", "values", "bootstrap_values"],
    form: "recursion",
    run: (b, { gamma }) => tdFamily(b, gamma, 0),
  },
  mc: {
    reads: ["rewards", "values", "bootstrap_values"],
    form: "recursion",
    run: (b, { gamma }) => tdFamily(b, gamma, 1),
  },
  n_step: {
    reads: ["rewards", "values", "bootstrap_values"],
    form: "sum",
    run: (b, { gamma, n }) =>
      withReturns(
        b,
        perRow(b, (i, mask) =>
          nStepRow(b.rewards[i], b.values[i], b.bootstrap_values[i], mask, gamma, n),
        ),
      ),
  },
  turn_gae: {
    reads: ["rewards", "values", "bootstrap_values"],
    form: "sum",
    run: (b, { gamma, lam }) => {
      const rows = perRow(b, (i, mask) =>
        turnGaeRow(
          b.rewards[i],
          b.values[i],
          b.bootstrap_values[i],
          mask,
          b.turn_ids[i],
          gamma,
          lam,
        ),
      );
      return { advantages: rows.map(r => r.advantages), returns: rows.map(r => r.returns) };
    },
  },
  reinforce: {
    reads: ["rewards"],
    form: "recursion",
    run: (b, { gamma }) => ({
      advantages: perRow(b, (i, mask) =>
        tdLambda(
          b.rewards[i],
          mask.map(() => 0),
          0,
          mask,
          gamma,
          1,
        ),
      ),
    }),
  },
  grpo: {
    reads: ["sequence_rewards"],
    form: "scaled",
    run: (b, { eps }) => groupFamily(b, b.sequence_rewards, (x, g) => (x - g.mean) / (g.std + eps)),
  },
  rloo: {
    reads: ["sequence_rewards"],
    form: "sum",
    run: b =>
      groupFamily(
        b,
        b.sequence_rewards,
        (x, g) => ((x - g.mean) * g.size) / Math.max(1, g.size - 1),
      ),
  },
  dr_grpo: {
    reads: ["sequence_rewards"],
    form: "sum",
    run: b => groupFamily(b, b.sequence_rewards, (x, g) => x - g.mean),
  },
  maxrl: {
    reads: ["sequence_scores"],
    form: "scaled",
    run: b =>
      groupFamily(b, b.sequence_scores, (x, g) => (g.mean <= 0 ? 0 : (x - g.mean) / g.mean)),
  },
};
const isGroupwise = name => ESTIMATORS[name].reads[0].startsWith("sequence");

// ---------------------------------------------------------------- KL penalties and rewards

// Of a token with log-probabilities p and q, of the policy and of the reference; in nats.
const KL_PENALTIES = {
  k1: (p, q) => p - q,
  k2: (p, q) => (p - q) ** 2 / 2,
  k3: (p, q) => Math.expm1(Math.min(q - p, 20)) - Math.min(q - p, 20),
};

// Rewards of a row: scores less coef times the penalty, at each token or summed at the last action.
function lessPenalty(scores, penalty, mask, coef, spread) {
  if (spread !== "last") return scores.map((s, t) => s - coef * penalty[t]);
  const last = actions(mask).at(-1),
    total = maskedSum(penalty, mask);
  return scores.map((s, t) => (t === last ? s - coef * total : s));
}

// x of one response at mean 0 and variance 1 over its actions.
function whiten(x, mask) {
  const at = actions(mask),
    mean = maskedSum(x, mask) / Math.max(1, at.length);
  const variance = sum(at.map(t => (x[t] - mean) ** 2)) / Math.max(1, at.length);
  const std = Math.sqrt(variance + 1e-8);
  return { mean, std, whitened: x.map((v, t) => (mask[t] ? (v - mean) / std : 0)) };
}

// ---------------------------------------------------------------- the policy losses

const ratioOf = (b, i, t) => Math.exp(Math.min(b.log_probs[i][t] - b.old_log_probs[i][t], 20));
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const meanLogRatio = (b, i, at) =>
  sum(at.map(t => b.log_probs[i][t] - b.old_log_probs[i][t])) / Math.max(1, at.length);

// -min(ratio A, clip(ratio) A), and whether the clip decides.
function clippedSurrogate(ratio, a, { clip_low, clip_high }) {
  const bounded = clamp(ratio, 1 - clip_low, 1 + clip_high);
  const over = (ratio > 1 + clip_high && a > 0) || (ratio < 1 - clip_low && a < 0);
  return { loss: -Math.min(ratio * a, bounded * a), clipped: over ? 1 : 0 };
}

// Each gives {loss, clipped} of a token: (batch, row, position, its advantage, options).
const LOSSES = {
  ppo_clip: (b, i, t, a, o) => clippedSurrogate(ratioOf(b, i, t), a, o),
  ppo_dual_clip: (b, i, t, a, o) => {
    const ratio = ratioOf(b, i, t),
      { loss, clipped } = clippedSurrogate(ratio, a, o);
    return { loss: a < 0 && ratio > o.c ? -o.c * a : loss, clipped };
  },
  gspo: (b, i, t, a, o) => {
    const log = meanLogRatio(b, i, actions(b.response_mask[i]));
    return clippedSurrogate(Math.exp(Math.min(log, 10)), a, o);
  },
  turn_clip: (b, i, t, a, o) => {
    const turn = actions(b.response_mask[i]).filter(s => b.turn_ids[i][s] === b.turn_ids[i][t]);
    return clippedSurrogate(Math.exp(Math.min(meanLogRatio(b, i, turn), 20)), a, o);
  },
  gmpo: (b, i, t, a, { clip_low, clip_high }) => {
    const at = actions(b.response_mask[i]);
    const log = s => b.log_probs[i][s] - b.old_log_probs[i][s];
    const bounded = at.map(s =>
      b.advantages[i][s] >= 0 ? Math.min(log(s), clip_high) : Math.max(log(s), -clip_low),
    );
    const over = (log(t) > clip_high && a > 0) || (log(t) < -clip_low && a < 0);
    const mean = sum(bounded) / Math.max(1, at.length);
    return { loss: -a * Math.exp(Math.min(mean, 20)), clipped: over ? 1 : 0 };
  },
  cispo: (b, i, t, a, { clip_low, clip_high }) => {
    const ratio = ratioOf(b, i, t),
      bounded = clamp(ratio, 1 - clip_low, 1 + clip_high);
    return { loss: -bounded * a * b.log_probs[i][t], clipped: bounded === ratio ? 0 : 1 };
  },
  sapo: (b, i, t, a, { tau_pos, tau_neg }) => {
    const tau = a > 0 ? tau_pos : tau_neg;
    return { loss: (-a * (4 / tau)) / (1 + Math.exp(-tau * (ratioOf(b, i, t) - 1))) };
  },
  surrogate: (b, i, t, a) => ({ loss: -ratioOf(b, i, t) * a }),
};

// loss (B, T), and `clipped` (B, T), 1 where the clip holds; no `clipped` for a loss without one.
function policyLoss(name, batch, options) {
  const tokens = perToken(batch, (i, t) =>
    LOSSES[name](batch, i, t, batch.advantages[i][t], options),
  );
  const out = { loss: tokens.map(row => row.map(x => (x ? x.loss : 0))) };
  if (tokens.some(row => row.some(x => x && x.clipped !== undefined))) {
    out.clipped = tokens.map(row => row.map(x => (x ? x.clipped : 0)));
  }
  return out;
}
