"use strict";
/* The page's map, legend, table and pictures.  Text from the data reaches the page through
   textContent only. */
(() => {
  const $ = (id) => document.getElementById(id);
  const make = (tag, text, attributes = {}) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  };

  // -- the data ------------------------------------------------------------------------------

  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const KINDS = { i1: Int8Array, i2: Int16Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };
  const unpack = (packed) => new KINDS[packed.dtype](bytes(packed.data).buffer);
  const data = JSON.parse($("report-data").textContent);
  const rows = unpack(data.rows);
  const cluster = unpack(data.cluster);
  const second = unpack(data.second);
  const certainty = unpack(data.certainty);
  const density = unpack(data.density);
  const nClusters = data.sizes.length;
  const n = rows.length;
  const at = new Map(Array.from(rows, (row, i) => [row, i]));

  const brief = (x) => {
    if (!Number.isFinite(x)) return "–";
    const size = Math.abs(x);
    const text = Number.isInteger(x) || size >= 999.5
      ? Math.round(x).toLocaleString("en")
      : Number(x.toPrecision(4)).toString();
    return text.replace("-", "−");
  };

  // A field of a row: `key` sorts and plots, `text` is read.
  const numbered = data.names.every((name) => name !== "" && Number.isFinite(Number(name)));
  const fields = [
    { name: "row", key: (i) => rows[i], text: (i) => data.names[i], words: !numbered, value: (i) => Number(data.names[i]) },
    { name: "cluster", key: (i) => cluster[i], text: (i) => String(cluster[i]) },
    { name: "certainty", key: (i) => certainty[i], text: (i) => (100 * certainty[i]).toFixed(1) + " %", percent: true },
    { name: "log density", key: (i) => density[i], text: (i) => brief(density[i]) },
  ];
  for (const column of data.columns) {
    const { name, levels, text } = column;
    if (text) {
      fields.push({ name, words: true, own: true, key: (i) => text[i], text: (i) => text[i] });
      continue;
    }
    const values = unpack(column.values);
    if (levels) {
      const read = (i) => (values[i] < 0 ? "–" : levels[values[i]]);
      fields.push({ name, words: true, own: true, key: (i) => values[i], text: read });
    } else {
      fields.push({ name, own: true, values, key: (i) => values[i], text: (i) => brief(values[i]) });
    }
  }

  // -- colours, light and dark ---------------------------------------------------------------

  const probe = document.body.appendChild(make("span", "", { hidden: "" }));
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const SYMBOLS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross"];
  const clusterColour = (k) => colour("c" + (k % data.colours.length));
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

  // One trace for each look: more clusters than looks share them.
  const looks = Array.from({ length: Math.min(nClusters, data.colours.length * SYMBOLS.length) }, () => []);
  for (let i = 0; i < n; i++) looks[cluster[i] % looks.length].push(i);
  const hidden = new Set();
  const plot = $("plot");
  // SVG starts faster, WebGL carries more points; a machine may have no WebGL.
  const webgl = n > 2000 && Boolean(document.createElement("canvas").getContext("webgl"));
  let marked = null;

  const chosenAxes = () => choices.map((select) => axes[Number(select.value)]);
  const pick = (values, own) => Float32Array.from(own, (i) => values[i]);

  function drawMap() {
    const [across, up] = chosenAxes();
    const size = n > 20000 ? 3.5 : n > 3000 ? 4.5 : n > 500 ? 6 : 8;
    const traces = looks.map((every, k) => {
      const own = every.filter((i) => !hidden.has(cluster[i]));
      return {
        type: webgl ? "scattergl" : "scatter", mode: "markers", name: String(k), customdata: own,
        x: pick(across.values, own), y: pick(up.values, own), hoverinfo: "none",
        marker: { color: clusterColour(k), symbol: symbol(k), size, opacity: n > 3000 ? 0.6 : 0.8 },
      };
    });
    traces.push({
      type: "scatter", mode: "markers", hoverinfo: "skip", x: [], y: [], name: "marked",
      marker: { size: 18, symbol: "circle-open", color: colour("ink"), line: { width: 2.5 } },
    });
    Plotly.react(plot, traces, layout(across.name, up.name), CONFIG);
    if (marked !== null) mark(marked);
  }

  function mark(i) {
    marked = i;
    const [across, up] = chosenAxes();
    Plotly.restyle(plot, { x: [[across.values[i]]], y: [[up.values[i]]] }, [looks.length]);
  }
  function clearMark() {
    if (marked === null) return;
    marked = null;
    Plotly.restyle(plot, { x: [[]], y: [[]] }, [looks.length]);
  }

  // -- what a row is -------------------------------------------------------------------------

  const tip = $("tip");
  function fillTip(i) {
    tip.replaceChildren(make("b", "Row " + data.names[i]));
    const other = second[i] === nClusters ? "a new one" : "cluster " + second[i];
    const doubt = certainty[i] < 0.995 ? `, ${(100 * certainty[i]).toFixed(0)} %; or else ${other}` : "";
    tip.append(make("div", `cluster ${cluster[i]}${doubt}`));
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

  // -- the legend ----------------------------------------------------------------------------

  const toggles = Array.from(document.querySelectorAll(".toggle"));
  function showClusters() {
    for (const toggle of toggles) {
      toggle.setAttribute("aria-pressed", String(!hidden.has(Number(toggle.dataset.k))));
    }
    drawMap();
    page = 0;
    drawTable();
  }
  const every = () => data.sizes.map((_, k) => k);
  for (const toggle of toggles) {
    toggle.addEventListener("click", () => {
      const k = Number(toggle.dataset.k);
      if (!hidden.delete(k)) hidden.add(k);
      showClusters();
    });
  }
  for (const only of document.querySelectorAll(".only")) {
    only.addEventListener("click", () => {
      every().forEach((k) => hidden.add(k));
      hidden.delete(Number(only.dataset.k));
      showClusters();
    });
  }
  $("all").addEventListener("click", () => { hidden.clear(); showClusters(); });
  $("none").addEventListener("click", () => { every().forEach((k) => hidden.add(k)); showClusters(); });

  // -- the table -----------------------------------------------------------------------------

  const PAGE = 25;
  const table = $("data");
  let sort = { field: 0, up: true };
  let page = 0;
  const filters = fields.map(() => null);

  // "> 5", "<= 3", "= 2", "2..4" about numbers; anything else is looked for in the text.
  function filterOf(field, text) {
    const wanted = text.trim().replaceAll("−", "-").replace(/%$/, "").replace(/(\d),(?=\d{3}\b)/g, "$1").trim();
    if (!wanted) return null;
    const value = field.value ?? field.key;
    const scale = field.percent ? 0.01 : 1;
    const number = "(-?\\d*\\.?\\d+(?:e-?\\d+)?)";
    const compared = wanted.match(new RegExp(`^(>=|<=|>|<|=)\\s*${number}$`, "i"));
    const between = wanted.match(new RegExp(`^${number}\\s*\\.\\.\\s*${number}$`, "i"));
    if (compared && !field.words) {
      const limit = scale * Number(compared[2]);
      const holds = {
        ">": (v) => v > limit, "<": (v) => v < limit, ">=": (v) => v >= limit,
        "<=": (v) => v <= limit, "=": (v) => v === limit,
      }[compared[1]];
      return (i) => holds(value(i));
    }
    if (between && !field.words) {
      const [low, high] = [scale * Number(between[1]), scale * Number(between[2])];
      return (i) => value(i) >= low && value(i) <= high;
    }
    if (!field.own && field.name === "cluster") return (i) => cluster[i] === Number(wanted);
    const lower = text.trim().toLowerCase().replaceAll("−", "-");
    return (i) => field.text(i).toLowerCase().replaceAll("−", "-").includes(lower);
  }

  function selected() {
    const tests = filters.filter(Boolean);
    const out = [];
    for (let i = 0; i < n; i++) {
      if (!hidden.has(cluster[i]) && tests.every((test) => test(i))) out.push(i);
    }
    const { key } = fields[sort.field];
    const sign = sort.up ? 1 : -1;
    const missing = (v) => typeof v === "number" && Number.isNaN(v);
    return out.sort((a, b) => {
      const x = key(a), y = key(b);
      if (missing(x) || missing(y)) return missing(x) - missing(y); // gaps come last
      return sign * (x < y ? -1 : x > y ? 1 : 0) || a - b;
    });
  }

  function drawHead() {
    const names = make("tr"), inputs = make("tr");
    fields.forEach((field, j) => {
      const head = make("th", undefined, { scope: "col", class: field.words ? "" : "n", "aria-sort": "none" });
      const button = make("button", field.name, { type: "button", title: field.name });
      button.addEventListener("click", () => {
        sort = { field: j, up: sort.field === j ? !sort.up : true };
        page = 0;
        drawTable();
      });
      head.append(button);
      names.append(head);
      const cell = make("td");
      const input = make("input", undefined, { type: "search", "aria-label": "Filter " + field.name, placeholder: "filter" });
      input.addEventListener("input", () => {
        filters[j] = filterOf(field, input.value);
        page = 0;
        drawTable();
      });
      cell.append(input);
      inputs.append(cell);
    });
    table.tHead.append(names, inputs);
  }

  function drawTable() {
    const chosen = selected();
    const pages = Math.max(1, Math.ceil(chosen.length / PAGE));
    page = Math.min(page, pages - 1);
    const shown = chosen.slice(page * PAGE, (page + 1) * PAGE);
    table.tBodies[0].replaceChildren(...shown.map((i) => {
      const line = make("tr");
      fields.forEach((field, j) => {
        const cell = make("td", j ? field.text(i) : undefined, { class: field.words ? "" : "n" });
        if (j === 0) cell.append(make("button", data.names[i], { type: "button", class: "row", "data-row": rows[i] }));
        else if (field.words) cell.title = field.text(i);
        line.append(cell);
      });
      return line;
    }));
    Array.from(table.tHead.rows[0].cells).forEach((head, j) => {
      const own = j === sort.field;
      head.setAttribute("aria-sort", own ? (sort.up ? "ascending" : "descending") : "none");
      head.firstChild.textContent = fields[j].name + (own ? (sort.up ? " ▲" : " ▼") : "");
    });
    const first = chosen.length ? page * PAGE + 1 : 0;
    $("page").textContent = `${first.toLocaleString("en")}–${(page * PAGE + shown.length).toLocaleString("en")} of ${chosen.length.toLocaleString("en")} rows`;
    $("previous").disabled = page === 0;
    $("next").disabled = page >= pages - 1;
  }
  $("previous").addEventListener("click", () => { page--; drawTable(); });
  $("next").addEventListener("click", () => { page++; drawTable(); });

  // -- pictures ------------------------------------------------------------------------------

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
  for (const canvas of document.querySelectorAll("canvas[data-mean]")) {
    paint(canvas, images.means, Number(canvas.dataset.mean));
  }
  for (const canvas of document.querySelectorAll("canvas[data-row]")) {
    const j = images.rows.get(Number(canvas.dataset.row));
    if (j !== undefined) paint(canvas, images.pixels, j);
  }

  // -- how it was found ----------------------------------------------------------------------

  function drawTrace() {
    if (!$("trace")) return;
    const points = data.trace;
    const seconds = points.map((p) => p[0]), values = points.map((p) => p[1]);
    const kinds = [...new Set(points.map((p) => p[3]))];
    const traces = [{
      type: "scatter", mode: "lines", x: seconds, y: values, showlegend: false, hoverinfo: "skip",
      line: { shape: "hv", color: colour("soft"), width: 1.3 },
    }];
    kinds.forEach((kind, j) => {
      const own = points.filter((p) => p[3] === kind);
      traces.push({
        type: "scatter", mode: "markers", name: plain(kind), x: own.map((p) => p[0]), y: own.map((p) => p[1]),
        text: own.map((p) => `${p[2]} clusters`), hovertemplate: "%{y:,.1f} after %{x:.3g} s<br>%{text}",
        marker: { size: 8, color: clusterColour(j), symbol: SYMBOLS[j % SYMBOLS.length] },
      });
    });
    const page = layout("seconds", "log joint");
    const first = seconds.find((s) => s > 0);
    if (first && seconds.at(-1) > 50 * first) Object.assign(page.xaxis, { type: "log", dtick: 1 });
    page.showlegend = true;
    page.legend = { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 };
    page.yaxis.tickformat = ",";
    Plotly.react($("trace"), traces, page, CONFIG);
  }

  // -- light and dark ------------------------------------------------------------------------

  const root = document.documentElement;
  const wish = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : wish.matches);
  function redraw() {
    $("theme").textContent = isDark() ? "Light" : "Dark";
    $("theme").setAttribute("aria-label", isDark() ? "Light colours" : "Dark colours");
    drawMap();
    drawTrace();
  }
  $("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    redraw();
  });
  wish.addEventListener("change", redraw);

  drawHead();
  drawTable();
  redraw();
  plot.on("plotly_hover", (event) => {
    const point = event.points.find((p) => p.customdata !== undefined);
    if (point) showTip(point.customdata, event.event.clientX, event.event.clientY);
  });
  plot.on("plotly_unhover", hideTip);
  document.body.dataset.ready = "yes";
})();
