// What was chosen outlives a reload: a page of a run that goes on loads itself anew.
const kept = (() => {
  try { return JSON.parse(sessionStorage.getItem(location.pathname)) || {}; } catch { return {}; }
})();
function keep(name, value) {
  kept[name] = value;
  try { sessionStorage.setItem(location.pathname, JSON.stringify(kept)); } catch { }
}
function choose(select, name) {
  if ([...select.options].some(option => option.value === kept[name])) select.value = kept[name];
}

// Trend: one step at a time, in all charts at once.
const charts = Object.entries(data.charts).map(([id, numbers]) => {
  const card = by(id);
  return { card, numbers, svg: card.querySelector("svg"), output: card.querySelector("output"),
           cursor: card.querySelector(".cursor") };
});
function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1; else high = middle;
  }
  return low && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
}
function point(step) {
  for (const { numbers, output, cursor } of charts) {
    if (step === null) {
      cursor.setAttribute("visibility", "hidden");
      output.textContent = output.dataset.now;
      continue;
    }
    const i = nearest(numbers.x, step), [left, right] = numbers.box, [a, b] = numbers.span;
    const at = left + (right - left) * (b > a ? (numbers.x[i] - a) / (b - a) : .5);
    cursor.setAttribute("transform", `translate(${at})`);
    cursor.setAttribute("visibility", "visible");
    const values = Object.values(numbers.y).map(y => write(y[i]));
    output.textContent = `step ${numbers.x[i]}: ${values.join(" · ")}`;
  }
}
for (const { card, numbers, svg, output } of charts) {
  const [left, right, width] = numbers.box, [a, b] = numbers.span;
  let step = b;
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * width;
    step = a + (b - a) * Math.min(1, Math.max(0, (x - left) / (right - left)));
    point(step);
  });
  svg.addEventListener("pointerleave", () => point(null));
  card.addEventListener("keydown", event => {
    const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: 10, PageDown: -10 }[event.key];
    if (!move || event.target !== card) return;
    event.preventDefault();
    const i = nearest(numbers.x, step) + move;
    step = numbers.x[Math.min(numbers.x.length - 1, Math.max(0, i))];
    point(step);
  });
  card.addEventListener("focus", () => output.setAttribute("aria-live", "polite"));
  card.addEventListener("blur", () => {
    output.setAttribute("aria-live", "off"); // of 60 charts, one is read aloud
    point(null);
  });
}

// Step: one saved batch at a time.
if (by("step-of")) {
  const show = () => {
    keep("step-of", by("step-of").value);
    keep("hide-flat", by("hide-flat").checked);
    for (const section of document.querySelectorAll("section.step"))
      section.hidden = section.dataset.step !== by("step-of").value;
    for (const group of document.querySelectorAll("details.flat"))
      group.hidden = by("hide-flat").checked;
  };
  choose(by("step-of"), "step-of");
  by("hide-flat").checked = kept["hide-flat"] === true;
  by("step-of").addEventListener("change", show);
  by("hide-flat").addEventListener("change", show);
  show();
}

