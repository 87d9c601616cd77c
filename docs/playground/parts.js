// Controls, and numbers that open their arithmetic.

// Four significant digits, as arithmetic is written.
function short(x) {
  if (x === undefined || x === null || Number.isNaN(x)) return "";
  if (Math.abs(x) < 1e-12) return "0";
  return plain(Number(x.toPrecision(4)));
}

// ---------------------------------------------------------------- controls

// A slider and a field for one number; the field also takes what lies beyond the slider's ends.
function slider({ id, label, value, low, high, step, least = -Infinity, most = Infinity, set }) {
  const range = h("input", {
    type: "range",
    id,
    min: low,
    max: high,
    step,
    input: () => move(range.value, field),
  });
  const field = h("input", {
    type: "number",
    id: `${id}-number`,
    step: "any",
    "aria-label": `${label}, as a number`,
    input: () => move(field.value, range),
  });
  range.value = field.value = value;
  function move(text, other) {
    const x = Number(text);
    if (text === "" || !Number.isFinite(x) || x < least || x > most) return;
    other.value = x;
    set(x);
    update();
  }
  return h("div", { class: "control" }, h("label", { for: id }, label), range, field);
}

function choice({ id, label, words, value, set }) {
  const select = h(
    "select",
    {
      id,
      change: () => {
        set(select.value);
        update();
      },
    },
    words.map(([word, text]) => h("option", { value: word }, text)),
  );
  select.value = value;
  return h("div", { class: "control" }, h("label", { for: id }, label), select);
}

function check({ id, label, value, set }) {
  const box = h("input", {
    type: "checkbox",
    id,
    change: () => {
      set(box.checked);
      update();
    },
  });
  box.checked = value;
  return h("div", { class: "control check" }, box, h("label", { for: id }, label));
}

// Sliders for every option of the chosen component, in the range that the zoo declares.
function optionSliders(kind, except = []) {
  return Object.entries(infoOf[kind](state[kind]).options)
    .filter(([name]) => !except.includes(name))
    .map(([name, { default: usual, low, high, whole }]) => {
      const end = Math.min(high ?? Infinity, 5 * usual);
      const step = whole ? 1 : 10 ** Math.floor(Math.log10(end / 100) + 1e-9);
      return slider({
        id: `option-${name}`,
        label: name,
        value: chosen[name] ?? usual,
        low: low ?? 0,
        high: end,
        step,
        least: low ?? -Infinity,
        most: high ?? Infinity,
        set: x => {
          chosen[name] = whole ? Math.round(x) : x;
        },
      });
    });
}

// A field in a table.
function cellField({ id, label, value, set }) {
  const field = h("input", {
    type: "number",
    id,
    step: "any",
    value,
    "aria-label": label,
    input: () => {
      if (field.value === "" || !Number.isFinite(Number(field.value))) return;
      set(Number(field.value));
      update();
    },
  });
  return field;
}

// ---------------------------------------------------------------- numbers with their arithmetic

// column -> place -> {title, formula, lines, mark} of the open view; mark: what the place's line
// starts with.
let arithmetic = {};

// A number as a button that opens its arithmetic. place: which line of the column, "3" say.
function opener(column, place, what) {
  const key = place === undefined ? column : `${column}.${place}`;
  return h("button", {
    type: "button",
    class: "number",
    id: `number-${key}`,
    "data-what": what,
    click: () => {
      state.show = key;
      update();
    },
  });
}

function setNumber(button, x) {
  const text = write(x);
  button.textContent = text;
  button.setAttribute("aria-label", `${button.dataset.what}: ${text}. Show the arithmetic`);
  button.setAttribute("aria-pressed", button.id === `number-${state.show}`);
}

function showArithmetic() {
  const [column, place] = state.show.split("."),
    panel = by("arithmetic");
  const found = Object.hasOwn(arithmetic, column) && arithmetic[column](place);
  if (!found || !found.lines.length) {
    panel.replaceChildren(
      h("p", { class: "muted" }, "Click a number to see its arithmetic here."),
    );
    return;
  }
  const mine = line => place !== undefined && line.startsWith(found.mark(place));
  panel.replaceChildren(
    h("h3", {}, found.title),
    h("p", { class: "muted" }, found.formula || ""),
    h(
      "pre",
      { tabindex: 0, "aria-label": `arithmetic of ${found.title}` },
      found.lines.map(line => h("span", { class: mine(line) ? "line mine" : "line" }, line + "\n")),
    ),
  );
  const line = panel.querySelector(".mine"),
    box = by("panel");
  if (line) box.scrollTop = line.offsetTop - box.clientHeight / 2;
}

// A table whose head and rows are arrays of elements or texts; it scrolls by itself.
function table(label, head, rows) {
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          head.map(x => h("th", { scope: "col" }, x)),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map(cells =>
          h(
            "tr",
            {},
            cells.map((x, i) => (i ? h("td", {}, x) : h("th", { scope: "row" }, x))),
          ),
        ),
      ),
    ),
  );
}
