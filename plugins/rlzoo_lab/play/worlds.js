// The second view: a world of three tokens, where what is true is known.

const JUDGED = Object.keys(ESTIMATORS).filter(name => name !== "turn_gae");
const CHOICE = ["wrong", "right"];
const nameOf = x => (x ? prefixOf(x).map(a => CHOICE[a]).join(" ") : "(start)");

function computeWorld() {
  const gamma = chosen.gamma ?? 1;
  const world = makeWorld(state.task, state.p, gamma, state.critic, state.size);
  const optionsFor = (name, lam) => ({ ...optionsOf("estimator", name), ...(lam === undefined ? {} : { lam }) });
  const judged = Object.fromEntries(JUDGED.map(name => [name, judge(name, world, optionsFor(name), state.group)]));
  return { world, judged, optionsFor, gamma };
}

// What GAE gives at each lambda: the squared bias that counts, and the variance.
function alongLambda({ world, optionsFor }, lam) {
  const grid = [...new Set([...Array.from({ length: 21 }, (_, i) => i / 20), lam])].sort((a, b) => a - b);
  const found = grid.map(x => [x, judge("gae", world, optionsFor("gae", x), 2)]);
  return { bias: found.map(([x, r]) => [x, r.b_perp2]), variance: found.map(([x, r]) => [x, r.variance]) };
}

const worldParts = { numbers: [] };

function worldNumber(column, place, what, of) {
  const button = opener(column, place, what);
  worldParts.numbers.push([button, of]);
  return button;
}

function worldArithmetic() {
  const found = () => computeWorld();
  const column = (title, formula, lines, symbol) => () => ({ title, formula, lines: lines(found()),
                                                             mark: place => `${symbol}(${place})` });
  const estimator = JUDGED.includes(state.estimator) ? state.estimator : "gae";
  return {
    v: column("exact value", "V(s) = sum over the choices of pi(a|s) Q(s, a)", valueLines, "V"),
    a: column("exact advantage", "A(s, a) = Q(s, a) - V(s), with Q(s, a) = r + gamma V(next)", advantageLines, "A"),
    mean: column(`expected estimate of ${estimator}`, "the mean of A^ over all responses that pass here, by their probabilities",
                 x => meanLines(x, estimator), "E"),
    bias: column("bias", "b_perp\u00b2: the mean square of E[A^] - A, less its mean in each state: a baseline bends no gradient. It is the mean over tokens as visited",
                 x => biasLines(x, estimator), "b_perp\u00b2"),
  };
}

const place = (x, a) => `${x}${a ? "r" : "w"}`;

function valueLines({ world: { pi, truth } }) {
  return eachState(x => equation(`V(${x})`, "{p} * {qr} + {w} * {qw}", truth.v[x], {
    p: ["pi(right)", pi[x][1]], qr: ["Q(right)", truth.q[x][1]],
    w: ["pi(wrong)", pi[x][0]], qw: ["Q(wrong)", truth.q[x][0]] }) + `   ${nameOf(x)}`);
}

function advantageLines({ world: { rewards, truth, gamma } }) {
  return eachChoice((x, a) => {
    const next = childOf(x, a), v = ["V", truth.v[x]], r = ["r", rewards[x][a]];
    const text = next < 0
      ? equation(`A(${place(x, a)})`, "{r} - {v}", truth.advantages[x][a], { r, v })
      : equation(`A(${place(x, a)})`, "{r} + {g} * {after} - {v}", truth.advantages[x][a],
                 { r, g: ["gamma", gamma], after: ["V(next)", truth.v[next]], v });
    return `${text}   ${CHOICE[a]} after ${nameOf(x)}`;
  }).flat();
}

function meanLines({ world, optionsFor }, name) {
  const all = estimatesOf(name, world.all, optionsFor(name), state.group), lines = [];
  for (let x = 0; x < STATES; x++) {
    for (let a = 0; a < CHOICES; a++) {
      const here = world.all.rows.flatMap((row, i) => {
        const t = row.states.indexOf(x);
        return t >= 0 && row.choices[t] === a
          ? [[row.probability, sum(all[i].map(e => e.weight * e.a[t]))]] : [];
      });
      const total = sum(here.map(([p]) => p));
      const text = here.map(([p, m]) => `${factor(Number((p / total).toPrecision(4)))} * ${factor(Number(m.toPrecision(4)))}`);
      lines.push(`E(${place(x, a)}) = ${text.join(" + ")} = ${plain(sum(here.map(([p, m]) => p / total * m)))}   ${CHOICE[a]} after ${nameOf(x)}`);
    }
  }
  return lines;
}

function biasLines({ world, judged }, name) {
  const { mean, b_perp2 } = judged[name], { pi, truth } = world, tokens = sum(truth.visits);
  const lines = eachChoice((x, a) => {
    const bias = b => mean[x][b] - truth.advantages[x][b];
    const level = pi[x][0] * bias(0) + pi[x][1] * bias(1);
    const weight = truth.visits[x] * pi[x][a] / tokens;
    return `weight ${short(weight)} * (${short(bias(a))} - ${factor(Number(short(level)))})\u00b2   ${CHOICE[a]} after ${nameOf(x)}`;
  }).flat();
  return [...lines, `b_perp\u00b2(${name}) = ${plain(b_perp2)}`];
}

