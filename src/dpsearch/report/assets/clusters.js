/* The list of clusters, which is also the legend, beside the tree over them. */
const list = $("clusters");
const WIDE = 84, MARGIN = 6; // of the drawing of the tree
const MANY = 12; // clusters from which the list is closer

// The parts of the list from top to bottom: clusters, and between two branches what divides them.
// Rows apart are left out of the tree.
function ordered() {
  const shown = new Map(described().map((one) => [one.branch, one]));
  const drawn = described().every((one) => one.branch < 2 * nComponents - 1);
  if (!drawn) return { items: described().map((one) => ({ cluster: one })), top: null };
  const gone = new Set(rowsApart().map((one) => one.branch));
  const items = [];
  const walk = (branch) => {
    if (gone.has(branch)) return null;
    if (shown.has(branch)) {
      const leaf = { cluster: shown.get(branch) };
      items.push(leaf);
      return leaf;
    }
    const pair = [...tree.merges[branch - nComponents]].sort((a, b) => branches[b].size - branches[a].size);
    const above = walk(pair[0]);
    const place = items.length;
    const below = walk(pair[1]);
    if (!above || !below) return above ?? below;
    const split = { branch, above, below, upper: pair[0] };
    items.splice(place, 0, split);
    return split;
  };
  return { items, top: walk(2 * nComponents - 2) };
}

const toggle = (members, title, ...inside) => nest(
  "button", { type: "button", class: "toggle", "data-components": members.join(" "), "aria-pressed": "true", title },
  ...inside,
);
const only = (members, name) => make("button", "only", {
  type: "button", class: "only", "data-components": members.join(" "), "aria-label": "Show only " + name,
});
const bar = (size, colours) => {
  const fill = make("span", undefined, { class: "fill" });
  fill.style.width = ((100 * size) / clusters[0].size).toFixed(2) + "%";
  fill.style.background = colours;
  return nest("span", { class: "size" }, fill);
};
const counted = (size) => nest("span", { class: "count" }, size.toLocaleString("en") + " ",
  make("small", percent(size / total, 1)));
const total = clusters.reduce((sum, one) => sum + one.size, 0);

function clusterItem(one) {
  const { k, branch, members, size } = one;
  const name = titleOf(k);
  const button = toggle(members, "Show or hide " + name, swatch(k), make("b", numberAndName(k)), meanPicture(branch, name),
    bar(size, `var(--${toneOf(one.look)})`), counted(size));
  button.dataset.k = k;
  const alone = only(members, name);
  alone.dataset.k = k;
  const words = images ? null : make("p", branches[branch].words || (clusters.length > 1 ? "no single column sets it apart" : "all rows"), { class: "words" });
  const item = nest("li", { class: "leaf" }, nest("div", { class: "line" }, button, alone), words);
  if ($("inside").checked && members.length > 1) {
    item.append(nest("ul", { class: "inside", "aria-label": "Components of " + name },
      ...members.map((j) => componentItem(j))));
  }
  return item;
}

function componentItem(j) {
  const name = "component " + j;
  const said = branches[j].against.slice(0, 2).join(", ") || branches[j].words;
  return nest("li", {}, nest("div", { class: "line" },
    toggle([j], `Show or hide ${name}`, make("span", name), meanPicture(j, name), counted(branches[j].size)),
    only([j], name)), images ? null : make("p", said, { class: "words" }));
}

// What divides two branches: a mean image, or the column that sets the upper one apart.
function splitItem({ branch, upper }) {
  const times = Math.exp(-heights[branch - nComponents]);
  const title = `${count(branches[branch].size, "row")}; the branches above and below share rows `
    + `${times < 0.001 ? "less than 0.001" : brief(times)} times as often as by chance`;
  const [said] = branches[upper].against;
  return nest("li", { class: "split", title },
    images ? meanPicture(branch, "the branches above and below")
      : nest("span", {}, make("span", "↑ ", { "aria-hidden": "true" }), make("span", "Above: ", { class: "unseen" }), said ?? "no single column divides them"));
}

