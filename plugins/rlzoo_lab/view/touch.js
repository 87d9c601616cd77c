// What pages that a reader can touch have in common: their data, elements, numbers and colours;
// and a row of a table that shows itself.

const by = id => document.getElementById(id);
const data = JSON.parse(by("data")?.textContent ?? "null");
const SVG = "http://www.w3.org/2000/svg";

// An element: attributes, event listeners (functions under their event's name), children.
function make(element, attributes, ...children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter(child => child !== undefined && child !== false));
  return element;
}
const h = (tag, attributes, ...children) =>
  make(document.createElement(tag), attributes, ...children);
const s = (tag, attributes, ...children) =>
  make(document.createElementNS(SVG, tag), attributes, ...children);

// A number in a few significant digits, with a minus sign; null is a number that is missing.
function write(x, digits = 4) {
  if (typeof x === "string") return x;
  if (x === undefined || Number.isNaN(x)) return "";
  if (x === null) return "–";
  const rounded = Math.abs(x) < 1e-12 ? 0 : Number(x.toPrecision(digits));
  return String(rounded).replaceAll("-", "−");
}

// A colour of a strength in [0, 1], over the page's own. `less` marks, without any colour, what is
// made less likely.
function tint(element, colour, strength, less) {
  element.style.background = strength ? `rgba(${colour},${strength.toFixed(3)})` : "";
  element.classList.toggle("less", Boolean(strength) && less);
}
function paint(element, x, top) {
  const strength = Math.abs(x) < 1e-6 ? 0 : 0.1 + 0.55 * Math.min(1, Math.abs(x) / top);
  tint(element, x > 0 ? "86,156,235" : "245,150,60", strength, x < 0);
}

// ---------------------------------------------------------------- arrow keys

// How far a key goes along tokens or rows.
const ARROWS = {
  ArrowLeft: -1,
  ArrowRight: 1,
  ArrowUp: -10,
  ArrowDown: 10,
  Home: -Infinity,
  End: Infinity,
};
const along = (list, i, step) => Math.min(list.length - 1, Math.max(0, i + step));

// Elements of which Tab reaches one, and arrow keys the others.
function rove(elements, steps = ARROWS) {
  elements.forEach((element, i) => {
    element.tabIndex = i ? -1 : 0;
    element.addEventListener("focus", () => {
      for (const other of elements) other.tabIndex = other === element ? 0 : -1;
    });
    element.addEventListener("keydown", event => {
      if (!Object.hasOwn(steps, event.key)) return;
      event.preventDefault();
      elements[along(elements, i, steps[event.key])].focus();
    });
  });
}

// ---------------------------------------------------------------- a row that shows itself

// The row of a table as one line: each column's header and its number.
function showRow(row) {
  for (const on of document.querySelectorAll("tr.on")) on.classList.remove("on");
  const bar = by("row-of");
  bar.hidden = !row;
  if (!row) return;
  row.classList.add("on");
  const heads = [...row.closest("table").tHead.rows[0].cells];
  bar.replaceChildren(
    ...heads.flatMap((head, i) => {
      const text = row.cells[i]?.textContent.trim();
      return text ? [h("span", {}, h("b", {}, head.textContent.replace(/\s+/g, " ")), ` ${text}`)] : [];
    }),
  );
}

// Call `show` while a pointer or the focus is on an element, and `hide` afterwards.
function whileOn(element, show, hide) {
  for (const kind of ["mouseenter", "focus"]) element.addEventListener(kind, show);
  for (const kind of ["mouseleave", "blur"]) element.addEventListener(kind, hide);
}

// Rows of tables and marks in figures that carry one `data-row`: each shows where the others are.
// A click, Enter or Space keeps it so until the next.
function linkRows() {
  const all = [...document.querySelectorAll("[data-row]")];
  const rows = all.filter(element => element.tagName === "TR");
  let kept = null;
  const show = (row, element) => {
    const shown = row ?? kept;
    document.body.classList.toggle("one-row", shown !== null);
    for (const found of all) found.classList.toggle("of-row", found.dataset.row === shown);
    showRow(element ?? rows.find(found => found.dataset.row === shown));
    for (const button of document.querySelectorAll("button.pick"))
      button.setAttribute("aria-pressed", button.closest("tr").dataset.row === kept);
  };
  const keep = row => {
    kept = kept === row ? null : row;
    show(kept);
  };
  for (const table of new Set(rows.map(row => row.closest("table")))) {
    const buttons = rows
      .filter(row => table.contains(row))
      .map(row => {
        const head = row.cells[0];
        // A name that is not repeated below itself: the next cell names the row.
        const label = head.textContent.trim() ? undefined : row.cells[1].textContent;
        const attributes = { type: "button", class: "pick", "aria-label": label };
        const button = h("button", attributes, [...head.childNodes]);
        head.append(button);
        button.addEventListener("click", () => keep(row.dataset.row));
        whileOn(button, () => show(row.dataset.row, row), () => show(null));
        return button;
      });
    rove(buttons, { ...ARROWS, ArrowUp: -1, ArrowDown: 1 });
  }
  for (const element of all) {
    const row = element.tagName === "TR" ? element : undefined;
    element.addEventListener("mouseenter", () => show(element.dataset.row, row));
    element.addEventListener("mouseleave", () => show(null));
    if (!row) element.addEventListener("click", () => keep(element.dataset.row));
  }
  addEventListener("keydown", event => {
    if (event.key === "Escape") keep(kept);
  });
  show(null);
}

// Words that are links to rows: each shows its own.
function linkTokens() {
  for (const tokens of document.querySelectorAll(".tokens")) {
    const links = [...tokens.querySelectorAll("a")];
    rove(links);
    for (const link of links)
      whileOn(link, () => showRow(by(link.hash.slice(1))), () => showRow(null));
  }
}
