/* Clusters at the level that was chosen: the tree over components, cut as `Tree.cut` does it. */
const tree = data.tree;
const branches = data.branches;
const nFitted = tree.fitted.length;
const nComponents = tree.merges.length + 1;
const SMALL = 4, SMALL_SHARE = 0.02; // clusters of so few rows are shown as rows apart
const heights = unpack(tree.heights);
const lifts = unpack(tree.lift);
const weights = unpack(tree.weights);
const agreement = unpack(tree.agreement);
const membersOf = (branch) => tree.members[branch];

// What is shown now: for each cluster its branch, its components, how it looks, and the cluster that
// its rows are nearest to if they are rows apart, else −1.
let clusters = [];
const clusterOf = new Int32Array(tree.members.flat().reduce((a, b) => Math.max(a, b)) + 1);
const clusterOfRow = (i) => clusterOf[component[i]];
const isFitted = () => clusters.length === nFitted;

// The branches after the first merges, from the largest; of equal ones that of the first component.
function cutTree(nClusters) {
  const left = new Set(Array.from({ length: nComponents }, (_, k) => k));
  for (let m = 0; m < nComponents - nClusters; m++) {
    tree.merges[m].forEach((child) => left.delete(child));
    left.add(nComponents + m);
  }
  const points = (branch) => membersOf(branch).reduce((sum, k) => sum + tree.points[k], 0);
  return [...left].map((branch) => [branch, points(branch), membersOf(branch)[0]])
    .sort((a, b) => b[1] - a[1] || a[2] - b[2]).map(([branch]) => branch);
}

// Each component's look, which is that of the clusters whose largest component it is: its turn as
// the tree is split from the top.  So n clusters have n looks, and keep them at every level.
const lookOf = new Int32Array(clusterOf.length);
{
  const largest = (branch) => membersOf(branch)[0];
  const turns = [0];
  for (let m = nComponents - 2; m >= 0; m--) {
    turns.push(...tree.merges[m].map(largest).filter((k) => k !== largest(nComponents + m)));
  }
  [false, true].flatMap((small) => turns.filter((k) => (tree.points[k] <= SMALL) === small))
    .forEach((k, turn) => { lookOf[k] = turn; });
}

const logSum = (values) => {
  const top = Math.max(...values);
  return top === -Infinity ? top : top + Math.log(values.reduce((sum, x) => sum + Math.exp(x - top), 0));
};
const liftOf = (a, b) => lifts[(Math.max(a, b) * (Math.max(a, b) - 1)) / 2 + Math.min(a, b)];
const share = (members) => logSum(members.map((k) => weights[k]));
// The log lift of two clusters: the mean of those of their components, by their shares.
const logLift = (one, other) =>
  logSum(one.flatMap((a) => other.map((b) => liftOf(a, b) + weights[a] + weights[b]))) - share(one) - share(other);

function findRowsApart() {
  const points = clusters.map((one) => one.members.reduce((sum, k) => sum + tree.points[k], 0));
  const most = Math.min(SMALL, SMALL_SHARE * points.reduce((sum, x) => sum + x, 0));
  const large = clusters.filter((_, k) => points[k] > most);
  if (!large.length) return;
  clusters.forEach((one, k) => {
    if (points[k] > most) return;
    const values = large.map((other) => logLift(one.members, other.members));
    one.apart = large[values.indexOf(Math.max(...values))].k;
  });
}

function setClusters(nClusters) {
  const chosen = nClusters === nFitted ? tree.fitted : cutTree(nClusters);
  clusters = chosen.map((branch, k) => ({
    k, branch, members: membersOf(branch), size: branches[branch].size, apart: -1,
    look: lookOf[membersOf(branch)[0]],
  }));
  clusters.forEach((one) => one.members.forEach((j) => { clusterOf[j] = one.k; }));
  findRowsApart();
  placeRows();
}

// How certain rows are of their cluster, and which comes next (the number of clusters: a new one).
const certainty = new Float32Array(n), second = new Int32Array(n);
const shares = Object.fromEntries(Object.entries(data.shares).map(([name, values]) => [name, unpack(values)]));
function placeRows() {
  const total = new Float64Array(clusters.length + 1);
  let at = 0;
  for (let i = 0; i < n; i++) {
    const end = at + shares.counts[i], own = clusterOfRow(i), found = new Set();
    for (; at < end; at++) {
      const j = shares.components[at], k = j < clusterOf.length ? clusterOf[j] : clusters.length;
      total[k] += shares.shares[at] / 1e4;
      found.add(k);
    }
    certainty[i] = Math.min(total[own], 1);
    const others = [...found].filter((k) => k !== own).sort((a, b) => total[b] - total[a]);
    second[i] = others[0] ?? clusters.length;
    found.forEach((k) => { total[k] = 0; });
  }
}

const described = () => clusters.filter((one) => one.apart < 0);
const rowsApart = () => clusters.filter((one) => one.apart >= 0);
const clustersIn = (members) => [...new Set(members.map((j) => clusterOf[j]))].sort((a, b) => a - b);

// -- names, and what the page's link keeps -------------------------------------------------

const given = new Map(); // by branch
const givenTo = (k) => given.get(clusters[k]?.branch) ?? "";
const titleOf = (k) => (k === clusters.length ? "a new cluster" : givenTo(k) || `cluster ${k}`);
const numberAndName = (k) => [k, givenTo(k)].filter((text) => text !== "").join(" ");
const clusterText = (k) => (clusters[k].apart < 0 ? numberAndName(k) : `${k}, apart (near ${clusters[k].apart})`);
function readLink() {
  const kept = new URLSearchParams(location.hash.slice(1)), level = Number(kept.get("level"));
  given.clear();
  for (const [key, name] of kept) if (key.startsWith("name.") && name) given.set(Number(key.slice(5)), name);
  setClusters(level >= 1 && level <= nComponents ? Math.floor(level) : nFitted);
}
function keepInLink() {
  const kept = new URLSearchParams(isFitted() ? {} : { level: clusters.length });
  for (const [branch, name] of given) kept.set("name." + branch, name);
  try { history.replaceState(null, "", "#" + kept); } catch { /* in a frame without an address */ }
}
readLink();

// -- fields of rows ------------------------------------------------------------------------

// A field of a row: `key` sorts and plots, `text` is read.
const numbered = data.names.every((name) => name !== "" && Number.isFinite(Number(name)));
const fields = [
  { name: "row", key: (i) => rows[i], text: (i) => data.names[i], words: !numbered, value: (i) => Number(data.names[i]) },
  { name: "cluster", key: clusterOfRow, text: (i) => clusterText(clusterOfRow(i)) },
  { name: "component", key: (i) => component[i], text: (i) => String(component[i]) },
  { name: "certainty", key: (i) => certainty[i], text: (i) => percent(certainty[i], 1), percent: true },
  { name: "log density", key: (i) => density[i], text: (i) => brief(density[i]) },
];
for (const column of data.columns) {
  const { name, levels, text, format } = column;
  if (text) {
    fields.push({ name, words: true, own: true, key: (i) => text[i], text: (i) => text[i] });
    continue;
  }
  const values = unpack(column.values);
  if (levels) {
    const read = (i) => (values[i] < 0 ? "–" : levels[values[i]]);
    fields.push({ name, words: true, own: true, levels, codes: values, key: (i) => values[i], text: read });
  } else {
    fields.push({ name, own: true, values, format, key: (i) => values[i], text: (i) => brief(values[i], format, 4) });
  }
}
