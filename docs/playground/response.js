// The first view: one response, token by token.

// ---------------------------------------------------------------- controls

function responseControls() {
  return [
    h(
      "fieldset",
      { class: "row" },
      h("legend", {}, "Advantages"),
      choice({
        id: "case",
        label: "Start from",
        value: state.case,
        words: Object.entries(CASES).map(([name, [text]]) => [name, text]),
        set: startFrom,
      }),
      choice({
        id: "estimator",
        label: "Estimator",
        value: state.estimator,
        set: switchTo("estimator"),
        words: WORDS.estimator.map(x => [x, x]),
      }),
      optionSliders("estimator", ["eps"]),
      isGroupwise(state.estimator) && peersField(),
      !isGroupwise(state.estimator) &&
        check({
          id: "whiten",
          label: "whiten",
          value: state.whiten === 1,
          set: on => {
            state.whiten = on ? 1 : 0;
          },
        }),
    ),
  ];
}

// Below the charts: what changes the rewards and the loss.
function responseMore() {
  const set = name => value => {
    state[name] = value;
  };
  return [
    h(
      "fieldset",
      {},
      h("legend", {}, "KL penalty"),
      choice({
        id: "kl",
        label: "Penalty",
        value: state.kl,
        set: set("kl"),
        words: WORDS.kl.map(x => [x, x]),
      }),
      slider({
        id: "coef",
        label: "KL coefficient",
        value: state.coef,
        low: 0,
        high: 0.2,
        step: 0.005,
        least: 0,
        most: 1,
        set: set("coef"),
      }),
      choice({
        id: "place",
        label: "It enters",
        value: state.place,
        set: set("place"),
        words: [
          ["reward", "the reward (PPO)"],
          ["loss", "the loss (GRPO)"],
        ],
      }),
    ),
    h(
      "fieldset",
      {},
      h("legend", {}, "Policy loss"),
      choice({
        id: "loss",
        label: "Loss",
        value: state.loss,
        set: switchTo("loss"),
        words: WORDS.loss.map(x => [x, x]),
      }),
      optionSliders("loss", ["gamma", "lam", "eps"]),
    ),
  ];
}

// Another component begins with its own options, except for gamma and lambda.
function switchTo(kind) {
  return name => {
    for (const option of Object.keys(infoOf[kind](state[kind]).options)) {
      if (!["gamma", "lam"].includes(option)) delete chosen[option];
    }
    state[kind] = name;
  };
}

function startFrom(name) {
  const { view, loss, kl, estimator } = state;
  const kept = { view, loss, kl, show: VIEWS.response.first };
  const own = CASES[name][1].estimator || estimator;
  state = { ...startOf(name), ...kept, estimator: own };
  shapes = {};
}

// The rewards of the other responses of the group, as a list of numbers.
function peersField() {
  const field = h("input", {
    type: "text",
    id: "peers",
    value: state.peers.join(", "),
    input: () => {
      const list = field.value.split(",").map(x => x.trim());
      const numbers = list.filter(x => x !== "").map(Number);
      if (!numbers.every(Number.isFinite) || numbers.length > MOST.peers) return;
      state.peers = numbers;
      update();
    },
  });
  return h(
    "div",
    { class: "control" },
    h("label", { for: "peers" }, "Rewards of the other responses in its group"),
    field,
  );
}

// ---------------------------------------------------------------- tables

const responseParts = { numbers: [] }; // [button, (m, t) -> number] of what is drawn

function computed(column, t, what, of) {
  const button = opener(column, t, `${what} of token ${t}`);
  responseParts.numbers.push([button, of, t]);
  return button;
}

function tokenField(name, t, what) {
  return cellField({
    id: `${name}-${t}`,
    label: `${what} of token ${t}`,
    value: state[name][t],
    set: x => {
      state[name][t] = x;
    },
  });
}

function maskBox(t) {
  const box = h("input", {
    type: "checkbox",
    id: `mask-${t}`,
    "aria-label": `token ${t} was chosen by the policy`,
    change: () => {
      state.mask[t] = box.checked ? 1 : 0;
      update();
    },
  });
  box.checked = state.mask[t] === 1;
  return box;
}

function creditTable(m) {
  const critic = ESTIMATORS[state.estimator].reads.includes("values");
  const extra = [
    m.inReward && ["KL", t => computed("kl", t, "KL", (x, i) => x.kl[i])],
    m.inReward && [
      "reward - KL",
      t => computed("reward", t, "reward minus KL", (x, i) => x.rewards[i]),
    ],
    ["delta", t => computed("delta", t, "TD error", (x, i) => x.delta[i])],
    ["advantage", t => computed("advantage", t, "advantage", (x, i) => x.raw[i])],
    isWhitened() && [
      "whitened",
      t => computed("white", t, "whitened advantage", (x, i) => x.white.whitened[i]),
    ],
    critic && ["return", t => computed("return", t, "return", (x, i) => x.returns[i])],
  ].filter(Boolean);
  const rows = state.rewards.map((_, t) => [
    `${t}`,
    maskBox(t),
    tokenField("turns", t, "turn"),
    tokenField("rewards", t, "reward"),
    tokenField("values", t, "value"),
    ...extra.map(([, cell]) => (state.mask[t] ? cell(t) : "")),
  ]);
  const end = cellField({
    id: "end",
    label: "value after the last token",
    value: state.end,
    set: x => {
      state.end = x;
    },
  });
  rows.push(["end", "", "", "", end, ...extra.map(() => "")]);
  return table(
    "rewards, values and advantages",
    ["token", "own", "turn", m.inReward ? "score" : "reward", "value", ...extra.map(x => x[0])],
    rows,
  );
}

