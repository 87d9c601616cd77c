// A world of three tokens with two choices each: 7 states, 8 responses, all of them enumerated. So
// what an estimator gives on average, and how far it scatters, is exact. As rlzoo_lab/kit/oracle does.

const STEPS = 3,
  CHOICES = 2;
const STATES = 2 ** STEPS - 1; // state 0 is the prompt; 2 s + 1 and 2 s + 2 follow state s
const childOf = (s, a) => (2 * s + 1 + a < STATES ? 2 * s + 1 + a : -1);
const depthOf = s => Math.floor(Math.log2(s + 1));

// The choices (0 wrong, 1 right) that lead to a state.
function prefixOf(s) {
  const path = [];
  for (let at = s; at > 0; at = (at - 1) >> 1) path.unshift((at - 1) % 2);
  return path;
}
const eachState = f => Array.from({ length: STATES }, (_, s) => f(s));
const eachChoice = f => eachState(s => Array.from({ length: CHOICES }, (_, a) => f(s, a)));

// What each choice pays, by the name of the task.
const TASKS = {
  outcome: s => (depthOf(s) < STEPS - 1 ? [0, 0] : [0, prefixOf(s).every(a => a === 1) ? 1 : 0]),
  dense: () => [0, 1 / STEPS],
  first: s => (depthOf(s) < STEPS - 1 ? [0, 0] : [prefixOf(s)[0], prefixOf(s)[0]]),
};

// Exact numbers of a policy pi (S, 2) with rewards (S, 2): v, visits (S,), q, advantages (S, 2).
function solve(pi, rewards, gamma) {
  const q = rewards.map(r => [...r]),
    v = new Array(STATES).fill(0);
  for (let s = STATES - 1; s >= 0; s--) {
    for (let a = 0; a < CHOICES; a++) if (childOf(s, a) >= 0) q[s][a] += gamma * v[childOf(s, a)];
    v[s] = sum(q[s].map((x, a) => pi[s][a] * x));
  }
  const visits = new Array(STATES).fill(0);
  visits[0] = 1;
  for (let s = 0; s < STATES; s++) {
    for (let a = 0; a < CHOICES; a++) {
      if (childOf(s, a) >= 0) visits[childOf(s, a)] += visits[s] * pi[s][a];
    }
  }
  return { v, q, visits, advantages: eachChoice((s, a) => q[s][a] - v[s]) };
}

// All responses: the states and choices of each, its probability, and the columns of a batch, with
// the critic's values (S,).
function responses(pi, rewards, critic) {
  const rows = Array.from({ length: CHOICES ** STEPS }, (_, i) => {
    const states = [],
      choices = [];
    for (let t = 0, s = 0; t < STEPS; t++) {
      states.push(s);
      choices.push((i >> (STEPS - 1 - t)) & 1);
      s = childOf(s, choices[t]);
    }
    const probability = states.reduce((p, s, t) => p * pi[s][choices[t]], 1);
    return { states, choices, probability, paid: states.map((s, t) => rewards[s][choices[t]]) };
  });
  return { rows, batch: columnsOf(rows, critic) };
}

function columnsOf(rows, critic) {
  const totals = rows.map(row => sum(row.paid));
  return {
    response_mask: rows.map(row => row.states.map(() => 1)),
    rewards: rows.map(row => row.paid),
    values: rows.map(row => row.states.map(s => critic[s])),
    bootstrap_values: rows.map(() => 0),
    group_ids: rows.map(() => 0),
    sequence_rewards: totals,
    sequence_scores: totals,
  };
}

// The estimates that a response may get, {a (T,), weight} each; weights sum to 1. More than one
// only where it depends on its partners: all groups of `size`.
function estimatesOf(name, { rows, batch }, options, size) {
  const { run } = ESTIMATORS[name];
  if (!isGroupwise(name)) {
    return run(batch, options).advantages.map(a => [{ a, weight: 1 }]);
  }
  const kinds = new Map();
  rows.forEach((row, i) => {
    const key = Math.round(batch.sequence_rewards[i] * 1e9);
    const found = kinds.get(key) || { first: i, p: 0 };
    kinds.set(key, { first: found.first, p: found.p + row.probability });
  });
  const partners = groupsOfKinds([...kinds.values()], size - 1),
    made = new Map();
  for (const { first } of kinds.values()) {
    made.set(
      batch.sequence_rewards[first],
      partners.map(({ members, weight }) => {
        const group = columnsOf(
          [first, ...members].map(i => rows[i]),
          batch.values[0],
        );
        return { a: run(group, options).advantages[0], weight };
      }),
    );
  }
  const firstOf = i => kinds.get(Math.round(batch.sequence_rewards[i] * 1e9)).first;
  return rows.map((_, i) => made.get(batch.sequence_rewards[firstOf(i)]));
}

