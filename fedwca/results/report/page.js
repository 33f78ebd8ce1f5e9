"use strict";
const SVG = "http://www.w3.org/2000/svg";
const runs = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip");

function make(tag, attributes = {}, ...children) {
  const found = ["svg", "path", "line", "text", "circle", "g"].includes(tag)
    ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") Object.assign(found.style, value);
    else if (key.startsWith("on")) found.addEventListener(key.slice(2), value);
    else if (value !== null) found.setAttribute(key, value);
  }
  found.append(...children.filter((child) => child !== null));
  return found;
}

// Two colours that one of the page's backgrounds would swallow follow the theme.
const ink = (colour) => ({ "#000000": "var(--dark-series)", "#0072B2": "var(--own-line)" })[colour] || colour;

// A number as the tables have it: a tie goes to the even digit, while toFixed rounds it up; what rounds to 0 has no minus.
function shown(value, digits = 1) {
  if (value === null || value === undefined) return "–";
  const scaled = value * 10 ** digits, lower = Math.floor(scaled);
  // Only what is exact in binary is a tie: 71.25 is one, 71.35 is not.
  const tie = scaled - lower === 0.5 && Number.isInteger(value * 2 ** (digits + 1));
  return (tie ? (lower + Math.abs(lower % 2)) / 10 ** digits : value).toFixed(digits).replace(/^-(?=[0.]*$)/, "");
}

function theme() {
  const button = document.getElementById("theme"), root = document.documentElement;
  const states = { auto: ["◐ auto", "as the system"], light: ["○ light", "light"], dark: ["● dark", "dark"] };
  const order = Object.keys(states);
  let state = "auto";
  try { state = localStorage.getItem("fedwca-theme") || "auto"; } catch { /* a file may have no storage */ }
  const apply = () => {
    if (!(state in states)) state = "auto";
    if (state === "auto") delete root.dataset.theme; else root.dataset.theme = state;
    button.textContent = states[state][0];
    button.setAttribute("aria-label", `Colours: ${states[state][1]}`);
  };
  button.addEventListener("click", () => {
    state = order[(order.indexOf(state) + 1) % order.length];
    try { localStorage.setItem("fedwca-theme", state); } catch { /* then it is forgotten */ }
    apply();
  });
  apply();
}

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head) => head.querySelector("button")?.addEventListener("click", () => {
    const column = head.cellIndex;
    const falling = head.getAttribute("aria-sort") === "ascending"
      || (head.getAttribute("aria-sort") === "none" && head.classList.contains("number"));
    heads.forEach((other) => other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const key = (row) => row.cells[column].dataset.value ?? null;
    const text = (row) => row.cells[column].textContent;
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const x = key(a), y = key(b);
      if (head.classList.contains("number") && (x === null) !== (y === null)) return x === null ? 1 : -1;
      const order = x !== null && y !== null ? Number(x) - Number(y) : text(a).localeCompare(text(b));
      return falling ? -order : order;
    });
    table.tBodies[0].append(...rows);
  }));
}

// Where there is little room the mean stands first among the numbers.
function meanFirst(table, narrow) {
  const head = table.querySelector("thead th[data-first]");
  if (!head) return;
  const home = head.cellIndex, first = [...table.tHead.rows[0].cells].findIndex((cell) => cell.classList.contains("number"));
  const place = () => {
    const from = head.cellIndex, to = narrow.matches ? first : home;
    for (const row of table.rows) {
      const cell = row.cells[from];
      if (from !== to) row.insertBefore(cell, row.cells[from < to ? to + 1 : to] ?? null);
    }
  };
  narrow.addEventListener("change", place);
  place();
}

function ticks(low, high, count) {
  const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) found.push(i * step);
  return found;
}

// Math.min(...values) fails with more than about 100,000 values.
const bounds = (values) => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);

// Where the band of a point begins and ends: no percentage is outside of 0 and 100.
const band = ([, value, spread]) => [Math.max(0, value - (spread || 0)), Math.min(100, value + (spread || 0))];

// One point before the first round is a level line.
const isLevel = (series) => series.points.length === 1 && series.points[0][0] === 0;
// A level line is dashed in place of solid; others stay, so that those of one colour differ.
const dashOf = (series) => (isLevel(series) ? series.dash || "6 4" : series.dash);

