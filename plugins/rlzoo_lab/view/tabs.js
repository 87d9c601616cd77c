
const tabs = [...document.querySelectorAll("[role=tab]")];
function openTab(name, focus) {
  const chosen = tabs.find(tab => tab.hash === "#" + name) || tabs[0];
  for (const tab of tabs) {
    const on = tab === chosen;
    tab.setAttribute("aria-selected", on);
    tab.tabIndex = on ? 0 : -1;
    document.getElementById(tab.hash.slice(1)).hidden = !on;
  }
  if (focus) chosen.focus();
}
function tabOf(hash) {
  const target = hash.length > 1 && document.getElementById(hash.slice(1));
  const panel = target && target.closest("[role=tabpanel]");
  return panel ? panel.id : "";
}
for (const [i, tab] of tabs.entries()) {
  tab.addEventListener("click", event => {
    event.preventDefault();
    history.replaceState(null, "", tab.hash);
    openTab(tab.hash.slice(1));
  });
  tab.addEventListener("keydown", event => {
    const last = tabs.length - 1;
    const to = { ArrowRight: i === last ? 0 : i + 1, ArrowLeft: i ? i - 1 : last, Home: 0,
                 End: last, " ": i }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    tabs[to].click();
    tabs[to].focus();
  });
}
addEventListener("hashchange", () => {
  if (tabOf(location.hash)) openTab(tabOf(location.hash));
});
openTab(tabOf(location.hash));
