// The third view: one prompt's group of responses, and what four estimators make of its rewards.

const GROUPWISE = Object.keys(ESTIMATORS).filter(isGroupwise);

function groupBatch(scores) {
  return {
    response_mask: scores.map(() => [1]),
    group_ids: scores.map(() => 0),
    sequence_rewards: scores,
    sequence_scores: scores,
  };
}

function computeGroups(scores = state.scores) {
  const batch = groupBatch(scores);
  const advantages = Object.fromEntries(
    GROUPWISE.map(name => [
      name,
      ESTIMATORS[name].run(batch, optionsOf("estimator", name)).advantages.map(row => row[0]),
    ]),
  );
  return { batch, advantages };
}

const groupParts = { numbers: [] };

function groupsArithmetic() {
  return Object.fromEntries(
    GROUPWISE.map(name => [
      name,
      () => {
        const { batch, advantages } = computeGroups(),
          options = optionsOf("estimator", name);
        const lines = state.scores.flatMap((_, i) =>
          deriveAdvantages(name, batch, i, options)
            .filter(line => line.startsWith("A_"))
            .map(line =>
              line.replace(/^A_\w+/, `A(${i})`).replace(", the same at every token", ""),
            ),
        );
        const facts = deriveAdvantages(name, batch, 0, options).filter(
          line => !line.startsWith("A_"),
        );
        return {
          title: `advantages by ${name}`,
          formula: data.estimators[name].summary,
          lines: [...facts, ...lines],
          mark: i => `A(${i}) = `,
          advantages,
        };
      },
    ]),
  );
}

function buildGroups(body) {
  groupParts.numbers = [];
  const rows = state.scores.map((score, i) => {
    const field = cellField({
      id: `scores-${i}`,
      label: `reward of response ${i}`,
      value: score,
      set: x => {
        state.scores[i] = x;
      },
    });
    const flip = h(
      "button",
      {
        type: "button",
        id: `flip-${i}`,
        "aria-label": `flip the reward of response ${i}`,
        click: () => {
          state.scores[i] = state.scores[i] > 0 ? 0 : 1;
          field.value = state.scores[i];
          update();
        },
      },
      "flip",
    );
    return [
      `${i}`,
      field,
      flip,
      ...GROUPWISE.map(name => {
        const button = opener(name, i, `advantage of response ${i} by ${name}`);
        groupParts.numbers.push([button, m => m.advantages[name][i]]);
        return button;
      }),
    ];
  });
  const grow = by => () => {
    const n = state.scores.length + by;
    if (n < 2 || n > MOST.scores) return;
    state.scores = Array.from({ length: n }, (_, i) => state.scores[i] ?? 0);
    rebuild();
  };
  body.replaceChildren(
    h("div", { id: "pushes", class: "chart" }),
    h("p", { id: "told", role: "status" }),
    h("h2", {}, "One prompt's responses"),
    table("responses, rewards and advantages", ["response", "reward", "", ...GROUPWISE], rows),
    h(
      "p",
      {},
      h("button", { type: "button", id: "longer", click: grow(1) }, "add a response"),
      " ",
      h("button", { type: "button", id: "shorter", click: grow(-1) }, "remove a response"),
    ),
    h("h2", {}, "How strongly a prompt affects the update"),
    h("div", { id: "pulls", class: "chart" }),
    h(
      "p",
      { class: "muted" },
      "The advantage of a correct response minus that of a wrong one in a group of this size, by the number of " +
        "correct ones.",
    ),
  );
}

// The lead of a right over a wrong response where k of n are right.
function leads(n) {
  const at = k => computeGroups(Array.from({ length: n }, (_, i) => (i < k ? 1 : 0))).advantages;
  const found = Array.from({ length: n - 1 }, (_, i) => [i + 1, at(i + 1)]);
  return name => found.map(([k, a]) => [k, a[name][0] - a[name].at(-1)]);
}

function updateGroups() {
  const m = computeGroups(),
    n = state.scores.length,
    binary = state.scores.every(x => x === 0 || x === 1);
  for (const [button, of] of groupParts.numbers) setNumber(button, of(m));
  const kinds = GROUPWISE.map((_, i) => `c${i}`),
    marks = ["\u25a8", "\u25ae", "\u25a7", "\u25a4"];
  bars(
    by("pushes"),
    "advantages of each response as bars; the table below has the numbers",
    GROUPWISE.map((name, i) => ({ kind: kinds[i], values: m.advantages[name] })),
    {
      xText: state.scores.map((x, i) => [i, `${i}: ${short(x)}`]),
      title: keyOf(GROUPWISE.map((name, i) => [kinds[i], marks[i], name])),
    },
  );
  const right = sum(state.scores),
    lead = leads(n);
  const flat = groupsOf(
    state.scores,
    state.scores.map(() => 0),
  )[0].flat;
  by("told").textContent = flat
    ? "All rewards are equal, so this group has no learning signal."
    : binary
      ? `${right} of ${n} responses are correct; the mean reward is ${short(right / n)}.`
      : `The mean reward is ${short(right / n)}.`;
  curves(
    by("pulls"),
    "advantage of a correct response minus that of a wrong one, by the number of correct responses",
    GROUPWISE.map((name, i) => ({ kind: kinds[i], points: lead(name) })),
    {
      xs: [1, Math.max(2, n - 1)],
      xText: Array.from({ length: n - 1 }, (_, i) => [i + 1, `${i + 1}`]),
      now: binary && !flat ? right : undefined,
      title: keyOf(GROUPWISE.map((name, i) => [kinds[i], "\u2014", name])),
    },
  );
}
