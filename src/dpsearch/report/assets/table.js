/* The table of rows, and the labels as a file. */
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
  if (!field.own && field.name === "cluster" && Number.isFinite(Number(wanted))) return (i) => clusterOfRow(i) === Number(wanted);
  const lower = text.trim().toLowerCase().replaceAll("−", "-");
  return (i) => field.text(i).toLowerCase().replaceAll("−", "-").includes(lower);
}

function selected() {
  const tests = filters.filter(Boolean);
  const out = [];
  for (let i = 0; i < n; i++) {
    if (!hidden.has(component[i]) && tests.every((test) => test(i))) out.push(i);
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

// The labels of the rows of the page, as a file.
const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
function labelsAsText() {
  const lines = ["row,cluster,name,component,certainty,apart_from"];
  for (let i = 0; i < n; i++) {
    const k = clusterOfRow(i);
    lines.push([quoted(data.names[i]), k, quoted(givenTo(k)), component[i], certainty[i].toFixed(4), clusters[k].apart].join(","));
  }
  return lines.join("\n") + "\n";
}
$("export").addEventListener("click", () => {
  const file = URL.createObjectURL(new Blob([labelsAsText()], { type: "text/csv" }));
  make("a", undefined, { href: file, download: `labels-${clusters.length}-clusters.csv` }).click();
  URL.revokeObjectURL(file);
});

$("previous").addEventListener("click", () => { page--; drawTable(); });
$("next").addEventListener("click", () => { page++; drawTable(); });