function mark(series) {
  const line = make("line", { x1: 0, x2: 26, y1: 5, y2: 5, "stroke-width": 3, "stroke-dasharray": dashOf(series) });
  line.style.stroke = ink(series.colour);
  return make("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, line);
}

// Lines over rounds: points are [round, value, spread]; a legend switches lines, a pointer or arrow keys read values.
function chart(box, all, { unit, label, first, axis, low, high }) {
  const off = new Set();
  const legend = make("div", { class: "legend", role: "group", "aria-label": "Lines shown" });
  const stage = make("div");
  box.replaceChildren(legend, stage);
  for (const series of all) {
    const button = make("button", { type: "button", "aria-pressed": "true" }, mark(series), series.label);
    button.addEventListener("click", () => {
      if (!off.delete(series)) off.add(series);
      button.setAttribute("aria-pressed", String(!off.has(series)));
      draw();
    });
    legend.append(button);
  }
  let wide = 0;
  function draw() {
    wide = stage.clientWidth || 600;
    const height = Math.max(220, Math.min(340, wide * 0.55)), left = 46, right = 10, top = 10, bottom = 38;
    const series = all.filter((one) => !off.has(one));
    const values = all.flatMap((s) => s.points.filter((p) => p[1] !== null).flatMap(band));
    let [lowest, highest] = low === undefined ? bounds(values) : [low, high];
    if (!values.length) { box.replaceChildren(make("p", { class: "note" }, "No rounds were kept.")); return; }
    if (highest - lowest < 1) { lowest -= 1; highest += 1; }
    const pad = (highest - lowest) * 0.05;
    lowest -= pad; highest += pad;
    const rounds = [...new Set(all.flatMap((s) => s.points.map((p) => p[0])))].sort((a, b) => a - b);
    const last = Math.max(rounds[rounds.length - 1], rounds[0] + 1);
    const x = (r) => left + ((r - rounds[0]) / (last - rounds[0])) * (wide - left - right);
    const y = (v) => top + ((highest - v) / (highest - lowest)) * (height - top - bottom);
    const svg = make("svg", {
      viewBox: `0 0 ${wide} ${height}`, tabindex: 0, role: "group",
      "aria-label": `${label}. Arrow keys read the values round by round.`,
    });
    for (const value of ticks(lowest, highest, 5)) {
      svg.append(make("line", { class: "grid", x1: left, x2: wide - right, y1: y(value), y2: y(value) }),
        make("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, String(Number(value.toFixed(2)))));
    }
    for (const round of ticks(rounds[0], last, Math.min(10, wide / 60)).filter(Number.isInteger)) {
      svg.append(make("text", { x: x(round), y: height - bottom + 16, "text-anchor": "middle" }, String(round)));
    }
    svg.append(make("text", { x: (left + wide) / 2, y: height - 4, "text-anchor": "middle" }, axis),
      make("text", { x: 0, y: 0, "text-anchor": "middle", transform: `translate(11 ${(height - bottom) / 2}) rotate(-90)` }, unit));
    for (const one of series) {
      const points = one.points.filter((p) => p[1] !== null);
      if (!points.length) continue;
      if (points.some((p) => p[2])) {
        const edge = (end) => points.map((p) => `${x(p[0])} ${y(band(p)[end])}`);
        const area = make("path", { d: `M${edge(1).join("L")}L${edge(0).reverse().join("L")}Z`, opacity: 0.12 });
        area.style.fill = ink(one.colour);
        svg.append(area);
      }
      const level = isLevel(one);
      const way = level ? `M${left} ${y(points[0][1])}H${wide - right}` : `M${points.map((p) => `${x(p[0])} ${y(p[1])}`).join("L")}`;
      const line = make("path", { d: way, fill: "none", "stroke-width": one.strong ? 3 : 1.7, "stroke-dasharray": dashOf(one) });
      line.style.stroke = ink(one.colour);
      svg.append(line);
      if (!level && points.length <= 30) for (const p of points) {
        const dot = make("circle", { cx: x(p[0]), cy: y(p[1]), r: one.strong ? 3.5 : 2.5 });
        dot.style.fill = ink(one.colour);
        svg.append(dot);
      }
    }
    const cursor = make("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
    svg.append(cursor);
    let index = -1;
    const hide = () => { tip.hidden = true; index = -1; cursor.setAttribute("visibility", "hidden"); };
    const show = (at) => {
      index = at;
      const round = rounds[index];
      cursor.setAttribute("x1", x(round)); cursor.setAttribute("x2", x(round)); cursor.setAttribute("visibility", "visible");
      const values = series.map((s) => [s, s.points.find((p) => p[0] === round) || (s.points.length === 1 && s.points[0][0] === 0 ? s.points[0] : null)])
        .filter(([, p]) => p && p[1] !== null).sort((a, b) => b[1][1] - a[1][1]);
      tip.replaceChildren(make("b", {}, `after round ${round}`.replace("after round 0", first)), ...values.map(([s, p]) =>
        make("div", {}, make("i", { style: { background: ink(s.colour) } }), `${s.label}: ${shown(p[1])}${p[2] ? ` ± ${shown(p[2])}` : ""} %`)));
      tip.hidden = false;
      const here = svg.getBoundingClientRect(), across = here.left + x(round) * (here.width / wide);
      const space = tip.offsetWidth + 14;
      tip.style.left = `${Math.max(4, across + space > innerWidth ? across - space : across + 14)}px`;
      // Beside the cursor where there is room for both, else above the chart.
      const beside = here.width > 2 * tip.offsetWidth + 100 ? here.top + 10 : here.top - tip.offsetHeight - 4;
      tip.style.top = `${Math.min(innerHeight - tip.offsetHeight - 4, Math.max(4, beside))}px`;
    };
    svg.addEventListener("pointermove", (event) => {
      const here = svg.getBoundingClientRect(), at = ((event.clientX - here.left) / here.width) * wide;
      let best = 0;
      rounds.forEach((round, i) => { if (Math.abs(x(round) - at) < Math.abs(x(rounds[best]) - at)) best = i; });
      show(best);
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const to = { ArrowRight: index + 1, ArrowLeft: index < 0 ? rounds.length - 1 : index - 1, Home: 0, End: rounds.length - 1 }[event.key];
      if (event.key === "Escape") hide();
      if (to === undefined) return;
      event.preventDefault();
      show(Math.max(0, Math.min(rounds.length - 1, to)));
    });
    stage.replaceChildren(svg);
  }
  draw();
  new ResizeObserver(() => { if (Math.abs(stage.clientWidth - wide) > 1) draw(); }).observe(stage);
}

function select(text, entries, changed) {
  const found = make("select", {}, ...entries.map(([value, name]) => make("option", { value }, name)));
  found.addEventListener("change", changed);
  return [make("label", {}, `${text} `, found), found];
}

const COLUMNS = ["client", "domain", "cluster", "before (%)", "after (%)", "change", "pseudo-labels right (%)", "models agree (%)", "dropped images", "trust"];
const CLASS_COLUMNS = ["training images", "classes", "images of the largest class"];

function classesOf(counts) {
  return [counts.reduce((a, b) => a + b, 0), counts.filter((n) => n > 0).length, Math.max(...counts)];
}

function clients(box, run) {
  const methods = run.methods.map((m, i) => [i, m.label]).reverse();
  const units = run.units.map((u, i) => [i, `source model ${u.source_model}, trial ${u.trial}`]);
  if (!units.length) { box.append(make("p", { class: "note" }, "No rounds were kept.")); return; }
  const [methodLabel, method] = select("Method", methods, draw);
  const [unitLabel, unit] = select("Run", units, draw);
  const place = make("div", { class: "wide", style: { maxHeight: "26rem", overflowY: "auto" }, tabindex: 0, role: "region", "aria-label": "Clients" });
  const detail = make("div", { "aria-live": "polite" });
  box.append(make("div", { class: "controls" }, methodLabel, units.length > 1 ? unitLabel : null), place, detail);
  if (run.every > 1) box.append(make("p", { class: "note" }, `Values of clients are of one in ${run.every} rounds; all would make the page too large.`));
  if (run.units.length < run.all) box.append(make("p", { class: "note" }, `The first ${run.units.length} of ${run.all} runs; the others would make the page too large.`));

  function draw() {
    const data = run.units[unit.value].methods[run.methods[method.value].name], end = data.shown;
    const counts = run.units[unit.value].class_counts;
    const value = (field, k, at = end) => data[field][at]?.[k] ?? null;
    const body = make("tbody");
    detail.replaceChildren();
    run.domains.forEach((domain, k) => {
      const before = value("accuracy", k, 0), after = value("accuracy", k), agree = value("agreement", k);
      const numbers = [value("labels", k), before, after, before === null || after === null ? null : after - before,
        value("pseudo_label_accuracy", k), agree === null ? null : 100 * agree, value("dropped", k), data.trust.find((own) => own)?.[k] ?? null];
      const button = make("button", { type: "button", class: "client" }, `client ${k}`);
      const row = make("tr", {}, make("th", { scope: "row", class: "text", "data-value": k }, button), make("td", { class: "text" }, domain),
        ...numbers.map((v, i) => make("td", { class: "number", ...(v === null ? {} : { "data-value": v }) }, (i === 3 && v > 0 ? "+" : "") + shown(v, i === 7 ? 2 : i === 0 || i === 6 ? 0 : 1))));
      button.addEventListener("click", () => {
        for (const other of body.rows) other.setAttribute("aria-selected", String(other === row));
        one(k, domain, data, counts?.[k]);
      });
      if (counts) row.append(...classesOf(counts[k]).map((v) => make("td", { class: "number", "data-value": v }, shown(v, 0))));
      body.append(row);
    });
    const heads = [...COLUMNS, ...(counts ? CLASS_COLUMNS : [])].map((name, i) => make("th", { scope: "col", class: i < 2 ? "text" : "number", "aria-sort": "none" }, make("button", { type: "button" }, name)));
    const table = make("table", { class: "sortable" }, make("caption", {}, make("span", {}, `${run.methods[method.value].label}: choose a client to see its rounds` + (data.on_validation.length ? `; ${data.on_validation.length} clients that train are measured on their validation images` : "") + (end < data.rounds.length - 1 ? `; after round ${data.rounds[end]}, the best on these` : ""))), make("thead", {}, make("tr", {}, ...heads)), body);
    place.replaceChildren(table);
    sortable(table);
  }

  function one(k, domain, data, counts) {
    const points = (field) => data.rounds.map((round, i) => [round, data[field][i]?.[k] ?? null, null]);
    const lines = [
      { label: data.on_validation.includes(k) ? "accuracy on validation images" : "test accuracy", colour: "#0072B2", dash: "", strong: true, points: points("accuracy") },
      { label: "own model before averaging", colour: "#E69F00", dash: "6 4", points: points("accuracy_local") },
      { label: "pseudo-labels right", colour: "#009E73", dash: "2 3", points: points("pseudo_label_accuracy") },
    ].filter((line) => line.points.some((p) => p[1] !== null));
    const box = make("div", { class: "chart" });
    detail.replaceChildren(make("h3", {}, `Client ${k} (${domain})`), box);
    chart(box, lines, { unit: "%", label: `Client ${k} over rounds`, first: run.methods[method.value].first_model, axis: run.methods[method.value].rounds });
    const rows = data.rounds.map((round, i) => [round, data.weights[i]?.[k], data.labels[i]?.[k]]).filter(([, w]) => Array.isArray(w) && w[0] !== null);
    if (rows.length) detail.append(weights(rows));
    if (counts) detail.append(classCounts(counts, run.classes));
  }
  draw();
}

function classCounts(counts, names) {
  const most = Math.max(1, ...counts), cells = counts.map((n) => make("td", { style: { background: `color-mix(in srgb, var(--own) ${Math.round((n / most) * 55)}%, transparent)` } }, String(n)));
  const table = make("table", { class: "heat" }, make("caption", {}, make("span", {}, "Its training images by class")),
    make("thead", {}, make("tr", {}, ...counts.map((_, c) => make("th", { scope: "col" }, names[c] ?? String(c))))), make("tbody", {}, make("tr", {}, ...cells)));
  return make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Training images by class" }, table);
}

function weights(rows) {
  const most = Math.max(...rows.map(([, w]) => w.length));
  const heads = ["round", "own cluster", ...Array.from({ length: most }, (_, c) => `model ${c}`)];
  const body = rows.map(([round, w, own]) => make("tr", {}, make("th", { scope: "row" }, String(round)), make("td", {}, String(own)),
    ...Array.from({ length: most }, (_, c) => {
      const cell = make("td", {}, c < w.length ? shown(w[c], 2) : "");
      if (c < w.length) cell.style.background = `color-mix(in srgb, var(--own) ${Math.round(w[c] * 55)}%, transparent)`;
      return cell;
    })));
  const table = make("table", { class: "heat" }, make("caption", {}, make("span", {}, "Weights of the server's models in the model it started from")),
    make("thead", {}, make("tr", {}, ...heads.map((h) => make("th", { scope: "col" }, h)))), make("tbody", {}, ...body));
  return make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Weights over rounds" }, table);
}

theme();
document.querySelectorAll("table.sortable").forEach(sortable);
meanFirst(document.getElementById("summary"), matchMedia("(max-width: 40rem)"));
const spread = runs.flatMap((run) => run.methods.flatMap((m) => m.curve.filter(([, v]) => v !== null).flatMap(band)));
// Runs side by side share one scale.
const [low, high] = bounds(spread);
const scale = runs.length > 1 && spread.length ? { low, high } : {};
document.querySelectorAll("article.run").forEach((article) => {
  const run = runs[article.dataset.run];
  const lines = run.methods.map((m, i) => ({ ...m, points: m.curve, strong: i === run.methods.length - 1 }));
  chart(article.querySelector('[data-part="curves"]'), lines, { unit: `${run.accuracy} (%)`, label: `Accuracy over rounds, ${run.name}`, first: run.first_model, axis: run.rounds, ...scale });
  clients(article.querySelector('[data-part="clients"]'), run);
});
