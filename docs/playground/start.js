// The views as tabs, the link, and the first drawing.

const VIEWS = {
  response: {
    title: "A response",
    controls: responseControls,
    more: responseMore,
    build: buildResponse,
    refresh: updateResponse,
    arithmetic: responseArithmetic,
    first: "advantage.0",
  },
  world: {
    title: "A small world",
    controls: worldControls,
    more: () => [],
    build: buildWorld,
    refresh: updateWorld,
    arithmetic: worldArithmetic,
    first: "a.0r",
  },
  groups: {
    title: "A group",
    controls: () => [],
    more: () => [],
    build: buildGroups,
    refresh: updateGroups,
    arithmetic: groupsArithmetic,
    first: "grpo.0",
  },
};

// The controls are built again where another component has other options, the tables where they
// have other cells: so no slider is taken from the hand.
let shapes = {};
function shapesOf() {
  const controls = [state.view, state.estimator, state.loss];
  const body = [
    ...controls,
    state.rewards.length,
    state.scores.length,
    state.mask,
    state.whiten,
    state.coef > 0,
    state.place,
  ];
  return { controls: JSON.stringify(controls), body: JSON.stringify(body) };
}

function rebuild() {
  shapes = {};
  update();
}

// Everything follows from the state.
function update() {
  const view = VIEWS[state.view],
    wanted = shapesOf(),
    { id, type } = document.activeElement || {};
  arithmetic = view.arithmetic();
  by("view").setAttribute("aria-labelledby", `tab-${state.view}`);
  by("try").hidden = state.view !== "response";
  if (shapes.controls !== wanted.controls) {
    by("controls").replaceChildren(...view.controls());
    by("more").replaceChildren(...view.more());
  }
  if (shapes.body !== wanted.body) {
    by("rest").replaceChildren();
    view.build(by("body"));
  }
  shapes = wanted;
  view.refresh();
  const again = id && by(id);
  if (again && document.activeElement !== again) {
    again.focus({ preventScroll: true });
    if (type === "text") again.setSelectionRange(again.value.length, again.value.length);
  }
  showArithmetic();
  by("link").href = linkOf();
  keepLink();
}

function openView(name, focus) {
  if (name !== state.view || !state.show) state.show = VIEWS[name].first;
  state.view = name;
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const on = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", on);
    tab.tabIndex = on ? 0 : -1;
    if (on && focus) tab.focus();
  }
  update();
}

function buildTabs() {
  const names = Object.keys(VIEWS);
  by("tabs").replaceChildren(
    ...names.map((name, i) =>
      h(
        "a",
        {
          role: "tab",
          id: `tab-${name}`,
          href: `#view=${name}`,
          "aria-controls": "view",
          click: event => {
            event.preventDefault();
            openView(name, true);
          },
          keydown: event => {
            const to = {
              ArrowRight: (i + 1) % names.length,
              ArrowLeft: (i + names.length - 1) % names.length,
              Home: 0,
              End: names.length - 1,
              " ": i,
            }[event.key];
            if (to === undefined) return;
            event.preventDefault();
            openView(names[to], true);
          },
        },
        VIEWS[name].title,
      ),
    ),
  );
}

function follow(link) {
  readLink(link);
  shapes = {};
  openView(state.view, false);
}

buildTabs();
for (const form of ["controls", "more"]) {
  by(form).addEventListener("submit", event => event.preventDefault());
}
by("try").open = innerWidth > 640;
by("again").addEventListener("click", () => follow(`#view=${state.view}`));
addEventListener("hashchange", () => follow(location.hash));
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) rebuild();
  width = innerWidth;
});
follow(location.hash);
