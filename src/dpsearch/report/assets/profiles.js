/* Profiles: all clusters at a glance, and each by itself against the whole and its sibling. */
const CARDS = 60, FEW = 6, CELLS = 5;
const isWords = data.words;
// Line breaks are allowed after underscores and the like.
const breakable = (name) => name.split(/(?<=[_./:-])(?=\w)/).flatMap((part, j) => (j ? [make("wbr"), part] : [part]));
const isCategory = (part) => part.length === 5;
const nameOf = (part) => data.described[part[0]][0];
const away = (part) => {
  if (isCategory(part)) return part[2];
  const [, mean, spread] = data.described[part[0]];
  return spread ? (part[2] - mean) / spread : 0;
};
const placed = (tag, name, style) => {
  const node = make(tag, undefined, { class: name });
  Object.assign(node.style, style);
  return node;
};

function drawOverview() {
  const box = $("overview");
  box.hidden = data.overview.length === 0 || described().length < 2;
  if (box.hidden) return;
  const head = nest("tr", {}, make("th", "cluster", { scope: "col" }), ...data.overview.map((j) => {
    const [name] = data.described[j];
    return nest("th", { scope: "col" }, nest("span", { title: name }, ...breakable(name)));
  }));
  const lines = described().slice(0, CARDS).map((one) => {
    const parts = new Map(branches[one.branch].parts.map((part) => [part[0], part]));
    return nest("tr", {}, nest("th", { scope: "row" }, nest("a", { href: "#cluster-" + one.k }, swatch(one.k), String(one.k))),
      ...data.overview.map((j) => overviewCell(parts.get(j))));
  });
  box.querySelector("table").replaceChildren(nest("thead", {}, head), nest("tbody", {}, ...lines));
}

function overviewCell(part) {
  const far = away(part), category = isCategory(part);
  const deep = Math.abs(far) > (category ? 0.6 : 1.2);
  const cell = make("td", undefined, { class: deep ? "cell deep" : "cell" });
  cell.style.setProperty("--t", (category ? far : Math.max(-1, Math.min(far / 2, 1))).toFixed(2));
  if (category) {
    const [name, own] = part[3].reduce((a, b) => (b[1] > a[1] ? b : a), ["–", 0, 0]);
    cell.append(name + " ", make("small", percent(own)));
    cell.title = `${nameOf(part)}: ${part[3].map((level) => `${level[0]} ${percent(level[1])}, all ${percent(level[2])}`).join("; ")}`;
  } else {
    cell.append(brief(part[2] ?? NaN));
    cell.title = `${nameOf(part)}: ${brief(part[2] ?? NaN)}, all ${brief(data.described[part[0]][1] ?? NaN)}`;
  }
  return cell;
}

// The scale of a column: all means and standard deviations that are shown.
function scales() {
  const out = new Map();
  for (const one of described()) {
    for (const part of branches[one.branch].parts) {
      if (isWords || isCategory(part)) continue;
      const [, mean, spread] = data.described[part[0]];
      const range = out.get(part[0]) ?? [mean - spread, mean + spread];
      if (part[2] !== null) out.set(part[0], [Math.min(range[0], part[2] - part[3]), Math.max(range[1], part[2] + part[3])]);
    }
  }
  return out;
}

function numberLine(part, size, range) {
  const [, evidence, mean, spread] = part;
  const [name, allMean, allSpread] = data.described[part[0]];
  const [low, high] = range ?? [0, 0];
  const where = (value) => (high > low && Number.isFinite(value) ? Math.max(0, Math.min((100 * (value - low)) / (high - low), 100)) : 50);
  const to = (value) => where(value).toFixed(1) + "%", from = (value) => (100 - where(value)).toFixed(1) + "%";
  const own = mean ?? NaN, strip = nest("span", { class: "strip-box" },
    placed("span", "band", { left: to(allMean - allSpread), right: from(allMean + allSpread) }),
    placed("span", "tick", { left: to(allMean) }),
    placed("span", "span", { left: to(own - spread), right: from(own + spread) }),
    placed("span", "dot", { left: to(own) }));
  return nest("tr", {}, nest("th", { scope: "row" }, ...breakable(name)),
    nest("td", { class: "strip", title: `evidence ${brief(evidence)} nats` }, strip),
    nest("td", { class: "n" }, brief(own), size > 1 ? make("small", ` ± ${brief(Number((spread ?? NaN).toPrecision(2)))}`) : ""),
    make("td", brief(allMean ?? NaN), { class: "n whole", title: `± ${brief(allSpread ?? NaN)}` }));
}

function categoryLines(part) {
  const [, , , levels, nLevels] = part, name = nameOf(part);
  return levels.map(([level, own, all], j) => nest("tr", {},
    nest("th", { scope: "row" }, ...(j ? [make("span", name, { class: "unseen" })] : breakable(name)),
      j === 0 && nLevels > Math.max(levels.length, 2) ? make("small", ` (${nLevels} levels)`) : ""),
    nest("td", { class: "strip" }, nest("span", { class: "level" },
      placed("span", "fill", { width: percent(own, 1).replace(" ", "") }),
      placed("span", "tick", { left: percent(all, 1).replace(" ", "") }), make("span", level, { class: "name" }))),
    make("td", percent(own), { class: "n" }), make("td", percent(all), { class: "n whole" })));
}

const lines = (parts, size, ranges) => parts.flatMap((part) =>
  (isCategory(part) ? categoryLines(part) : [numberLine(part, size, ranges.get(part[0]))]));

