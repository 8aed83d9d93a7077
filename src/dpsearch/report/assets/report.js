/* The level, how the partition was found, light and dark; then everything is drawn. */
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
      text: own.map((p) => `${p[2]} components`), hovertemplate: "%{y:,.1f} after %{x:.3g} s<br>%{text}",
      marker: { size: 8, color: colour(toneOf(j)), symbol: SYMBOLS[j % SYMBOLS.length] },
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

// -- the level -----------------------------------------------------------------------------

function sayLevel() {
  const k = clusters.length, found = agreement[k - 1];
  $("level-said").textContent = count(k, "cluster");
  if ($("level")) {
    $("level").value = k;
    $("level").setAttribute("aria-valuetext", count(k, "cluster"));
  }
  if ($("fitted")) $("fitted").disabled = isFitted();
  const said = [];
  if (k > 1 && Number.isFinite(found)) {
    said.push(`Fits to halves of the rows find these clusters again with an agreement (adjusted Rand index) of ${found.toFixed(2)}.`);
  }
  if (!isFitted()) said.push(`The summary describes the ${count(nFitted, "cluster")} of the fit.`);
  $("level-note").textContent = said.join(" ");
}
function drawLevel() {
  sayLevel();
  drawClusters();
  drawMap();
  drawProfiles();
  drawRows();
  drawTable();
}
let waiting = 0; // one drawing for a frame, however fast the slider moves
function changeLevel(nClusters) {
  setClusters(nClusters);
  sayLevel();
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(drawLevel);
}
$("level")?.addEventListener("input", () => changeLevel(Number($("level").value)));
$("level")?.addEventListener("change", keepInLink);
$("fitted")?.addEventListener("click", () => { changeLevel(nFitted); keepInLink(); });
addEventListener("hashchange", () => { readLink(); drawLevel(); });
// Links within the page leave its own link, which keeps the level and the names, as it is.
document.addEventListener("click", (event) => {
  const place = event.target.closest("a[href^='#']") && $(event.target.closest("a").hash.slice(1));
  if (!place) return;
  event.preventDefault();
  place.scrollIntoView();
  place.tabIndex = -1;
  place.focus({ preventScroll: true });
});
$("inside").addEventListener("change", () => { drawClusters(); drawMap(); });

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
drawLevel();
redraw();
plot.on("plotly_hover", (event) => {
  const point = event.points.find((p) => p.customdata !== undefined);
  if (point) showTip(point.customdata, event.event.clientX, event.event.clientY);
});
plot.on("plotly_unhover", hideTip);
document.body.dataset.ready = "yes";
