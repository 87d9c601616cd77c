// The arithmetic behind a number in writing, line for line as `rlzoo trace` writes it. A derivation
// is {where, lines}. Pure functions of a batch (see advantage.js); `row` is the response.

// Six significant digits, as C's %.6g.
function plain(x) {
  if (x === 0 || Number.isNaN(x)) return x === 0 ? "0" : "nan";
  if (!Number.isFinite(x)) return x > 0 ? "inf" : "-inf";
  const [digits, power] = x.toExponential(5).split("e");
  const short = text => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
  if (+power >= -4 && +power < 6) return short(x.toFixed(5 - power));
  const size = String(Math.abs(+power)).padStart(2, "0");
  return `${short(digits)}e${+power < 0 ? "-" : "+"}${size}`;
}

// A number after an operator: a negative one in brackets.
const factor = x => (plain(x).startsWith("-") ? `(${plain(x)})` : plain(x));

// `name = symbols = numbers = value`. terms: key in the form -> [symbol, its number or a text].
function equation(name, form, value, terms) {
  const filled = of => form.replace(/\{(\w+)\}/g, (_, key) => of(key, ...terms[key]));
  const numbers = filled((key, symbol, x) => {
    if (typeof x === "string") return x;
    return `(${form}`.includes(`({${key}}`) ? plain(x) : factor(x);
  });
  return joined(
    name,
    filled((key, symbol) => symbol),
    numbers,
    value,
  );
}

// Without repeating what is a single number already.
function joined(name, symbols, numbers, value) {
  const single = numbers === plain(value) || numbers === factor(value);
  return [name, symbols, ...(single ? [] : [numbers]), plain(value)].join(" = ");
}

const endOf = mask => (actions(mask).at(-1) ?? -1) + 1;
const following = mask => {
  const at = actions(mask);
  return new Map(at.map((t, i) => [t, at[i + 1]]));
};

// ---------------------------------------------------------------- one line for each token

// r_t = score_t - coef * KL_t, of a row whose penalty is `kl`.
function deriveRewards(scores, kl, rewards, mask, coef, spread) {
  const last = actions(mask).at(-1),
    total = maskedSum(kl, mask);
  return actions(mask).map(t => {
    if (spread === "last" && t !== last) return `r_${t} = score_${t} = ${plain(scores[t])}`;
    const gap = spread === "last" ? ["(sum of KL_t)", total] : [`KL_${t}`, kl[t]];
    return equation(`r_${t}`, "{score} - {coef} * {gap}", rewards[t], {
      score: [`score_${t}`, scores[t]],
      coef: ["coef", coef],
      gap,
    });
  });
}

function deriveDelta(batch, row, gamma) {
  const mask = batch.response_mask[row],
    values = batch.values[row],
    rewards = batch.rewards[row];
  const next = following(mask),
    end = batch.bootstrap_values[row];
  const delta = tdErrors(rewards, values, end, mask, gamma);
  return actions(mask).map(t => {
    const s = next.get(t);
    const ahead = s === undefined ? [`V_${endOf(mask)}`, end] : [`V_${s}`, values[s]];
    return equation(`delta_${t}`, "{r} + {gamma} * {ahead} - {v}", delta[t], {
      r: [`r_${t}`, rewards[t]],
      gamma: ["gamma", gamma],
      ahead,
      v: [`V_${t}`, values[t]],
    });
  });
}

function deriveReturns(batch, row, advantages, returns) {
  return actions(batch.response_mask[row]).map(t => {
    const a = advantages[t],
      v = batch.values[row][t];
    if (Math.abs(a + v - returns[t]) > 1e-9 * Math.max(1, Math.abs(returns[t]))) {
      return `return_${t} = ${plain(returns[t])}`;
    }
    return equation(`return_${t}`, "{a} + {v}", returns[t], { a: [`A_${t}`, a], v: [`V_${t}`, v] });
  });
}

