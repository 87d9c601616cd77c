// Interaction with a trace: a token shows its row, and a slider changes lambda.

for (const tokens of document.querySelectorAll(".tokens")) {
  const links = [...tokens.querySelectorAll("a")];
  rove(links);
  for (const link of links)
    whileOn(
      link,
      () => showRow(by(link.hash.slice(1))),
      () => showRow(null),
    );
}

// Replaces the saved advantages and returns of one estimator by those at another lambda.
function recompute(name, lam, same) {
  const { mask, gamma, columns, depends } = data[name];
  const { batch, advantages: a, returns: targets } = gaeOf(data[name], gamma, lam);
  const at = actions(mask),
    top = Math.max(...at.map(t => Math.abs(a[t])));
  for (const t of at) {
    const cells = by(`t${name}-${t}`).cells;
    cells[columns.advantage].textContent = write(a[t]);
    paint(cells[columns.advantage], a[t], top);
    if (columns.return) cells[columns.return].textContent = write(targets[t]);
    for (const i of depends) cells[i].classList.toggle("stale", !same);
    const token = document.querySelector(`.tokens a[href="#t${name}-${t}"]`);
    token.title = `token ${t}: advantage ${write(a[t])}`;
    paint(token, a[t], top);
  }
  const lines = {
    advantage: deriveAdvantages("gae", batch, 0, { gamma, lam }),
    return: deriveReturns(batch, 0, a, targets),
  };
  for (const [column, written] of Object.entries(lines)) {
    const place = by(`lines-${name}-${column}`);
    if (place) place.textContent = written.join("\n");
  }
}
for (const slider of document.querySelectorAll("[data-credit]")) {
  const name = slider.dataset.credit;
  lambdaSlider(slider, (lam, same) => recompute(name, lam, same))(data[name].lam);
}