function apartItem() {
  const small = rowsApart();
  if (!small.length) return [];
  const members = small.flatMap((one) => one.members);
  const size = small.reduce((sum, one) => sum + one.size, 0);
  const places = new Map(small.map((one) => [one.k, []]));
  for (let i = 0; i < n; i++) places.get(clusterOfRow(i))?.push(i);
  const each = small.map((one) => nest("li", {}, `cluster ${one.k}: `,
    ...places.get(one.k).map((i) => make("button", data.names[i], { type: "button", class: "row", "data-row": rows[i] })),
    `, nearest to `, swatch(one.apart), titleOf(one.apart)));
  return [nest("li", { class: "apart" },
    nest("div", { class: "line" }, toggle(members, "Show or hide rows apart", swatch(small[0].k), make("b", "rows apart"),
      make("span", "", { class: "size" }), counted(size)), only(members, "rows apart")),
    make("p", `${count(small.length, "cluster")} of at most four rows, with the nearest cluster of each.`, { class: "words" }),
    nest("details", {}, make("summary", "Which rows"), nest("ul", { class: "each" }, ...each)))];
}

let drawn = null;
function drawClusters() {
  drawn = ordered();
  for (const one of drawn.items) one.item = one.cluster ? clusterItem(one.cluster) : splitItem(one);
  list.replaceChildren(...drawn.items.map((one) => one.item), ...apartItem());
  list.classList.toggle("many", described().length > MANY);
  list.style.paddingLeft = drawn.top?.above ? WIDE + "px" : "";
  drawLines();
  showPressed();
}

// A branch joins its parent at the parent's height; the logarithm keeps near and far joins apart.
function drawLines() {
  const svg = $("lines");
  svg.replaceChildren();
  svg.setAttribute("width", WIDE);
  svg.setAttribute("height", drawn.top?.above ? list.scrollHeight : 0);
  if (!drawn.top?.above) return;
  const height = (one) => heights[one.branch - nComponents];
  const lowest = Math.min(...drawn.items.filter((one) => one.branch).map(height));
  const scaled = (one) => Math.log1p(height(one) - lowest);
  const x = (one) => one.cluster ? WIDE - 3
    : WIDE - 14 - ((WIDE - 14 - MARGIN) * scaled(one)) / Math.max(scaled(drawn.top), 1e-9);
  const y = (one) => {
    const line = one.item.querySelector(".line") ?? one.item;
    return one.item.offsetTop + (line === one.item ? 0 : line.offsetTop - one.item.offsetTop) + line.offsetHeight / 2;
  };
  const splits = drawn.items.filter((one) => one.above);
  const draw = (name, path) => {
    const line = svg.appendChild(document.createElementNS(SVG, "path"));
    line.setAttribute("class", name);
    line.setAttribute("d", splits.map(path).join(""));
  };
  draw("leader", (one) => `M${x(one)} ${y(one)}H${WIDE - 3}`);
  draw("branch", (one) => `M${x(one.above)} ${y(one.above)}H${x(one)}V${y(one.below)}H${x(one.below)}`);
}

const listed = (node) => node.dataset.components.split(" ").map(Number);
function showPressed() {
  for (const button of list.querySelectorAll(".toggle")) {
    button.setAttribute("aria-pressed", String(listed(button).some((j) => !hidden.has(j))));
  }
}
function showHidden() {
  showPressed();
  drawMap();
  page = 0;
  drawTable();
}
const everyComponent = () => Array.from(clusterOf.keys());
list.addEventListener("click", (event) => {
  const button = event.target.closest(".toggle, .only");
  if (!button) return;
  const own = listed(button);
  if (button.className === "only") {
    everyComponent().forEach((j) => hidden.add(j));
    own.forEach((j) => hidden.delete(j));
  } else if (own.every((j) => hidden.has(j))) own.forEach((j) => hidden.delete(j));
  else own.forEach((j) => hidden.add(j));
  showHidden();
});
$("all").addEventListener("click", () => { hidden.clear(); showHidden(); });
$("none").addEventListener("click", () => { everyComponent().forEach((j) => hidden.add(j)); showHidden(); });
new ResizeObserver(() => { if (drawn) drawLines(); }).observe(list);