// All multisets of `size` of the kinds [{first, p}], with their multinomial probabilities.
function groupsOfKinds(kinds, size) {
  const out = [];
  const extend = (k, left, members, weight) => {
    if (k === kinds.length - 1) {
      const tail = new Array(left).fill(kinds[k].first);
      out.push({ members: [...members, ...tail], weight: weight * kinds[k].p ** left });
      return;
    }
    let ways = 1;
    for (let n = 0; n <= left; n++) {
      const more = new Array(n).fill(kinds[k].first);
      extend(k + 1, left - n, [...members, ...more], weight * ways * kinds[k].p ** n);
      ways = (ways * (left - n)) / (n + 1);
    }
  };
  extend(0, size, [], 1);
  return out;
}

// Bias and variance of an estimator against the exact advantages, weighted as tokens are visited.
// For each choice (S, 2): the mean of A^, its bias, the bias less its mean in the state (perp), its
// variance (spread), and the choice's weight among all tokens. Over all: b_perp2, bias2, variance,
// the variance over scale squared, and the cosine of the expected gradient with the true one, with
// the products that it is made of.
function judge(name, world, options, size) {
  const { pi, truth, all } = world;
  const mass = eachChoice(() => 0),
    mean = eachChoice(() => 0),
    square = eachChoice(() => 0);
  estimatesOf(name, all, options, size).forEach((estimates, i) => {
    const { states, choices, probability } = all.rows[i];
    for (const { a, weight } of estimates) {
      const p = probability * weight;
      states.forEach((s, t) => {
        mass[s][choices[t]] += p;
        mean[s][choices[t]] += p * a[t];
        square[s][choices[t]] += p * a[t] ** 2;
      });
    }
  });
  for (const s of mass.keys()) for (let a = 0; a < CHOICES; a++) mean[s][a] /= mass[s][a];
  const centred = x => x.map((row, s) => row.map(v => v - sum(row.map((u, a) => pi[s][a] * u))));
  const bias = eachChoice((s, a) => mean[s][a] - truth.advantages[s][a]),
    perp = centred(bias);
  const spread = eachChoice((s, a) => square[s][a] / mass[s][a] - mean[s][a] ** 2);
  const tokens = sum(mass.flat()),
    weight = eachChoice((s, a) => mass[s][a] / tokens);
  const over = f => sum(eachChoice((s, a) => weight[s][a] * f(s, a)).flat());
  const variance = over((s, a) => spread[s][a]);
  const later = truth.advantages.map((row, s) => row.map(x => world.gamma ** depthOf(s) * x));
  const gradient = x => eachChoice((s, a) => mass[s][a] * x[s][a]).flat();
  const g = gradient(centred(mean)),
    star = gradient(later);
  const dot = (x, y) => sum(x.map((v, i) => v * y[i]));
  const gs = dot(g, star),
    gg = dot(g, g),
    ss = dot(star, star);
  const scale = gs / Math.max(ss, 1e-300);
  return {
    mean,
    bias,
    perp,
    spread,
    weight,
    gs,
    gg,
    ss,
    scale,
    variance,
    b_perp2: over((s, a) => perp[s][a] ** 2),
    bias2: over((s, a) => bias[s][a] ** 2),
    relative_variance: Math.abs(scale) > 1e-9 ? variance / scale ** 2 : null,
    cosine: gs / Math.max(Math.sqrt(gg * ss), 1e-300),
  };
}

const ERRORS = [0.5, -1.2, 0.8, 0.3, -0.6, 1.4, -0.9]; // of a critic, one for each state

// A critic's values: "exact", "zero", or "errors": exact plus size times a fixed error.
function criticOf(kind, v, size) {
  return v.map((x, s) => ({ exact: x, zero: 0 })[kind] ?? x + size * ERRORS[s]);
}

// A world as the page shows it: a policy that chooses the right token with probability p.
function makeWorld(task, p, gamma, critic, size) {
  const pi = eachState(() => [1 - p, p]),
    rewards = eachState(TASKS[task]);
  const truth = solve(pi, rewards, gamma),
    values = criticOf(critic, truth.v, size);
  return { pi, rewards, truth, values, gamma, all: responses(pi, rewards, values) };
}
