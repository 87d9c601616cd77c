// The second view: a world of three tokens, where what is true is known.

const JUDGED = Object.keys(ESTIMATORS).filter(name => name !== "turn_gae");
const CHOICE = ["wrong", "right"];
const nameOf = x =>
  x
    ? prefixOf(x)
        .map(a => CHOICE[a])
        .join(" ")
    : "(start)";

function computeWorld() {
  const gamma = chosen.gamma ?? 1;
  const world = makeWorld(state.task, state.p, gamma, state.critic, state.size);
  const optionsFor = (name, lam) => ({
    ...optionsOf("estimator", name),
    ...(lam === undefined ? {} : { lam }),
  });
  const judged = Object.fromEntries(
    JUDGED.map(name => [name, judge(name, world, optionsFor(name), state.group)]),
  );
  return { world, judged, optionsFor, gamma };
}

// What GAE gives at each lambda: the squared bias that counts, and the variance.
function alongLambda({ world, optionsFor }, lam) {
  const grid = [...new Set([...Array.from({ length: 21 }, (_, i) => i / 20), lam])].sort(
    (a, b) => a - b,
  );
  const found = grid.map(x => [x, judge("gae", world, optionsFor("gae", x), 2)]);
  return {
    bias: found.map(([x, r]) => [x, r.b_perp2]),
    variance: found.map(([x, r]) => [x, r.variance]),
  };
}

const worldParts = { numbers: [] };

function worldNumber(column, place, what, of) {
  const button = opener(column, place, what);
  worldParts.numbers.push([button, of]);
  return button;
}

// Each number of the view by its column: {title, formula, lines, mark}; `where` is the number's
// place: a state, a state with a choice, or an estimator.
function worldArithmetic() {
  const of = (title, formula, lines, mark) => where => ({
    title,
    formula,
    lines: lines(computeWorld(), where),
    mark: mark || (x => `${x} = `),
  });
  const called = symbol => where => `${symbol}(${where}) = `;
  const shown = JUDGED.includes(state.estimator) ? state.estimator : "gae";
  const weighted = (title, term, power) =>
    of(
      title,
      WEIGHTED[term][0],
      ({ judged }, name) => weightedLines(judged[name], WEIGHTED[term][1], power, title),
      () => title,
    );
  return {
    visits: of("visited", "how often a response passes through the state", visitLines, called("d")),
    v: of("exact value", "V(s) = sum over the choices of pi(a|s) Q(s, a)", valueLines, called("V")),
    critic: of(
      "the critic's value",
      "what the estimators use instead of V",
      criticLines,
      called("critic"),
    ),
    a: of(
      "exact advantage",
      "A(s, a) = Q(s, a) - V(s), with Q(s, a) = r + gamma V(next)",
      advantageLines,
      called("A"),
    ),
    mean: of(
      `expected estimate of ${shown}`,
      "the mean of A^ over all responses that pass through this state, weighted by " + "their probabilities",
      m => meanLines(m, shown),
      called("E"),
    ),
    b_perp2: weighted("b_perp\u00b2", "perp", "\u00b2"),
    bias2: weighted("bias\u00b2", "bias", "\u00b2"),
    variance: weighted("variance", "spread", ""),
    relative_variance: of(
      "variance / scale\u00b2",
      "scale: the length of the expected gradient along " + "the true one",
      relativeLines,
      () => "variance /",
    ),
    cosine: of(
      "cosine",
      "of the expected gradient g with the true one g*",
      cosineLines,
      () => "cosine",
    ),
  };
}

const WEIGHTED = {
  perp: [
    "the bias E[A^] - A minus its mean in each state, because a baseline does not change the gradient: the mean of " +
      "its square over tokens, weighted by visits",
    "perp",
  ],
  bias: ["the mean of (E[A^] - A)\u00b2 over tokens, weighted by visits", "bias"],
  spread: ["the variance of A^ for each choice, averaged over tokens, weighted by visits", "spread"],
};

// The weighted sum of a column of the report over all choices.
function weightedLines(report, column, power, title) {
  const value = { perp: report.b_perp2, bias: report.bias2, spread: report.variance }[column];
  const terms = eachChoice(
    (x, a) =>
      `${short(report.weight[x][a])} * ` +
      `${factor(Number(short(report[column][x][a])))}${power}   ${CHOICE[a]} after ${nameOf(x)}`,
  );
  return [...terms.flat(), `${title} = the sum = ${plain(value)}`];
}

function relativeLines({ judged }, name) {
  const { gs, ss, scale, variance, relative_variance } = judged[name];
  return [
    equation("scale", "{gs} / {ss}", scale, { gs: ["(g . g*)", gs], ss: ["(g* . g*)", ss] }),
    relative_variance === null
      ? "variance / scale\u00b2: the scale is 0"
      : equation("variance / scale\u00b2", "{v} / {k}\u00b2", relative_variance, {
          v: ["variance", variance],
          k: ["scale", scale],
        }),
  ];
}

