/* Colours, the map, and what a row is. */
// -- colours, light and dark ---------------------------------------------------------------

const probe = document.body.appendChild(make("span", "", { hidden: "" }));
const colour = (name) => {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
};
const SVG = "http://www.w3.org/2000/svg";
// The marks of plots.MARKERS, drawn as Plotly draws its symbols; rows apart are crosses.
const SHAPES = [
  "M6 1a5 5 0 1 0 0 10a5 5 0 1 0 0-10", "M1.5 1.5h9v9h-9z", "M6 1l5.5 9.5h-11z",
  "M6 0l6 6l-6 6l-6-6z", "M6 11l5.5-9.5h-11z",
  "M4.2 1h3.6v3.2h3.2v3.6h-3.2v3.2h-3.6v-3.2h-3.2v-3.6h3.2z",
];
const CROSS = "M1.5 3l1.5-1.5l3 3l3-3l1.5 1.5l-3 3l3 3l-1.5 1.5l-3-3l-3 3l-1.5-1.5l3-3z";
const SYMBOLS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross"];
const toneOf = (look) => `c${look % data.colours.length}`;
const shapeOf = (look) => Math.floor(look / data.colours.length) % SHAPES.length;
const swatch = (k) => {
  const { look } = clusters[k], apart = clusters[k].apart >= 0;
  const svg = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({ class: "swatch", viewBox: "0 0 12 12", "aria-hidden": "true" })) {
    svg.setAttribute(name, value);
  }
  svg.style.color = apart ? "var(--soft)" : `var(--${toneOf(look)})`;
  svg.appendChild(document.createElementNS(SVG, "path")).setAttribute("d", apart ? CROSS : SHAPES[shapeOf(look)]);
  return svg;
};
const layout = (across, up) => {
  const ink = colour("ink"), grid = colour("line"), axis = {
    gridcolor: grid, linecolor: grid, zeroline: false, automargin: true, color: ink,
  };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    font: { color: ink, family: "system-ui, sans-serif", size: 13 }, hovermode: "closest",
    margin: { l: 56, r: 12, t: 30, b: 48 },
    xaxis: { ...axis, title: { text: plain(across) } }, yaxis: { ...axis, title: { text: plain(up) } },
    uirevision: across + up, // what the reader zoomed to stays when clusters come and go
    modebar: { color: colour("soft"), activecolor: ink, bgcolor: "rgba(0,0,0,0)" },
  };
};
// Plotly reads some tags in its labels: names are shown as they are.
const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const CONFIG = {
  responsive: true, displaylogo: false, showTips: false, plotlyServerURL: "",
  modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
};

// -- the map -------------------------------------------------------------------------------

const axes = [];
for (const map of data.maps) {
  axes.push({ name: map.titles[0], values: unpack(map.x), group: map.name });
  axes.push({ name: map.titles[1], values: unpack(map.y), group: map.name });
}
const columns = fields.filter((field) => field.values || field.levels)
  .map(({ name, values, levels, codes, format }) => ({ name, values, levels, codes, format, group: "columns" }));
const aboutRows = [["certainty", certainty], ["log density", density]]
  .map(([name, values]) => ({ name, values, group: "about rows" }));
axes.push(...columns.filter((one) => one.values), ...aboutRows);
// What rows are coloured by: clusters, a column, or what is known about rows.
const tints = [{ name: "cluster", group: "clusters" }, ...columns, ...aboutRows];

function offer(select, options, first) {
  let group;
  options.forEach((one, j) => {
    if (!group || group.label !== one.group) {
      group = select.appendChild(make("optgroup"));
      group.label = one.group;
    }
    group.appendChild(make("option", one.name, { value: j }));
  });
  select.value = String(first);
  select.addEventListener("change", () => { clearMark(); drawMap(); });
}
const choices = [$("across"), $("up")];
choices.forEach((select, which) => offer(select, axes, which));
offer($("tint"), tints, 0);

const hidden = new Set(); // components
const plot = $("plot");
// SVG starts faster, WebGL carries more points; a machine may have no WebGL.
const webgl = n > 2000 && Boolean(document.createElement("canvas").getContext("webgl"));
const MOST_NAMES = 40;
let marked = null;

const chosenAxes = () => choices.map((select) => axes[Number(select.value)]);
const pick = (values, own) => Float32Array.from(own, (i) => values[i]);