// ---------------------------------------------------------------- the view

function worldControls() {
  const set = name => value => { state[name] = value; };
  const option = (name, label, low) => slider({
    id: `option-${name}`, label, value: chosen[name] ?? optionsOf("estimator", "gae")[name], low, high: 1,
    step: 0.01, least: low, most: 1, set: x => { chosen[name] = x; } });
  return [
    h("fieldset", {}, h("legend", {}, "World"),
      choice({ id: "task", label: "Reward", value: state.task, set: set("task"), words: [
        ["outcome", "1 at the end if all three are right"], ["dense", "1/3 for each right token"],
        ["first", "1 at the end if the first is right"]] }),
      slider({ id: "p", label: "probability of the right token", value: state.p, low: 0.05, high: 0.95, step: 0.05,
               least: 0.05, most: 0.95, set: set("p") }),
      option("gamma", "gamma", 0)),
    h("fieldset", {}, h("legend", {}, "Critic"),
      choice({ id: "critic", label: "Its values", value: state.critic, set: set("critic"), words: [
        ["exact", "exact"], ["errors", "with errors"], ["zero", "0 everywhere (untrained)"]] }),
      slider({ id: "size", label: "size of its errors", value: state.size, low: 0, high: 1, step: 0.02,
               least: 0, most: 1, set: set("size") })),
    h("fieldset", {}, h("legend", {}, "Estimators"),
      option("lam", "lambda of gae", 0),
      slider({ id: "group", label: "responses in a group", value: state.group, low: 2, high: 6, step: 1,
               least: 2, most: 6, set: x => { state.group = Math.round(x); } }),
      choice({ id: "estimator", label: "Estimates shown below", set: switchTo("estimator"),
               value: JUDGED.includes(state.estimator) ? state.estimator : "gae", words: JUDGED.map(x => [x, x]) })),
  ];
}

function buildWorld(body) {
  worldParts.numbers = [];
  const estimator = JUDGED.includes(state.estimator) ? state.estimator : "gae";
  const judgedRows = JUDGED.map(name => {
    const told = h("span", {});
    worldParts.numbers.push([told, x => {
      const options = x.optionsFor(name), shown = ["lam", "n"].filter(o => o in options);
      return [name, ...shown.map(o => `${o}=${plain(options[o])}`)].join(" ");
    }]);
    return [told, ...["b_perp2", "bias2", "variance", "relative_variance", "cosine"].map(key => {
      if (key === "b_perp2" && name === estimator) {
        return worldNumber("bias", estimator, `squared bias of ${name}`, x => x.judged[name][key]);
      }
      const span = h("span", {});
      worldParts.numbers.push([span, x => x.judged[name][key]]);
      return span;
    })];
  });
  const stateRows = eachState(x => {
    const span = of => { const cell = h("span", {}); worldParts.numbers.push([cell, of]); return cell; };
    return [nameOf(x), span(m => m.world.truth.visits[x]),
            worldNumber("v", x, `exact value after ${nameOf(x)}`, m => m.world.truth.v[x]),
            span(m => m.world.values[x]),
            ...[1, 0].map(a => worldNumber("a", place(x, a), `advantage of ${CHOICE[a]} after ${nameOf(x)}`,
                                           m => m.world.truth.advantages[x][a])),
            ...[1, 0].map(a => worldNumber("mean", place(x, a), `expected estimate for ${CHOICE[a]} after ${nameOf(x)}`,
                                           m => m.judged[estimator].mean[x][a]))];
  });
  body.replaceChildren(
    h("div", { id: "lambdas", class: "chart" }),
    h("h2", {}, "Bias and variance"),
    table("bias and variance of each estimator",
          ["estimator", "b_perp\u00b2", "bias\u00b2", "variance", "variance / scale\u00b2", "cosine"], judgedRows),
    h("p", { class: "muted" }, "b_perp\u00b2 is the part of the bias that bends the gradient; the cosine is that of the expected gradient with the true one."),
    h("h2", {}, "Every state"),
    table(`exact numbers and what ${estimator} gives on average`,
          ["tokens so far", "visited", "V exact", "V critic", "A right", "A wrong", `${estimator} right`, `${estimator} wrong`],
          stateRows));
}

function updateWorld() {
  const m = computeWorld(), lam = optionsOf("estimator", "gae").lam;
  for (const [cell, of] of worldParts.numbers) {
    if (cell.tagName === "BUTTON") setNumber(cell, of(m)); else cell.textContent = write(of(m));
  }
  const { bias, variance } = alongLambda(m, lam);
  curves(by("lambdas"), "squared bias and variance of gae against lambda; the table below has the numbers",
         [{ kind: "c0", points: bias }, { kind: "c1", points: variance }],
         { xs: [0, 1], now: lam, xText: [0, 0.25, 0.5, 0.75, 1].map(x => [x, `${x}`]),
           title: [...keyOf([["c0", "\u2014", "b_perp\u00b2 of gae"], ["c1", "\u2011\u2011", "variance of gae"]]), "against lambda"] });
}