function cosineLines({ judged }, name) {
  const { gs, gg, ss, cosine } = judged[name];
  return [
    equation("cosine", "{gs} / sqrt({gg} * {ss})", cosine, {
      gs: ["(g . g*)", gs],
      gg: ["(g . g)", gg],
      ss: ["(g* . g*)", ss],
    }),
  ];
}

function visitLines({ world: { pi, truth } }) {
  return eachState(x => {
    if (x === 0) return "d(0) = 1   every response starts here";
    const above = (x - 1) >> 1,
      a = (x - 1) % 2;
    const p = { d: [`d(${above})`, truth.visits[above]], p: [`pi(${CHOICE[a]})`, pi[above][a]] };
    return `${equation(`d(${x})`, "{d} * {p}", truth.visits[x], p)}   ${nameOf(x)}`;
  });
}

function criticLines({ world: { truth, values } }) {
  return eachState(x => {
    const v = ["V", truth.v[x]],
      name = `critic(${x})`;
    const text =
      { exact: equation(name, "{v}", values[x], { v }), zero: `${name} = 0` }[state.critic] ||
      equation(name, "{v} + {size} * {error}", values[x], {
        v,
        size: ["size", state.size],
        error: ["error", ERRORS[x]],
      });
    return `${text}   ${nameOf(x)}`;
  });
}

const place = (x, a) => `${x}${a ? "r" : "w"}`;

function valueLines({ world: { pi, truth } }) {
  return eachState(
    x =>
      equation(`V(${x})`, "{p} * {qr} + {w} * {qw}", truth.v[x], {
        p: ["pi(right)", pi[x][1]],
        qr: ["Q(right)", truth.q[x][1]],
        w: ["pi(wrong)", pi[x][0]],
        qw: ["Q(wrong)", truth.q[x][0]],
      }) + `   ${nameOf(x)}`,
  );
}

function advantageLines({ world: { rewards, truth, gamma } }) {
  return eachChoice((x, a) => {
    const next = childOf(x, a),
      v = ["V", truth.v[x]],
      r = ["r", rewards[x][a]];
    const text =
      next < 0
        ? equation(`A(${place(x, a)})`, "{r} - {v}", truth.advantages[x][a], { r, v })
        : equation(`A(${place(x, a)})`, "{r} + {g} * {after} - {v}", truth.advantages[x][a], {
            r,
            g: ["gamma", gamma],
            after: ["V(next)", truth.v[next]],
            v,
          });
    return `${text}   ${CHOICE[a]} after ${nameOf(x)}`;
  }).flat();
}

function meanLines({ world, optionsFor }, name) {
  const all = estimatesOf(name, world.all, optionsFor(name), state.group),
    lines = [];
  for (let x = 0; x < STATES; x++) {
    for (let a = 0; a < CHOICES; a++) {
      const here = world.all.rows.flatMap((row, i) => {
        const t = row.states.indexOf(x);
        return t >= 0 && row.choices[t] === a
          ? [[row.probability, sum(all[i].map(e => e.weight * e.a[t]))]]
          : [];
      });
      const total = sum(here.map(([p]) => p));
      const text = here.map(
        ([p, m]) =>
          `${factor(Number((p / total).toPrecision(4)))} * ${factor(Number(m.toPrecision(4)))}`,
      );
      lines.push(
        `E(${place(x, a)}) = ${text.join(" + ")} = ` +
          `${plain(sum(here.map(([p, m]) => (p / total) * m)))}   ${CHOICE[a]} after ${nameOf(x)}`,
      );
    }
  }
  return lines;
}

// ---------------------------------------------------------------- the view

