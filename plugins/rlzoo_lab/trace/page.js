// What a reader may move on a trace: a token shows its row, a slider another lambda.

const bar = document.getElementById("row-of");

// The row of a token as one line: each column's header and its number.
function showRow(link) {
  for (const on of document.querySelectorAll("tr.on")) on.classList.remove("on");
  const row = link && document.getElementById(link.hash.slice(1));
  bar.hidden = !row;
  if (!row) return;
  row.classList.add("on");
  const heads = [...row.closest("table").tHead.rows[0].cells];
  const told = heads.map((head, i) => [head.textContent.replace(/\s+/g, " "), row.cells[i]]);
  bar.textContent = told
    .filter(([, cell]) => cell && cell.textContent.trim())
    .map(([head, cell]) => `${head} ${cell.textContent.trim()}`)
    .join(" \u00b7 ");
}
for (const link of document.querySelectorAll(".tokens a")) {
  for (const kind of ["mouseenter", "focus"]) link.addEventListener(kind, () => showRow(link));
  for (const kind of ["mouseleave", "blur"]) link.addEventListener(kind, () => showRow(null));
}

// Four significant digits, with a minus sign.
const write = x => plain(Number(x.toPrecision(4))).replace("-", "\u2212");

function paint(element, x, top) {
  const colour = x > 0 ? "86,156,235" : "245,150,60";
  const strength = Math.abs(x) < 1e-6 ? 0 : 0.1 + 0.55 * Math.min(1, Math.abs(x) / top);
  element.style.background = strength ? `rgba(${colour},${strength.toFixed(3)})` : "";
}

// The advantages and returns of one estimator at another lambda, in the place of the saved ones.
function recompute(name, lam) {
  const { rewards, values, mask, end, gamma, columns, depends } = data[name];
  const batch = {
    rewards: [rewards],
    values: [values],
    response_mask: [mask],
    bootstrap_values: [end],
    group_ids: [0],
  };
  const options = { gamma, lam };
  const {
    advantages: [a],
    returns: [targets],
  } = ESTIMATORS.gae.run(batch, options);
  const at = actions(mask),
    top = Math.max(...at.map(t => Math.abs(a[t])));
  for (const t of at) {
    const cells = document.getElementById(`t${name}-${t}`).cells;
    cells[columns.advantage].textContent = write(a[t]);
    paint(cells[columns.advantage], a[t], top);
    if (columns.return) cells[columns.return].textContent = write(targets[t]);
    for (const i of depends) cells[i].classList.toggle("stale", lam !== data[name].lam);
    const token = document.querySelector(`.tokens a[href="#t${name}-${t}"]`);
    token.title = `token ${t}: advantage ${write(a[t])}`;
    paint(token, a[t], top);
  }
  const lines = {
    advantage: deriveAdvantages("gae", batch, 0, options),
    return: deriveReturns(batch, 0, a, targets),
  };
  for (const [column, written] of Object.entries(lines)) {
    const place = document.getElementById(`lines-${name}-${column}`);
    if (place) place.textContent = written.join("\n");
  }
}
for (const slider of document.querySelectorAll("[data-credit]")) {
  slider.closest("p").hidden = false;
  const output = document.getElementById(`${slider.id}-now`),
    name = slider.dataset.credit;
  slider.addEventListener("input", () => {
    const lam = Number(slider.value),
      same = Math.abs(lam - data[name].lam) < 1e-9;
    output.textContent = same
      ? `${slider.value}, as saved`
      : `${slider.value}, saved: ${data[name].lam}`;
    recompute(name, lam);
  });
}