function deriveRatios(batch, row) {
  return actions(batch.response_mask[row]).map(t => {
    const now = batch.log_probs[row][t],
      old = batch.old_log_probs[row][t];
    return equation(`ratio_${t}`, "exp({now} - {old})", Math.exp(now - old), {
      now: ["log-prob now", now],
      old: ["log-prob", old],
    });
  });
}

function deriveLoss(batch, row, loss) {
  return actions(batch.response_mask[row]).map(t => {
    const ratio = Math.exp(batch.log_probs[row][t] - batch.old_log_probs[row][t]);
    const a = batch.advantages[row][t],
      value = loss[t];
    if (Math.abs(value + ratio * a) <= 1e-9 * Math.max(1, ...loss.map(Math.abs))) {
      return equation(`loss_${t}`, "-{r} * {a}", value, {
        r: [`ratio_${t}`, ratio],
        a: [`A_${t}`, a],
      });
    }
    const product = plain(-ratio * a);
    return `loss_${t} = ${plain(value)}, instead of -ratio_${t} * A_${t} = ${product}`;
  });
}

function deriveWhitening(mask, raw, { mean, std, whitened }) {
  return actions(mask).map(t =>
    equation(`whitened_${t}`, "({a} - {mean}) / {std}", whitened[t], {
      a: [`A_${t}`, raw[t]],
      mean: ["mean", mean],
      std: ["std", std],
    }),
  );
}

// ---------------------------------------------------------------- advantages

// The lines of an estimator's advantages of a row; by their form, see ESTIMATORS.
function deriveAdvantages(name, batch, row, options) {
  const form = ESTIMATORS[name].form,
    raw = ESTIMATORS[name].run(batch, options).advantages[row];
  const write = { recursion: writeRecursion, sum: writeSum, scaled: writeScaled }[form];
  const lines = write(name, batch, row, options, raw);
  return lines || actions(batch.response_mask[row]).map(t => `A_${t} = ${plain(raw[t])}`);
}

// A_t = delta_t + gamma * lam * A_next, or r_t + gamma * A_next, from the last action backwards.
function writeRecursion(name, batch, row, options, raw) {
  const mask = batch.response_mask[row],
    next = following(mask),
    { gamma } = options;
  const critic = ESTIMATORS[name].reads.includes("values");
  const here = critic
    ? tdErrors(batch.rewards[row], batch.values[row], batch.bootstrap_values[row], mask, gamma)
    : batch.rewards[row];
  const lam = { gae: options.lam, td0: 0 }[name] ?? 1;
  const f =
    name === "gae" ? ["gamma * lam", `${plain(gamma)} * ${plain(lam)}`] : ["gamma", plain(gamma)];
  return actions(mask)
    .reverse()
    .map(t => {
      const s = next.get(t),
        terms = { here: [`${critic ? "delta" : "r"}_${t}`, here[t]] };
      if (s === undefined || gamma * lam === 0) return equation(`A_${t}`, "{here}", raw[t], terms);
      return equation(`A_${t}`, "{here} + {f} * {ahead}", raw[t], {
        ...terms,
        f,
        ahead: [`A_${s}`, raw[s]],
      });
    });
}

const MOST_TERMS = 12; // of a sum that is written out

