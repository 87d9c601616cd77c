// A_t = r_t + gamma V_next - V_t + gamma lam A_next at the tokens that the policy chose.
by("lam").addEventListener("input", event => {
  const { rewards, values, mask, end, gamma } = data;
  const lam = Number(event.target.value);
  const heads = [...document.querySelectorAll("thead th")].map(head => head.textContent.trim());
  const rows = document.querySelector("tbody").rows;
  const words = document.querySelector(".tokens")?.children; // typed numbers have none
  const advantages = [];
  let value = end,
    ahead = 0;
  for (const t of [...mask.keys()].reverse().filter(t => mask[t])) {
    advantages[t] = ahead = rewards[t] + gamma * value - values[t] + gamma * lam * ahead;
    value = values[t];
  }
  const top = Math.max(...Object.values(advantages).map(Math.abs));
  const raw = heads.findIndex(head => head.startsWith("advantage"));
  advantages.forEach((a, t) => {
    const cells = rows[t].cells;
    heads.forEach((head, i) => {
      if (i === raw) cells[i].textContent = write(a);
      else if (head === "return") cells[i].textContent = write(a + values[t]);
      else if (head === "advantage") cells[i].textContent = "";
    });
    if (words) paint(words[t], a, top);
  });
  by("lam-now").textContent = event.target.value;
});
