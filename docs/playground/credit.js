// The numbers of the first view: what follows from the reader's response, in writing too.

// A groupwise estimator gives all tokens of a response the same: nothing to whiten there.
const isWhitened = () => state.whiten === 1 && !isGroupwise(state.estimator);

// All numbers of the response from what the reader set; row 0 of the batches is the response, the
// other rows are the responses of its group.
function computeResponse() {
  const { mask, rewards: scores } = state,
    n = scores.length;
  const options = optionsOf("estimator"),
    gamma = options.gamma ?? 1;
  const penalty = KL_PENALTIES[state.kl];
  const kl = mask.map((on, t) => (on ? penalty(state.old[t], state.ref[t]) : 0));
  const inReward = state.coef > 0 && state.place === "reward";
  const rewards = inReward ? lessPenalty(scores, kl, mask, state.coef, "token") : scores;
  const lone = x => Array.from({ length: n }, (_, t) => (t ? 0 : x));
  const batch = {
    response_mask: [mask, ...state.peers.map(() => lone(1))],
    rewards: [rewards, ...state.peers.map(lone)],
    values: [state.values, ...state.peers.map(() => lone(0))],
    turn_ids: [state.turns, ...state.peers.map(() => lone(0))],
    bootstrap_values: [state.end, ...state.peers.map(() => 0)],
    group_ids: [0, ...state.peers.map(() => 0)],
    sequence_rewards: [maskedSum(rewards, mask), ...state.peers],
    sequence_scores: [maskedSum(scores, mask), ...state.peers],
  };
  const made = ESTIMATORS[state.estimator].run(batch, options),
    raw = made.advantages[0];
  const white = whiten(raw, mask),
    advantages = isWhitened() ? white.whitened : raw;
  const losses = {
    log_probs: [state.now],
    old_log_probs: [state.old],
    response_mask: [mask],
    advantages: [advantages],
    turn_ids: [state.turns],
  };
  const {
    loss: [loss],
    clipped,
  } = policyLoss(state.loss, losses, optionsOf("loss"));
  const inLoss = state.coef > 0 && state.place === "loss";
  const added = mask.map((on, t) =>
    on && inLoss ? state.coef * penalty(state.now[t], state.ref[t]) : 0,
  );
  const delta = tdErrors(rewards, state.values, state.end, mask, gamma);
  return {
    n,
    batch,
    options,
    gamma,
    kl,
    inReward,
    inLoss,
    scores,
    rewards,
    delta,
    raw,
    white,
    advantages,
    returns: made.returns && made.returns[0],
    losses,
    loss,
    clipped: clipped && clipped[0],
    added,
    ratio: mask.map((on, t) => (on ? ratioOf(losses, 0, t) : 0)),
    mean: (maskedSum(loss, mask) + maskedSum(added, mask)) / Math.max(1, actions(mask).length),
  };
}

const mark = symbol => place => `${symbol}_${place} = `;

function responseArithmetic() {
  const m = () => computeResponse(),
    shared = "_t = ";
  const of = (title, symbol, formula, lines) => () => ({
    title,
    formula,
    lines: lines(m()),
    mark: place =>
      place === "mean"
        ? "mean over"
        : lines(m()).some(x => x.includes(shared))
          ? `${symbol}${shared}`
          : mark(symbol)(place),
  });
  const summary = kind => infoOf[kind](state[kind]).summary;
  return {
    kl: of("KL", "KL", summary("kl"), x =>
      actions(state.mask).map(t =>
        equation(`KL_${t}`, `${state.kl}({p}, {q})`, x.kl[t], {
          p: ["log-prob old", state.old[t]],
          q: ["log-prob ref", state.ref[t]],
        }),
      ),
    ),
    reward: of("reward", "r", `the score minus ${state.kl} times coef = ${plain(state.coef)}`, x =>
      deriveRewards(x.scores, x.kl, x.rewards, state.mask, state.coef, "token"),
    ),
    delta: of(
      "delta, the TD error",
      "delta",
      "r_t + gamma * V_next - V_t, how much better the step was than the critic expected; " +
        `V_${endOf(state.mask)} = ${plain(state.end)} follows the last token`,
      x => deriveDelta(x.batch, 0, x.gamma),
    ),
    advantage: of(`advantage by ${state.estimator}`, "A", summary("estimator"), x =>
      deriveAdvantages(state.estimator, x.batch, 0, x.options),
    ),
    white: of(
      "whitened advantage",
      "whitened",
      "(A_t - mean) / std over the tokens of this response",
      x => deriveWhitening(state.mask, x.raw, x.white),
    ),
    return: of(
      "return, the critic's target",
      "return",
      "A_t + V_t, unless the estimator has targets of its own",
      x => (x.returns ? deriveReturns(x.batch, 0, x.raw, x.returns) : []),
    ),
    ratio: of("ratio", "ratio", "probability under the current policy divided by that at rollout", x =>
      deriveRatios(x.losses, 0),
    ),
    loss: of(`policy loss by ${state.loss}`, "loss", summary("loss"), x => [
      ...deriveLoss(x.losses, 0, x.loss),
      ...(x.inLoss
        ? [`the KL penalty adds coef * ${state.kl} to each: in all ${plain(sum(x.added))}`]
        : []),
      `mean over the tokens: ${plain(x.mean)}`,
    ]),
  };
}

// `rlzoo trace` of the same numbers.
function commandOf() {
  if (state.estimator === "turn_gae") return "rlzoo trace RUN   # turns come from a conversation";
  const list = x => x.map(plain).join(","),
    rows = (own, other) => [list(own), ...state.peers.map(other)].join(";");
  const grouped = isGroupwise(state.estimator),
    rest = x => `${plain(x)}${",0".repeat(state.rewards.length - 1)}`;
  const of = (own, other) => `"${grouped ? rows(own, other) : list(own)}"`;
  const inReward = state.coef > 0 && state.place === "reward";
  const parts = [
    "rlzoo trace",
    `--${inReward ? "scores" : "rewards"} ${of(state.rewards, rest)}`,
    `--values ${of(state.values, () => rest(0))}`,
  ];
  if (state.end)
    parts.push(
      `--bootstrap "${[state.end, ...(grouped ? zeros(state.peers) : [])].map(plain).join(";")}"`,
    );
  if (state.mask.includes(0)) parts.push(`--response-mask ${of(state.mask, () => rest(1))}`);
  if (inReward) {
    const kl = computeResponse().kl;
    parts.push(`--kl ${of(kl, () => rest(0))}`, `kl.coef=${plain(state.coef)}`);
  }
  parts.push(`--estimator ${state.estimator}`);
  for (const [name, x] of Object.entries(optionsOf("estimator")))
    parts.push(`--${name} ${plain(x)}`);
  if (isWhitened()) parts.push("whiten=batch");
  return parts.join(" \\\n    ");
}