// A_t as a weighted sum of rewards, values or the rewards of the group: each weight is what a unit
// of that number adds. undefined where a sum has more than MOST_TERMS terms.
function writeSum(name, batch, row, options, raw) {
  const { reads, run } = ESTIMATORS[name],
    inputs = [];
  const rows = isGroupwise(name) ? sameGroup(batch, row) : [row];
  const zero = Object.fromEntries(reads.map(column => [column, zeros(batch[column])]));
  for (const column of reads) {
    for (const i of rows) {
      const places = Array.isArray(batch[column][i]) ? actions(batch.response_mask[i]) : [null];
      for (const t of places) inputs.push(inputOf(name, batch, zero, column, i, t, row, options));
    }
  }
  const constant = run({ ...batch, ...zero }, options).advantages[row];
  const lines = [];
  for (const t of actions(batch.response_mask[row])) {
    const terms = inputs
      .map(({ unit, symbol, number }) => [unit[t] - constant[t], symbol, number])
      .filter(([weight]) => Math.abs(weight) > 1e-12)
      .sort((a, b) => (a[1] !== `R_${row}`) - (b[1] !== `R_${row}`));
    if (terms.length > MOST_TERMS) return undefined;
    lines.push(joined(`A_${t}`, ...sumOf(terms, constant[t]), raw[t]));
  }
  const said = reads.includes("sequence_rewards")
    ? ["R_i: the sum of the rewards of response i"]
    : [];
  return [...said, ...sameEverywhere(lines)];
}

const zeros = x => x.map(v => (Array.isArray(v) ? v.map(() => 0) : 0));
const sameGroup = (batch, row) =>
  batch.group_ids.flatMap((id, i) => (id === batch.group_ids[row] ? [i] : []));

// One number that the advantages of `row` may depend on: its symbol, its value, and the advantages
// where it is 1 and all others are 0.
function inputOf(name, batch, zero, column, i, t, row, options) {
  const unit = zero[column].map(v => (Array.isArray(v) ? [...v] : v));
  if (t === null) unit[i] = 1;
  else unit[i][t] = 1;
  const letter = { rewards: "r", values: "V", bootstrap_values: "V" }[column] || "R";
  const at = column === "bootstrap_values" ? endOf(batch.response_mask[i]) : (t ?? i);
  return {
    symbol: `${letter}_${at}`,
    number: t === null ? batch[column][i] : batch[column][i][t],
    unit: ESTIMATORS[name].run({ ...batch, ...zero, [column]: unit }, options).advantages[row],
  };
}

// Terms [weight, symbol, number] as symbols and as numbers.
function sumOf(terms, constant) {
  let symbols = "",
    numbers = "";
  for (const [weight, symbol, number] of terms) {
    const sign = weight < 0 ? "-" : "+";
    const lead = symbols ? ` ${sign} ` : sign.replace("+", "");
    const one = Math.abs(Math.abs(weight) - 1) < 1e-12;
    const scale = one ? "" : `${plain(Math.abs(weight))} * `;
    symbols += lead + scale + symbol;
    numbers += lead + scale + (lead || scale ? factor(number) : plain(number));
  }
  return terms.length ? [symbols, numbers] : [plain(constant), plain(constant)];
}

// One line where every token has the same.
function sameEverywhere(lines) {
  const tails = new Set(lines.map(line => line.slice(line.indexOf(" = ") + 3)));
  if (lines.length < 2 || tails.size > 1) return lines;
  return [`A_t = ${[...tails][0]}, the same at every token`];
}

// A = (R - mean_g R) / s, with s of the group.
function writeScaled(name, batch, row, options, raw) {
  const x = batch[ESTIMATORS[name].reads[0]],
    at = actions(batch.response_mask[row]);
  if (!at.length) return [];
  const { mean, std } = groupsOf(x, batch.group_ids)[row],
    a = raw[at[0]];
  const rewards = sameGroup(batch, row)
    .map(i => plain(x[i]))
    .join(", ");
  const facts = `rewards of the group: ${rewards}; mean ${plain(mean)}, std ${plain(std)}`;
  if (a === 0 || x[row] === mean) return [facts, ...at.map(t => `A_${t} = ${plain(raw[t])}`)];
  const scale = (x[row] - mean) / a,
    near = Math.abs(scale - std) <= 1e-3 * std;
  const line = equation("A_t", "({here} - {mean}) / {scale}", a, {
    here: [`R_${row}`, x[row]],
    mean: ["mean_g", mean],
    scale: [near ? "std_g" : plain(scale), scale],
  });
  return [facts, `${line}, the same at every token`];
}