// Token: a response, shaded by one of its columns.
if (data.tokens.batches) {
  const { shades, batches } = data.tokens;
  let batch, response, spans = [], others = [], current = 0;
  const numbersOf = (name, row = response) => {
    const column = row.numbers[name];
    return t => Array.isArray(column) ? column[t] : column === undefined ? null : column;
  };
  // The ratio is kept as its logarithm, so that twice and half are as strong.
  const value = (name, x) => x !== null && name === "log_ratio" ? Math.exp(x) : x;
  const colour = (name, x) => {
    const [low, high] = batch.scales[name];
    if (x === null || high === low || (shades[name][2] && Math.abs(x) < 1e-6))
      return ["", 0, false];
    const share = shades[name][2] ? Math.min(1, Math.abs(x) / high)
      : Math.min(1, Math.max(0, (x - low) / (high - low)));
    const side = shades[name][2] && x < 0 ? by("ramp").dataset.down : by("ramp").dataset.up;
    return [side.match(/\d+,\d+,\d+/)[0], .08 + .57 * share, shades[name][2] && x < 0];
  };
  const add = (parent, name, text, kind) => {
    const made = h(name, { class: kind || undefined }, text);
    parent.append(made);
    return made;
  };
  function legend() {
    const name = by("shade").value, [low, high] = batch.scales[name];
    const [down, up] = [by("ramp").dataset.down, by("ramp").dataset.up];
    by("least").textContent = write(value(name, low), 2);
    by("most").textContent = write(value(name, high), 2);
    by("ramp").style.background = `linear-gradient(90deg, ${shades[name][2]
      ? `${down}, transparent, ${up}` : `transparent, ${up}`})`;
    by("means").textContent = low === high ? `${shades[name][1]} (all equal here)` : shades[name][1];
  }
  function focus(t) {
    spans[current]?.classList.remove("on");
    current = along(spans, t, 0);
    spans[current]?.classList.add("on");
    const panel = by("numbers");
    panel.replaceChildren();
    if (!spans.length) { add(panel, "p", "an empty response", "muted"); return; }
    const head = add(panel, "h3", "");
    add(head, "bdi", batch.tokens[response.ids[current]]);
    add(panel, "p", `token ${current} of ${response.length}`, "muted");
    const table = add(panel, "table", "");
    for (const [name, [title]] of Object.entries(shades)) {
      if (!(name in response.numbers)) continue;
      const row = add(table, "tr", "", name === by("shade").value ? "now" : "");
      add(row, "th", title);
      add(row, "td", write(value(name, numbersOf(name)(current))));
    }
  }
  function shadeAll() {
    keep("shade", by("shade").value);
    const name = by("shade").value;
    for (const [row, some] of [[response, spans], ...others]) {
      const of = numbersOf(name, row);
      some.forEach((span, t) => tint(span, ...colour(name, of(t))));
    }
    legend();
    focus(current);
  }
  function showResponse() {
    keep("row", by("response").value);
    response = batch.rows.find(row => String(row.row) === by("response").value);
    const box = by("tokens"), told = by("asked");
    box.replaceChildren();
    spans = fill(box, response, response.ids.length);
    if (response.length > response.ids.length)
      add(box, "span", ` … ${response.length - response.ids.length} more tokens`, "muted");
    told.replaceChildren();
    const say = (name, text) => {
      told.append(`${name} `);
      add(told, "bdi", text, "mono");
      told.append("  ");
    };
    if (response.prompt) say("prompt", response.prompt);
    if (response.answer !== null) say("· answer", response.answer);
    if (response.score !== null) say("· reward", write(response.score));
    group();
    current = 0;
    shadeAll();
    box.scrollTop = 0;
  }
  function fill(box, row, most) {
    return row.ids.slice(0, most).map((id, t) => {
      const text = batch.tokens[id];
      const span = add(box, "bdi", text || "·");
      const chosen = Object.values(row.numbers)
        .some(column => !Array.isArray(column) || column[t] !== null);
      if (!chosen) span.className = "other";
      span.dataset.t = t;
      if (text.endsWith("\\n") && row === response) box.append(document.createElement("br"));
      return span;
    });
  }
  // The responses that it was compared with, each a way to look at it closer.
  function group() {
    const box = by("others");
    box.replaceChildren();
    others = [];
    for (const row of batch.rows.filter(row => row.group === response.group)) {
      const button = add(box, "button", "", row === response ? "now" : "");
      add(button, "span", row.score === null ? "" : write(row.score), "muted");
      const line = add(button, "span", "", "tokens");
      others.push([row, fill(line, row, 60)]);
      if (row.length > 60) add(line, "span", ` … ${row.length - 60} more`, "muted");
      button.addEventListener("click", () => {
        by("response").value = row.row;
        showResponse();
        box.querySelector(".now").focus();
      });
    }
  }
  function showBatch() {
    keep("batch", by("batch").value);
    batch = batches.find(found => String(found.step) === by("batch").value);
    by("response").replaceChildren();
    let group, last = null;
    for (const row of batch.rows) {
      if (row.group !== last) {
        group = document.createElement("optgroup");
        group.label = row.prompt.replace(/\s+/g, " ").slice(0, 60) || `group ${row.group}`;
        by("response").append(group);
        last = row.group;
      }
      const paid = row.score === null ? "" : `reward ${write(row.score)}, `;
      add(group, "option", `response ${row.row}: ${paid}${row.length} tokens`).value = row.row;
    }
    choose(by("response"), "row");
    showResponse();
  }
  for (const found of batches) if (found.rows.length)
    add(by("batch"), "option", found.step).value = found.step;
  choose(by("batch"), "batch");
  choose(by("shade"), "shade");
  by("batch").addEventListener("change", showBatch);
  by("response").addEventListener("change", showResponse);
  by("shade").addEventListener("change", shadeAll);
  const at = event => event.target.dataset.t;
  by("tokens").addEventListener("pointerover", event => { if (at(event)) focus(+at(event)); });
  by("tokens").addEventListener("click", event => { if (at(event)) focus(+at(event)); });
  by("tokens").addEventListener("keydown", event => {
    const move = ARROWS[event.key];
    if (!move) return;
    event.preventDefault();
    focus(current + move);
    spans[current]?.scrollIntoView({ block: "nearest" });
  });
  if (by("batch").options.length) showBatch();
  // From a response of a step to its tokens.
  for (const link of document.querySelectorAll("a[data-row]")) {
    const found = batches.find(b => String(b.step) === link.dataset.step);
    if (!found || !found.rows.some(row => String(row.row) === link.dataset.row)) {
      link.replaceWith(link.textContent);
      continue;
    }
    link.addEventListener("click", () => {
      by("batch").value = link.dataset.step;
      keep("row", link.dataset.row);
      showBatch();
      openTab("token", true);
    });
  }
}

// So do the tab, since a reload forgets what the address says after #, and the place on the page.
if (document.querySelector("meta[http-equiv=refresh]")) {
  if (!tabOf(location.hash) && kept.tab) openTab(kept.tab);
  if (kept.scroll) scrollTo(0, kept.scroll);
  addEventListener("pagehide", () => {
    keep("tab", document.querySelector("[role=tabpanel]:not([hidden])").id);
    keep("scroll", scrollY);
  });
}