// One trace for each look, which more clusters than looks share; one for rows apart.
function looks() {
  const many = data.colours.length * SYMBOLS.length;
  const out = new Map([...described().map((one) => one.look % many), ...rowsApart().map(() => -1)].map((look) => [look, []]));
  for (let i = 0; i < n; i++) {
    const { look, apart } = clusters[clusterOfRow(i)];
    if (!hidden.has(component[i])) out.get(apart >= 0 ? -1 : look % many).push(i);
  }
  return [...out];
}

// The numbers of the components, or the names of the clusters, each in the middle of its rows.
function labels(across, up) {
  const inside = $("inside").checked, own = new Map();
  for (let i = 0; i < n; i++) {
    const k = inside ? component[i] : clusterOfRow(i);
    if (hidden.has(component[i]) || (!inside && clusters[k].apart >= 0)) continue;
    if (!own.has(k)) own.set(k, []);
    own.get(k).push(i);
  }
  if (!inside && described().length < 2) return [];
  const middle = (values, chosen) => Array.from(chosen, (i) => values[i]).sort((a, b) => a - b)[chosen.length >> 1];
  return [...own].sort((a, b) => b[1].length - a[1].length).slice(0, MOST_NAMES).map(([k, chosen]) => ({
    x: middle(across.values, chosen), y: middle(up.values, chosen), showarrow: false, yshift: inside ? 11 : 0,
    text: inside ? String(k) : `<b>${plain(givenTo(k).slice(0, 24) || String(k))}</b>`,
    font: { size: 11, color: colour("ink") }, bgcolor: colour("card"), opacity: 0.85, borderpad: 1,
  }));
}

// The range of an axis is that of all rows, so that it stays when clusters are hidden.
function rangeOf(values) {
  let low = Infinity, high = -Infinity;
  for (const x of values) if (Number.isFinite(x)) { low = Math.min(low, x); high = Math.max(high, x); }
  if (low > high) return [0, 1];
  const margin = 0.04 * (high - low) || 0.5;
  return [low - margin, high + margin];
}

// Colours of rows by a column, and the key to them; rows without a value are grey.
const STOPS = [[94, 79, 162], [50, 136, 189], [77, 181, 155], [181, 195, 52], [224, 160, 0]];
const mixed = (t) => {
  const place = Math.min(Math.max(t, 0), 1) * (STOPS.length - 1), j = Math.min(Math.floor(place), STOPS.length - 2);
  return `rgb(${STOPS[j].map((x, c) => Math.round(x + (place - j) * (STOPS[j + 1][c] - x))).join(",")})`;
};
function colours(tint) {
  const none = colour("soft"), named = data.colours.map((_, j) => colour("c" + j));
  const key = (tone, text) => nest("span", {}, placed("span", "tone", { background: tone }), text);
  if (tint.levels) {
    const sizes = new Map();
    for (const code of tint.codes) sizes.set(code, (sizes.get(code) ?? 0) + 1);
    const order = [...sizes.keys()].filter((code) => code >= 0).sort((a, b) => sizes.get(b) - sizes.get(a) || a - b);
    const first = order.slice(0, order.length > named.length ? named.length - 1 : named.length);
    const tones = new Map(first.map((code, j) => [code, named[j]]));
    const rest = order.length - first.length ? [key(none, `${order.length - first.length} others`)] : [];
    return { of: (i) => tones.get(tint.codes[i]) ?? none, key: [...first.map((code, j) => key(named[j], tint.levels[code])), ...rest] };
  }
  const known = Float64Array.from(tint.values).filter(Number.isFinite).sort();
  const [low, high] = [0.02, 0.98].map((q) => known[Math.round(q * (known.length - 1))]); // a few far values do not decide
  const at = (x) => (high > low ? (x - low) / (high - low) : 0.5), text = (x) => brief(x, tint.format);
  const bar = placed("span", "ramp", { background: `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map(mixed)})` });
  return {
    of: (i) => (Number.isFinite(tint.values[i]) ? mixed(at(tint.values[i])) : none),
    key: known.length ? [(known[0] < low ? "≤ " : "") + text(low), bar, (known.at(-1) > high ? "≥ " : "") + text(high)] : ["no values"],
  };
}