function lossTable(m) {
  const rows = state.rewards.map((_, t) => {
    const cells = state.mask[t]
      ? [
          computed("ratio", t, "ratio", (x, i) => x.ratio[i]),
          computed("loss", t, "loss", (x, i) => x.loss[i]),
          ...(m.clipped
            ? [
                computed("loss", `${t}.clipped`, "clipped", (x, i) =>
                  x.clipped[i] ? "clipped" : "no",
                ),
              ]
            : []),
        ]
      : ["", "", ...(m.clipped ? [""] : [])];
    return [
      `${t}`,
      tokenField("old", t, "log-prob at rollout"),
      tokenField("now", t, "log-prob now"),
      tokenField("ref", t, "log-prob of the reference"),
      ...cells,
    ];
  });
  return table(
    "log-probs, ratios and losses",
    ["token", "log-prob old", "now", "reference", "ratio", "loss", ...(m.clipped ? ["clip"] : [])],
    rows,
  );
}

function lengthButtons() {
  const grow = by => () => {
    const n = state.rewards.length + by;
    if (n < 1 || n > MOST.tokens) return;
    for (const [name, empty] of Object.entries(PER_TOKEN)) {
      state[name] = Array.from({ length: n }, (_, t) => state[name][t] ?? empty);
    }
    rebuild();
  };
  return h(
    "p",
    {},
    h("button", { type: "button", id: "longer", click: grow(1) }, "add a token"),
    " ",
    h("button", { type: "button", id: "shorter", click: grow(-1) }, "remove a token"),
  );
}

// ---------------------------------------------------------------- the view

function buildResponse(body) {
  const m = computeResponse();
  responseParts.numbers = [];
  body.replaceChildren(
    h("div", { id: "inputs", class: "chart" }),
    h("div", { id: "outputs", class: "chart" }),
  );
  by("rest").replaceChildren(
    h("h2", {}, "Credit"),
    creditTable(m),
    lengthButtons(),
    h("h2", {}, "Loss"),
    lossTable(m),
    h(
      "p",
      {},
      "Mean loss over the tokens: ",
      opener("loss", "mean", "mean loss"),
      " ",
      h("span", { id: "share" }),
    ),
    h("h2", {}, "The same command in a terminal"),
    h("pre", { id: "command", tabindex: 0, "aria-label": "command" }),
  );
}

// Rewards and values, to be dragged.
function drawInputs(place) {
  const n = state.rewards.length,
    y = spanOf([...state.rewards, ...state.values, state.end], [0, 1]);
  const { svg, at } = frame(
    place,
    "rewards and values; drag a point, or move it with the arrow keys",
    {
      xs: [-0.5, n + 0.5],
      y,
      xText: [...state.rewards.map((_, t) => [t, `${t}`]), [n, "end"]],
      title: [
        ...keyOf([
          ["c0", "\u25cf", "value"],
          ["c1", "\u25a0", state.coef && state.place === "reward" ? "score" : "reward"],
        ]),
        "drag them, or use the arrow keys",
      ],
    },
  );
  const bound = name => t => x => {
    if (name === "end") state.end = x;
    else state[name][t] = x;
    by(name === "end" ? "end" : `${name}-${t}`).value = x;
  };
  for (let t = 0; t < n; t++) {
    if (!state.mask[t]) continue;
    svg.append(
      handle(at, square, {
        id: `drag-rewards-${t}`,
        x: t - 0.12,
        value: state.rewards[t],
        kind: "c1",
        label: `reward of token ${t}`,
        set: bound("rewards")(t),
      }),
      handle(at, circle, {
        id: `drag-values-${t}`,
        x: t + 0.12,
        value: state.values[t],
        kind: "c0",
        label: `value before token ${t}`,
        set: bound("values")(t),
      }),
    );
  }
  svg.append(
    handle(at, circle, {
      id: "drag-end",
      x: n,
      value: state.end,
      kind: "c0",
      label: "value after the last token",
      set: bound("end")(),
    }),
  );
}

function updateResponse() {
  const m = computeResponse(),
    held = document.activeElement;
  if (!held || !held.classList.contains("handle")) drawInputs(by("inputs"));
  for (const [button, of, t] of responseParts.numbers)
    setNumber(button, of(m, Number.parseInt(t, 10)));
  const shown = x => x.map((v, t) => (state.mask[t] ? v : null));
  bars(
    by("outputs"),
    "TD errors and advantages as bars; the table below has the numbers",
    [
      { kind: "c2", values: shown(m.delta) },
      { kind: "c3", values: shown(m.advantages) },
    ],
    {
      xText: state.rewards.map((_, t) => [t, `${t}`]),
      room: 0.5, // each bar is below its token
      title: keyOf([
        ["c2", "\u25a8", "delta, the TD error"],
        ["c3", "\u25ae", isWhitened() ? "whitened advantage" : `advantage by ${state.estimator}`],
      ]),
    },
  );
  setNumber(by("number-loss.mean"), m.mean);
  const share = sum(m.added) / Math.max(1, actions(state.mask).length);
  by("share").textContent = m.inLoss ? `of which the KL penalty is ${short(share)}` : "";
  by("command").textContent = commandOf();
}