function wordTable(parts) {
  const most = Math.max(...parts.map((part) => part[2]));
  const head = nest("tr", {}, make("th", "word", { scope: "col" }), make("th", "of its words", { scope: "col" }),
    make("th", "lift", { scope: "col", class: "n" }));
  return nest("table", { class: "parts" }, nest("thead", {}, head), nest("tbody", {}, ...parts.map(([word, , own, times]) =>
    nest("tr", {}, nest("th", { scope: "row" }, ...breakable(word)),
      nest("td", { class: "strip" }, nest("span", { class: "level" }, placed("span", "fill", { width: ((100 * own) / most).toFixed(1) + "%" }),
        make("span", percent(own, 2), { class: "name" }))),
      make("td", times === null ? "–" : "×" + brief(times), { class: "n" })))));
}

function columnTables(parts, size, ranges) {
  const key = nest("th", { scope: "col", class: "key", title: "mean ± standard deviation" },
    make("span", undefined, { class: "key-own" }), "cluster ", make("span", undefined, { class: "key-all" }), "all");
  const head = nest("tr", {}, make("th", "column", { scope: "col" }), key,
    make("th", "cluster", { scope: "col", class: "n" }), make("th", "all", { scope: "col", class: "n" }));
  const out = [nest("table", { class: "parts" }, nest("thead", {}, head), nest("tbody", {}, ...lines(parts.slice(0, FEW), size, ranges)))];
  const more = parts.slice(FEW);
  if (more.length) {
    const table = nest("table", { class: "parts" }, nest("tbody", {}, ...lines(more, size, ranges)));
    out.push(nest("details", {}, make("summary", count(more.length, "more column")), table));
  }
  return out;
}

const rowButton = (row, ...inside) => nest("button", { type: "button", class: "row", "data-row": row }, ...inside);
const nameOfRow = (row) => data.names[at.get(row)];
function typicalRows(chosen, parts) {
  const own = fields.filter((field) => field.own);
  const first = isWords ? [] : parts.map(nameOf);
  const place = (field) => (first.indexOf(field.name) + 1 || Infinity);
  const shown = own.slice().sort((a, b) => place(a) - place(b) || own.indexOf(a) - own.indexOf(b)).slice(0, CELLS);
  const head = nest("tr", {}, make("th", "row", { scope: "col" }), ...shown.map((field) => nest("th", { scope: "col" }, ...breakable(field.name))));
  const body = chosen.map((row) => nest("tr", {}, nest("td", {}, rowButton(row, nameOfRow(row))),
    ...shown.map((field) => make("td", field.text(at.get(row))))));
  return nest("details", {}, make("summary", "Typical rows"),
    nest("div", { class: "scroll" }, nest("table", { class: "rows-table" }, nest("thead", {}, head), nest("tbody", {}, ...body))));
}

const clusterNames = (ks) => {
  const small = ks.filter((k) => clusters[k].apart >= 0), large = ks.filter((k) => clusters[k].apart < 0);
  if (!large.length) return "rows apart";
  return (large.length === 1 ? "cluster " : "clusters ") + large.join(", ") + (small.length ? " and rows apart" : "");
};

// What sets a cluster apart from the branch that it is merged with next.
function siblingLine(one) {
  const near = tree.sibling[one.branch];
  if (near < 0 || images || clustersIn(membersOf(near)).length >= clusters.length - 1) return null;
  const said = branches[one.branch].against.join(", ") || "no single column sets it apart";
  return nest("p", { class: "against" }, make("b", `Against ${clusterNames(clustersIn(membersOf(near)))}, nearest in the tree: `), said);
}

function card(one, ranges) {
  const { k, branch, members, size } = one, { parts, typical } = branches[branch];
  const known = typical.filter((row) => at.has(row));
  const inside = members.length > 1 ? `, ${members.length} components` : "";
  const node = nest("article", { class: "card profile", id: "cluster-" + k },
    nest("h3", {}, swatch(k), ` Cluster ${k} `, make("small", `${count(size, "row")}, ${percent(size / total, 1)}${inside}`)));
  node.style.setProperty("--c", `var(--c${k % data.colours.length})`);
  if (images) {
    const pictures = known.map((row) => nest("button", { type: "button", class: "row", "data-row": row, title: "Row " + nameOfRow(row) }, rowPicture(row) ?? nameOfRow(row)));
    node.append(nest("div", { class: "pictures" }, meanPicture(branch, "cluster " + k), nest("div", {}, make("h4", "Typical rows"), ...pictures)));
    return node;
  }
  const near = siblingLine(one);
  if (near) node.append(near);
  if (parts.length) node.append(...(isWords ? [wordTable(parts)] : columnTables(parts, size, ranges)));
  node.append(typicalRows(known, parts));
  return node;
}

function drawProfiles() {
  drawOverview();
  const ranges = scales(), shown = described().slice(0, CARDS);
  $("cards").replaceChildren(...shown.map((one) => card(one, ranges)));
  const left = described().length - shown.length;
  $("cards-note").textContent = left ? `The ${CARDS} largest of ${described().length} clusters are described; the table has rows of all.` : "";
}

// Clusters of rows that are named elsewhere on the page.
function drawPlaces() {
  for (const cell of document.querySelectorAll(".place")) {
    const i = at.get(Number(cell.dataset.of));
    if (i !== undefined) cell.replaceChildren(swatch(clusterOfRow(i)), clusterText(clusterOfRow(i)));
  }
  for (const cell of document.querySelectorAll(".second")) {
    const branch = tree.fitted[Number(cell.dataset.cluster)];
    const ks = branch === undefined ? [] : clustersIn(membersOf(branch));
    cell.replaceChildren(...(ks.length ? ks.flatMap((k) => [swatch(k), `${k} `]) : ["a new one"]));
  }
}
