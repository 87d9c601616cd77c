// Charts as SVG, as wide as their place: points that can be dragged, bars, and curves.

const HEIGHT = innerWidth > 640 ? 180 : 140,
  EDGE = { left: 44, right: 12, top: 10, bottom: 26 };

// An interval around the numbers that a reader can drag beyond.
function spanOf(numbers, always = [0]) {
  const low = Math.min(...numbers, ...always),
    high = Math.max(...numbers, ...always);
  const room = 0.12 * (high - low || 1);
  return [low < 0 ? low - room : low, high + room];
}

function ticksOf([low, high]) {
  const rough = (high - low) / 5,
    size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(k => k * size).find(x => x >= rough);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) =>
    Number(((first + i) * step).toPrecision(6)),
  );
}

// The frame of a chart: its SVG, its scales, and a group to draw in.
function frame(place, label, { xs, y, xText, title }) {
  const width = Math.max(260, Math.min(place.clientWidth || 640, 900));
  const inner = width - EDGE.left - EDGE.right,
    [low, high] = y;
  const at = {
    x: i => EDGE.left + (inner * (i - xs[0])) / (xs[1] - xs[0] || 1),
    y: v => EDGE.top + ((HEIGHT - EDGE.top - EDGE.bottom) * (high - v)) / (high - low),
    value: py => high - ((py - EDGE.top) / (HEIGHT - EDGE.top - EDGE.bottom)) * (high - low),
  };
  const svg = s("svg", {
    viewBox: `0 0 ${width} ${HEIGHT}`,
    width,
    height: HEIGHT,
    role: "group",
    "aria-label": label,
  });
  for (const tick of ticksOf(y)) {
    svg.append(
      s("line", {
        class: tick === 0 ? "axis" : "grid",
        x1: EDGE.left,
        x2: width - EDGE.right,
        y1: at.y(tick),
        y2: at.y(tick),
      }),
      s(
        "text",
        { class: "tick", x: EDGE.left - 6, y: at.y(tick) + 4, "text-anchor": "end" },
        short(tick),
      ),
    );
  }
  for (const [i, text] of xText) {
    svg.append(
      s("text", { class: "tick", x: at.x(i), y: HEIGHT - 5, "text-anchor": "middle" }, text),
    );
  }
  place.replaceChildren(...(title ? [h("p", { class: "key" }, title)] : []), svg);
  return { svg, at };
}

// What the marks of a chart mean: [class, mark, text].
const keyOf = marks =>
  marks.map(([kind, mark, text]) =>
    h("span", { class: `mark ${kind}` }, h("b", { "aria-hidden": "true" }, mark), ` ${text} `),
  );

// A handle that the mouse, a finger or the arrow keys move up and down.
function handle(at, shape, { id, x, value, label, kind, set }) {
  const point = s(
    "g",
    { class: `handle ${kind}`, tabindex: 0, role: "slider", id, "aria-orientation": "vertical" },
    s("circle", { class: "reach", r: 16 }),
    shape(),
  );
  const place = v => {
    point.setAttribute("transform", `translate(${at.x(x)} ${at.y(v)})`);
    point.setAttribute("aria-label", label);
    point.setAttribute("aria-valuenow", short(v));
    point.setAttribute("aria-valuetext", `${short(v)}`);
  };
  const move = v => {
    const rounded = Math.round(v * 100) / 100 + 0;
    set(rounded);
    value = rounded;
    place(rounded);
    update();
  };
  point.addEventListener("pointerdown", event => {
    point.setPointerCapture(event.pointerId);
    point.dragged = true;
    event.preventDefault();
    point.focus();
  });
  point.addEventListener("pointermove", event => {
    if (!point.dragged) return;
    const box = point.ownerSVGElement.getBoundingClientRect();
    move(at.value(((event.clientY - box.top) * HEIGHT) / box.height));
  });
  for (const end of ["pointerup", "pointercancel"]) {
    point.addEventListener(end, () => {
      if (!point.dragged) return;
      point.dragged = false;
      rebuild();
    });
  }
  point.addEventListener("keydown", event => {
    const by = { ArrowUp: 0.05, ArrowDown: -0.05, PageUp: 0.25, PageDown: -0.25 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    move(value + by);
    rebuild();
  });
  place(value);
  return point;
}
const circle = () => s("circle", { class: "dot", r: 7 });
const square = () => s("rect", { class: "dot", x: -6, y: -6, width: 12, height: 12 });

// Bars at their positions: rows [{kind, values}] next to each other, null for no bar.
function bars(place, label, rows, { xText, title, room = -0.5 }) {
  const count = rows[0].values.length,
    y = spanOf(rows.flatMap(r => r.values.map(v => v ?? 0)));
  const { svg, at } = frame(place, label, { xs: [-0.5, count + room], y, xText, title });
  const width = Math.min(26, (0.7 * (at.x(1) - at.x(0))) / rows.length);
  rows.forEach(({ kind, values }, k) =>
    values.forEach((v, i) => {
      if (v === null) return;
      const x = at.x(i) + (k - rows.length / 2) * width,
        top = Math.min(at.y(v), at.y(0));
      svg.append(
        s("rect", {
          class: `bar ${kind}`,
          x: x + 1,
          y: top,
          width: width - 2,
          height: Math.max(1, Math.abs(at.y(v) - at.y(0))),
        }),
      );
    }),
  );
}

// Curves [{kind, points: [[x, y], ...]}] and a line at the current x.
function curves(place, label, rows, { xs, xText, title, now, high }) {
  const y = spanOf(rows.flatMap(r => r.points.map(p => p[1])));
  if (high !== undefined) y[1] = Math.min(y[1], high);
  const { svg, at } = frame(place, label, { xs, y, xText, title });
  for (const { kind, points } of rows) {
    const there = points.filter(([, v]) => v <= y[1]);
    svg.append(
      s("polyline", {
        class: `curve ${kind}`,
        points: there.map(([x, v]) => `${at.x(x)},${at.y(v)}`).join(" "),
      }),
    );
    const here = there.find(([x]) => Math.abs(x - now) < 1e-9);
    if (here)
      svg.append(s("circle", { class: `spot ${kind}`, cx: at.x(now), cy: at.y(here[1]), r: 5 }));
  }
  if (now !== undefined) {
    svg.append(
      s("line", {
        class: "now",
        x1: at.x(now),
        x2: at.x(now),
        y1: EDGE.top,
        y2: HEIGHT - EDGE.bottom,
      }),
    );
  }
}
