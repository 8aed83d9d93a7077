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
    return nest("tr", {}, nest("th", { scope: "row" }, nest("a", { href: "#cluster-" + one.k }, swatch(one.k), numberAndName(one.k))),
      ...data.overview.map((j) => overviewCell(parts.get(j))));
  });
  box.querySelector("table").replaceChildren(nest("thead", {}, head), nest("tbody", {}, ...lines));
}

function overviewCell(part) {
  const far = away(part), category = isCategory(part);
  const cell = make("td", undefined, { class: "cell" });
  cell.style.setProperty("--t", (category ? far : Math.max(-1, Math.min(far / 2, 1))).toFixed(2));
  if (category) {
    const [name, own] = part[3].reduce((a, b) => (b[1] > a[1] ? b : a), ["–", 0, 0]);
    cell.append(name + " ", make("small", percent(own)));
    cell.title = `${nameOf(part)}: ${part[3].map((level) => `${level[0]} ${percent(level[1])}, all ${percent(level[2])}`).join("; ")}`;
  } else {
    const [name, all, , format] = data.described[part[0]];
    cell.append(brief(part[2] ?? NaN, format));
    cell.title = `${name}: ${brief(part[2] ?? NaN, format)}, all ${brief(all ?? NaN, format)}`;
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
  const [, evidence, mean, width] = part;
  const [name, allMean, allSpread, format] = data.described[part[0]];
  const [low, high] = range ?? [0, 0];
  const where = (value) => (high > low && Number.isFinite(value) ? Math.max(0, Math.min((100 * (value - low)) / (high - low), 100)) : 50);
  const to = (value) => where(value).toFixed(1) + "%", from = (value) => (100 - where(value)).toFixed(1) + "%";
  const own = mean ?? NaN, strip = nest("span", { class: "strip-box" },
    placed("span", "band", { left: to(allMean - allSpread), right: from(allMean + allSpread) }),
    placed("span", "tick", { left: to(allMean) }),
    placed("span", "span", { left: to(own - width), right: from(own + width) }),
    placed("span", "dot", { left: to(own) }));
  return nest("tr", {}, nest("th", { scope: "row" }, ...breakable(name)),
    nest("td", { class: "strip", title: `evidence ${brief(evidence)} nats` }, strip),
    nest("td", { class: "n" }, brief(own, format), size > 1 ? make("small", " " + spread(width ?? NaN, format)) : ""),
    make("td", brief(allMean ?? NaN, format), { class: "n whole", title: spread(allSpread ?? NaN, format) }));
}

function categoryLines(part) {
  const [, , , levels, nLevels] = part, name = nameOf(part);
  return levels.map(([level, own, all], j) => nest("tr", {},
    nest("th", { scope: "row" }, ...(j ? [make("span", name, { class: "unseen" })] : breakable(name)),
      j === 0 && nLevels > Math.max(levels.length, 2) ? make("small", ` (${nLevels} levels)`) : ""),
    nest("td", { class: "strip" }, nest("span", { class: "level" },
      placed("span", "fill", { width: (100 * own).toFixed(1) + "%" }),
      placed("span", "tick", { left: (100 * all).toFixed(1) + "%" }), make("span", level, { class: "name" }))),
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

// How a column differs between two branches, in words, and by how many standard deviations.
function contrast(part, other) {
  const name = isWords ? part[0] : nameOf(part);
  if (isWords) return [other ? 0 : part[1], name];
  if (isCategory(part)) {
    const there = new Map(other[3].map((level) => [level[0], level[1]]));
    const far = part[3].map(([level, own]) => [Math.abs(own - (there.get(level) ?? 0)), level, own, there.get(level) ?? 0]);
    const [by, level, own, then] = far.reduce((a, b) => (b[0] > a[0] ? b : a), [0]);
    return [3 * by, `${name} is ${own > then ? "more" : "less"} often ${level} (${percent(own)}, there ${percent(then)})`];
  }
  const [, , mean, width] = part, [, , there, thereWidth] = other, format = data.described[part[0]][3];
  const by = Math.abs(mean - there) / (Math.hypot(width, thereWidth) || 1e-9);
  return [by, `${name} is ${mean > there ? "higher" : "lower"} (${brief(mean, format)}, there ${brief(there, format)})`];
}

// What sets a cluster apart from the nearest: from that alone if the tree merges them next.
function nearestLine(one) {
  const others = described().filter((other) => other !== one);
  if (images || others.length < 2) return null;
  const sibling = tree.sibling[one.branch];
  let near = others.find((other) => other.branch === sibling), said = near && branches[one.branch].against;
  if (!near) {
    const values = others.map((other) => logLift(one.members, other.members));
    near = others[values.indexOf(values.reduce((a, b) => Math.max(a, b)))];
    const there = new Map(branches[near.branch].parts.map((part) => [part[0], part]));
    said = branches[one.branch].parts.filter((part) => isWords || there.has(part[0]))
      .map((part) => contrast(part, there.get(part[0]))).filter(([by]) => by > 0.5)
      .sort((a, b) => b[0] - a[0]).slice(0, isWords ? 6 : 3).map(([, text]) => text);
    if (isWords) said = [said.join(", ")].filter(Boolean);
  }
  const text = said.length ? (isWords ? "more of " : "") + said.join(", ") : "no single column sets it apart";
  return nest("p", { class: "against" }, make("b", `Compared with ${titleOf(near.k)}, the nearest: `), text + ".");
}

// A name that the reader gives: kept in the page's link and in the file of labels.
function nameInput({ k, branch }) {
  const input = make("input", undefined, { class: "given", maxlength: 60, placeholder: "name it", "aria-label": `Name of cluster ${k}` });
  input.value = given.get(branch) ?? "";
  input.addEventListener("change", () => {
    const name = input.value.trim();
    if (name) given.set(branch, name); else given.delete(branch);
    keepInLink();
    drawNames();
  });
  return input;
}
// All names but those in the cards, in one of which the reader is.
function drawNames() {
  drawClusters();
  drawMap();
  drawOverview();
  drawRows();
  drawTable();
  for (const one of described()) $("cluster-" + one.k)?.querySelector(".against")?.replaceWith(nearestLine(one));
}

function card(one, ranges) {
  const { k, branch, members, size } = one, { parts, typical } = branches[branch];
  const known = typical.filter((row) => at.has(row));
  const inside = members.length > 1 ? `, ${members.length} components` : "";
  const node = nest("article", { class: "card profile", id: "cluster-" + k },
    nest("h3", {}, swatch(k), ` Cluster ${k} `, nameInput(one), make("small", `${count(size, "row")}, ${percent(size / total, 1)}${inside}`)));
  node.style.setProperty("--c", `var(--${toneOf(one.look)})`);
  if (images) {
    const pictures = known.map((row) => nest("button", { type: "button", class: "row", "data-row": row, title: "Row " + nameOfRow(row) }, rowPicture(row) ?? nameOfRow(row)));
    node.append(nest("div", { class: "pictures" }, meanPicture(branch, "cluster " + k), nest("div", {}, make("h4", "Typical rows"), ...pictures)));
    return node;
  }
  const near = nearestLine(one);
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
  $("cards-note").textContent = left ? `The ${CARDS} largest of ${described().length} clusters are described; the table has the rows of all clusters.` : "";
}

// Rows to look at, with what is said about them and their values in the telling columns.
const BORDERLINE = 0.9, LISTED = 12;
function rowList(id, chosen, heads, about) {
  if (!$(id)) return;
  const cells = fields.filter((field) => field.own && data.cells.includes(field.name));
  const line = (i) => nest("tr", {}, ...(images ? [nest("td", {}, rowPicture(rows[i]) ?? "")] : []),
    nest("td", {}, rowButton(rows[i], data.names[i])), nest("td", {}, swatch(clusterOfRow(i)), clusterText(clusterOfRow(i))),
    ...about(i).map((text, j) => nest("td", j ? {} : { class: "n" }, ...[text].flat())),
    ...cells.map((field) => make("td", field.text(i))));
  const head = nest("tr", {}, ...[...(images ? [""] : []), "row", "cluster"].map((text) => make("th", text, { scope: "col" })),
    ...heads.map((text, j) => make("th", text, { scope: "col", class: j ? "" : "n" })),
    ...cells.map((field) => nest("th", { scope: "col" }, ...breakable(field.name))));
  $(id).replaceChildren(chosen.length
    ? nest("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": $(id).dataset.about },
      nest("table", { class: "rows-table" }, nest("thead", {}, head), nest("tbody", {}, ...chosen.map(line))))
    : make("p", "None."));
}
function drawRows() {
  const doubtful = [...certainty.keys()].filter((i) => certainty[i] < BORDERLINE).sort((a, b) => certainty[a] - certainty[b]);
  const other = (k) => (k < clusters.length ? [swatch(k), clusterText(k)] : ["a new cluster"]);
  rowList("borderline", doubtful.slice(0, LISTED), ["certainty", "next best"], (i) => [percent(certainty[i]), other(second[i])]);
  rowList("outliers", data.outliers.map((row) => at.get(row)), ["log density"], (i) => [brief(density[i])]);
  const moved = new Map(data.moved.map(([row, share]) => [at.get(row), share]));
  rowList("moved", [...moved.keys()], ["disagreement"], (i) => [percent(moved.get(i))]);
}
