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

// A_t = r_t + gamma V_next - V_t + gamma lam A_next at the tokens that the policy chose; a browser
// test compares it with the zoo's.
function gae({ rewards, values, mask, end, gamma }, lam) {
  const advantages = {};
  let value = end,
    ahead = 0;
  for (const t of [...mask.keys()].reverse().filter(t => mask[t])) {
    advantages[t] = ahead = rewards[t] + gamma * value - values[t] + gamma * lam * ahead;
    value = values[t];
  }
  return advantages;
}

// Replaces the saved advantages and returns of one estimator by those at another lambda. What
// follows from them is marked as stale.
function recompute(name, lam, same) {
  const { values, columns, depends } = data[name],
    tokens = document.querySelectorAll(".tokens")[name].children;
  const a = gae(data[name], lam),
    top = Math.max(...Object.values(a).map(Math.abs));
  for (const t of Object.keys(a)) {
    const cells = by(`t${name}-${t}`).cells;
    cells[columns.advantage].textContent = write(a[t]);
    paint(cells[columns.advantage], a[t], top);
    if (columns.return) cells[columns.return].textContent = write(a[t] + values[t]);
    for (const i of depends) cells[i].classList.toggle("stale", !same);
    tokens[t].title = `token ${t}: ${write(a[t])}`;
    paint(tokens[t], a[t], top);
  }
  for (const lines of document.querySelectorAll(`pre[data-of="${name}"]`))
    lines.classList.toggle("stale", !same);
}
for (const slider of document.querySelectorAll("[data-credit]")) {
  const name = slider.dataset.credit;
  lambdaSlider(slider, (lam, same) => recompute(name, lam, same))(data[name].lam);
}
