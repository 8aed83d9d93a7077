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
const clusterColour = (k) => colour("c" + (k % data.colours.length));
const swatch = (k) => {
  const apart = clusters[k].apart >= 0;
  const svg = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({ class: "swatch", viewBox: "0 0 12 12", "aria-hidden": "true" })) {
    svg.setAttribute(name, value);
  }
  svg.style.color = apart ? "var(--soft)" : `var(--c${k % data.colours.length})`;
  svg.appendChild(document.createElementNS(SVG, "path"))
    .setAttribute("d", apart ? CROSS : SHAPES[Math.floor(k / data.colours.length) % SHAPES.length]);
  return svg;
};
const symbol = (k) => SYMBOLS[Math.floor(k / data.colours.length) % SYMBOLS.length];
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
for (const field of fields) {
  if (field.values) axes.push({ name: field.name, values: field.values, group: "columns" });
}
axes.push({ name: "certainty", values: certainty, group: "about rows" });
axes.push({ name: "log density", values: density, group: "about rows" });

const choices = [$("across"), $("up")];
choices.forEach((select, which) => {
  let group;
  axes.forEach((axis, j) => {
    if (!group || group.label !== axis.group) {
      group = select.appendChild(make("optgroup"));
      group.label = axis.group;
    }
    group.appendChild(make("option", axis.name, { value: j }));
  });
  select.value = String(which);
  select.addEventListener("change", () => { clearMark(); drawMap(); });
});

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
  const most = Math.min(described().length, data.colours.length * SYMBOLS.length);
  const out = Array.from({ length: most + (rowsApart().length ? 1 : 0) }, () => []);
  for (let i = 0; i < n; i++) {
    const k = clusterOfRow(i);
    if (!hidden.has(component[i])) out[clusters[k].apart >= 0 ? most : k % most].push(i);
  }
  return out.map((own, k) => ({ own, apart: k === most }));
}

// The numbers of the components, each in the middle of its rows; of many the largest.
function componentNames(across, up) {
  if (!$("inside").checked) return [];
  const own = new Map();
  for (let i = 0; i < n; i++) {
    if (hidden.has(component[i])) continue;
    if (!own.has(component[i])) own.set(component[i], []);
    own.get(component[i]).push(i);
  }
  const middle = (values, chosen) => Array.from(chosen, (i) => values[i]).sort((a, b) => a - b)[chosen.length >> 1];
  return [...own].sort((a, b) => b[1].length - a[1].length).slice(0, MOST_NAMES).map(([k, chosen]) => ({
    x: middle(across.values, chosen), y: middle(up.values, chosen), text: String(k), showarrow: false, yshift: 11,
    font: { size: 11, color: colour("ink") }, bgcolor: colour("card"), opacity: 0.85, borderpad: 1,
  }));
}

function drawMap() {
  const [across, up] = chosenAxes();
  const size = n > 20000 ? 3.5 : n > 3000 ? 4.5 : n > 500 ? 6 : 8;
  const traces = looks().map(({ own, apart }, k) => ({
    type: webgl ? "scattergl" : "scatter", mode: "markers", name: apart ? "rows apart" : String(k),
    customdata: own, x: pick(across.values, own), y: pick(up.values, own), hoverinfo: "none",
    marker: {
      color: apart ? colour("soft") : clusterColour(k), symbol: apart ? "x" : symbol(k), size,
      opacity: n > 3000 ? 0.6 : 0.8,
    },
  }));
  traces.push({
    type: "scatter", mode: "markers", hoverinfo: "skip", x: [], y: [], name: "marked",
    marker: { size: 18, symbol: "circle-open", color: colour("ink"), line: { width: 2.5 } },
  });
  Plotly.react(plot, traces, { ...layout(across.name, up.name), annotations: componentNames(across, up) }, CONFIG);
  if (marked !== null) mark(marked);
}

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
  const other = second[i] === nFitted ? "a new one" : "cluster " + second[i];
  const doubt = isFitted() && certainty[i] < 0.995 ? `, ${percent(certainty[i])}; or else ${other}` : "";
  tip.append(make("div", `cluster ${k}${apart < 0 ? "" : `, a row apart, nearest to cluster ${apart}`}${doubt}`));
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