function drawMap() {
  const [across, up] = chosenAxes(), tint = tints[Number($("tint").value)];
  const size = n > 20000 ? 3.5 : n > 3000 ? 4.5 : n > 500 ? 6 : 8;
  const by = tint.name === "cluster" && tint.group === "clusters" ? null : colours(tint);
  const traces = looks().map(([look, own]) => ({
    type: webgl ? "scattergl" : "scatter", mode: "markers", name: look < 0 ? "rows apart" : String(look),
    customdata: own, x: pick(across.values, own), y: pick(up.values, own), hoverinfo: "none",
    marker: {
      color: by ? own.map(by.of) : colour(look < 0 ? "soft" : toneOf(look)), symbol: look < 0 ? "x" : SYMBOLS[shapeOf(look)],
      size, opacity: n > 3000 ? 0.6 : 0.8,
    },
  }));
  $("key").replaceChildren(...(by ? [tint.name + ": ", ...by.key] : []));
  traces.push({
    type: "scatter", mode: "markers", hoverinfo: "skip", x: [], y: [], name: "marked",
    marker: { size: 18, symbol: "circle-open", color: colour("ink"), line: { width: 2.5 } },
  });
  const page = { ...layout(across.name, up.name), annotations: labels(across, up) };
  Object.assign(page.xaxis, { range: rangeOf(across.values) }, ticks(across));
  Object.assign(page.yaxis, { range: rangeOf(up.values) }, ticks(up));
  Plotly.react(plot, traces, page, CONFIG);
  if (marked !== null) mark(marked);
}

const ticks = ({ format }) => (!format ? {} : {
  tickformat: format[1] ? "~f" : undefined, ["$€£¥₹".includes(format[0]) ? "tickprefix" : "ticksuffix"]: format[0],
});

function mark(i) {
  marked = i;
  const [across, up] = chosenAxes();
  Plotly.restyle(plot, { x: [[across.values[i]]], y: [[up.values[i]]] }, [plot.data.length - 1]);
}
function clearMark() {
  if (marked === null) return;
  marked = null;
  Plotly.restyle(plot, { x: [[]], y: [[]] }, [plot.data.length - 1]);
}

// -- what a row is -------------------------------------------------------------------------

const tip = $("tip");
function fillTip(i) {
  tip.replaceChildren(make("b", "Row " + data.names[i]));
  const k = clusterOfRow(i), { apart } = clusters[k];
  const doubt = certainty[i] < 0.995 ? `, ${percent(certainty[i])}; next best: ${titleOf(second[i])}` : "";
  tip.append(make("div", `${titleOf(k)}${apart < 0 ? "" : `, a row apart, nearest to ${titleOf(apart)}`}${doubt}`));
  if (nComponents > clusters.length) tip.append(make("div", `component ${component[i]}`));
  const list = tip.appendChild(make("dl"));
  for (const field of fields.filter((f) => f.own).slice(0, 12)) {
    list.append(make("dt", field.name), make("dd", field.text(i)));
  }
  const picture = rowPicture(rows[i]);
  if (picture) tip.append(picture);
}
function showTip(i, x, y) {
  fillTip(i);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16;
  tip.style.left = Math.max(4, left) + "px";
  tip.style.top = Math.max(4, Math.min(y + 12, innerHeight - box.height - 6)) + "px";
}
const hideTip = () => { tip.hidden = true; };

// A row named elsewhere on the page: ring it in the map, and say what it is beside the button.
function showRow(button) {
  const i = at.get(Number(button.dataset.row));
  if (i === undefined) return;
  const box = button.getBoundingClientRect();
  mark(i);
  showTip(i, box.right, box.top);
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("button.row");
  if (button) showRow(button); else hideTip();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { hideTip(); clearMark(); }
});
document.addEventListener("scroll", hideTip, { passive: true });

// Pictures, in grey.
const images = data.images && {
  shape: data.images.shape, means: bytes(data.images.means), pixels: bytes(data.images.pixels),
  rows: new Map(data.images.rows.map((row, j) => [row, j])),
};
function paint(canvas, grey, j) {
  const [height, width] = images.shape;
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const picture = context.createImageData(width, height);
  for (let p = 0; p < height * width; p++) {
    picture.data.fill(255 - grey[j * height * width + p], 4 * p, 4 * p + 3);
    picture.data[4 * p + 3] = 255;
  }
  context.putImageData(picture, 0, 0);
}
function rowPicture(row) {
  if (!images || !images.rows.has(row)) return null;
  const canvas = make("canvas", undefined, { class: "picture" });
  paint(canvas, images.pixels, images.rows.get(row));
  return canvas;
}
const meanPicture = (branch, what) => {
  if (!images) return null;
  const canvas = make("canvas", undefined, { class: "picture", role: "img", "aria-label": "Mean image of " + what });
  paint(canvas, images.means, branch);
  return canvas;
};
