// What the reader chose, and its form in the address: #case=truncated&lam=0.5&rewards=0,0,1
// holds what differs from the case's start.

const START = {
  view: "response",
  case: "three",
  estimator: "gae",
  loss: "ppo_clip",
  kl: "k1",
  coef: 0,
  place: "reward",
  whiten: 0,
  show: "",
  end: 0,
  rewards: [0, 0, 1],
  values: [0.3, 0.4, 0.6],
  mask: [1, 1, 1],
  turns: [0, 0, 0],
  old: [-1, -1, -1],
  now: [-0.9, -1, -0.7],
  ref: [-1.5, -1.5, -1.5],
  peers: [1, 0, 0],
  task: "outcome",
  p: 0.6,
  critic: "errors",
  size: 0.2,
  group: 4,
  scores: [1, 0, 0, 0, 0, 0, 0, 0],
};
// Starting points of the response; what each leaves out is as at the start.
const SIX = {
  values: [0.85, 0.88, 0.9, 0.93, 0.96, 0.99],
  old: [-1, -1, -1, -1, -1, -1],
  now: [-0.9, -1, -0.7, -1.3, -1, -0.95],
  ref: [-1.5, -1.5, -1.5, -1.5, -1.5, -1.5],
};
const CASES = {
  three: ["three tokens", {}],
  recompute: [
    "six tokens",
    { ...SIX, rewards: [-0.01, -0.01, -0.01, -0.01, -0.01, 0.99] },
  ],
  untrained: ["an untrained critic", { values: [0, 0, 0] }],
  truncated: ["a truncated response", { rewards: [0, 0, 0], end: 0.7 }],
  turns: [
    "two turns of a conversation",
    {
      rewards: [0, 0, 0.2, 0, 0, 0, 1],
      values: [0.4, 0.5, 0.5, 0, 0, 0.6, 0.8],
      mask: [1, 1, 1, 0, 0, 1, 1],
      turns: [0, 0, 0, 0, 0, 1, 1],
      estimator: "turn_gae",
    },
  ],
  right: [
    "one right answer of four",
    { peers: [0, 0, 0], estimator: "grpo" },
  ],
  penalty: ["a KL penalty", { ...SIX, rewards: [0, 0, 0, 0, 0, 1], coef: 0.02 }],
};

const PER_TOKEN = { rewards: 0, values: 0, mask: 1, turns: 0, old: -1, now: -1, ref: -1 };
const MOST = { tokens: 16, peers: 15, scores: 16 }; // how long a list may be
const WORDS = {
  view: ["response", "world", "groups"],
  case: Object.keys(CASES),
  estimator: Object.keys(ESTIMATORS),
  loss: Object.keys(LOSSES),
  kl: Object.keys(KL_PENALTIES),
  place: ["reward", "loss"],
  task: Object.keys(TASKS),
  critic: ["exact", "zero", "errors"],
};
const LIMITS = {
  coef: [0, 1],
  whiten: [0, 1],
  end: [-100, 100],
  p: [0.05, 0.95],
  size: [0, 1],
  group: [2, 6],
};

let state = structuredClone(START);
let chosen = {}; // options that the reader set, by name; the others have the zoo's defaults

const infoOf = {
  estimator: name => data.estimators[name],
  loss: name => data.policy_losses[name],
  kl: name => data.kl_penalties[name],
};

// All options of the chosen estimator or loss.
function optionsOf(kind, name = state[kind]) {
  return Object.fromEntries(
    Object.entries(infoOf[kind](name).options).map(([key, option]) => [
      key,
      chosen[key] ?? option.default,
    ]),
  );
}
const isOption = name =>
  [data.estimators, data.policy_losses].some(kind =>
    Object.values(kind).some(component => Object.hasOwn(component.options, name)),
  );

// Every column of tokens as long as the rewards.
function aligned(found) {
  const n = Math.max(1, Math.min(found.rewards.length, MOST.tokens));
  for (const [name, empty] of Object.entries(PER_TOKEN)) {
    found[name] = Array.from({ length: n }, (_, t) => found[name][t] ?? empty);
  }
  return found;
}

// What a case begins with.
function startOf(name) {
  const changes = structuredClone(CASES[name][1]);
  const short = changes.rewards && changes.rewards.length !== START.rewards.length;
  const none = short ? { old: [], now: [], ref: [] } : {};
  return aligned({ ...structuredClone(START), ...none, ...changes, case: name });
}

function readLink(text) {
  const given = new URLSearchParams(text.replace(/^#/, "")),
    wanted = given.get("case"),
    found = startOf(WORDS.case.includes(wanted) ? wanted : START.case),
    options = {};
  for (const [name, value] of given) {
    if (!Object.hasOwn(START, name) && !isOption(name)) continue;
    const number = value.trim() === "" ? NaN : Number(value);
    if (name in WORDS) {
      if (WORDS[name].includes(value)) found[name] = value;
    } else if (name in LIMITS) {
      if (Number.isFinite(number)) found[name] = clamp(number, ...LIMITS[name]);
    } else if (Array.isArray(START[name])) {
      const list = value === "" ? [] : value.split(",").map(Number);
      if (list.every(Number.isFinite)) found[name] = list.slice(0, MOST[name] || MOST.tokens);
    } else if (name === "show") {
      if (/^[a-z0-9_.-]{0,40}$/.test(value)) found.show = value;
    } else if (Number.isFinite(number)) options[name] = number;
  }
  if (found.scores.length < 2) found.scores = START.scores;
  found.group = Math.round(found.group);
  state = aligned(found);
  chosen = options;
}

function linkOf() {
  const given = { ...state, ...chosen },
    start = { ...startOf(state.case), case: START.case },
    parts = [];
  for (const [name, value] of Object.entries(given)) {
    const text = String(value);
    if (name in START && text === String(start[name])) continue;
    parts.push(`${name}=${encodeURIComponent(text).replaceAll("%2C", ",")}`);
  }
  return `#${parts.join("&")}`;
}

// The address follows a moment after the last change: browsers limit how often it may.
let later = 0;
function keepLink() {
  clearTimeout(later);
  later = setTimeout(() => history.replaceState(null, "", linkOf()), 150);
}