function worldControls() {
  const set = name => value => {
    state[name] = value;
  };
  const option = (name, label, low) =>
    slider({
      id: `option-${name}`,
      label,
      value: chosen[name] ?? optionsOf("estimator", "gae")[name],
      low,
      high: 1,
      step: 0.01,
      least: low,
      most: 1,
      set: x => {
        chosen[name] = x;
      },
    });
  return [
    h(
      "fieldset",
      {},
      h("legend", {}, "World"),
      choice({
        id: "task",
        label: "Reward",
        value: state.task,
        set: set("task"),
        words: [
          ["outcome", "1 at the end if all three are correct"],
          ["dense", "1/3 for each correct token"],
          ["first", "1 at the end if the first is correct"],
        ],
      }),
      slider({
        id: "p",
        label: "probability of the correct token",
        value: state.p,
        low: 0.05,
        high: 0.95,
        step: 0.05,
        least: 0.05,
        most: 0.95,
        set: set("p"),
      }),
      option("gamma", "gamma", 0),
    ),
    h(
      "fieldset",
      {},
      h("legend", {}, "Critic"),
      choice({
        id: "critic",
        label: "Its values",
        value: state.critic,
        set: set("critic"),
        words: [
          ["exact", "exact"],
          ["errors", "with errors"],
          ["zero", "0 everywhere (untrained)"],
        ],
      }),
      slider({
        id: "size",
        label: "size of its errors",
        value: state.size,
        low: 0,
        high: 1,
        step: 0.02,
        least: 0,
        most: 1,
        set: set("size"),
      }),
    ),
    h(
      "fieldset",
      {},
      h("legend", {}, "Estimators"),
      option("lam", "lambda of gae", 0),
      slider({
        id: "group",
        label: "responses in a group",
        value: state.group,
        low: 2,
        high: 6,
        step: 1,
        least: 2,
        most: 6,
        set: x => {
          state.group = Math.round(x);
        },
      }),
      choice({
        id: "estimator",
        label: "Estimates shown below",
        set: switchTo("estimator"),
        value: JUDGED.includes(state.estimator) ? state.estimator : "gae",
        words: JUDGED.map(x => [x, x]),
      }),
    ),
  ];
}

function buildWorld(body) {
  worldParts.numbers = [];
  const estimator = JUDGED.includes(state.estimator) ? state.estimator : "gae";
  const judgedRows = JUDGED.map(name => {
    const told = h("span", {});
    worldParts.numbers.push([
      told,
      x => {
        const options = x.optionsFor(name),
          shown = ["lam", "n"].filter(o => o in options);
        return [name, ...shown.map(o => `${o}=${plain(options[o])}`)].join(" ");
      },
    ]);
    return [
      told,
      ...["b_perp2", "bias2", "variance", "relative_variance", "cosine"].map(key =>
        worldNumber(key, name, `${key} of ${name}`, x => x.judged[name][key]),
      ),
    ];
  });
  const stateRows = eachState(x => [
    nameOf(x),
    worldNumber("visits", x, `visits to ${nameOf(x)}`, m => m.world.truth.visits[x]),
    worldNumber("v", x, `exact value after ${nameOf(x)}`, m => m.world.truth.v[x]),
    worldNumber("critic", x, `the critic's value after ${nameOf(x)}`, m => m.world.values[x]),
    ...[1, 0].map(a =>
      worldNumber(
        "a",
        place(x, a),
        `advantage of ${CHOICE[a]} after ${nameOf(x)}`,
        m => m.world.truth.advantages[x][a],
      ),
    ),
    ...[1, 0].map(a =>
      worldNumber(
        "mean",
        place(x, a),
        `expected estimate for ${CHOICE[a]} after ${nameOf(x)}`,
        m => m.judged[estimator].mean[x][a],
      ),
    ),
  ]);
  body.replaceChildren(
    h("div", { id: "lambdas", class: "chart" }),
    h("h2", {}, "Bias and variance"),
    table(
      "bias and variance of each estimator",
      ["estimator", "b_perp\u00b2", "bias\u00b2", "variance", "variance / scale\u00b2", "cosine"],
      judgedRows,
    ),
    h(
      "p",
      { class: "muted" },
      "b_perp\u00b2 is the part of the bias that changes the gradient; the cosine is that of the " +
        "expected gradient with the true one.",
    ),
    h("h2", {}, "Every state"),
    table(
      `exact numbers and the mean estimate of ${estimator}`,
      [
        "tokens so far",
        "visited",
        "V exact",
        "V critic",
        "A right",
        "A wrong",
        `${estimator} right`,
        `${estimator} wrong`,
      ],
      stateRows,
    ),
  );
}

function updateWorld() {
  const m = computeWorld(),
    lam = optionsOf("estimator", "gae").lam;
  for (const [cell, of] of worldParts.numbers) {
    if (cell.tagName === "BUTTON") setNumber(cell, of(m));
    else cell.textContent = write(of(m));
  }
  const { bias, variance } = alongLambda(m, lam);
  curves(
    by("lambdas"),
    "squared bias and variance of gae against lambda; the table below has the numbers",
    [
      { kind: "c0", points: bias },
      { kind: "c1", points: variance },
    ],
    {
      xs: [0, 1],
      now: lam,
      xText: [0, 0.25, 0.5, 0.75, 1].map(x => [x, `${x}`]),
      title: [
        ...keyOf([
          ["c0", "\u2014", "b_perp\u00b2 of gae"],
          ["c1", "\u2011\u2011", "variance of gae"],
        ]),
        "against lambda",
      ],
    },
  );
}
