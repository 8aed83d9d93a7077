/* Clusters at the level that was chosen: the tree over components, cut as `Tree.cut` does it. */
const tree = data.tree;
const branches = data.branches;
const nFitted = tree.fitted.length;
const nComponents = tree.merges ? tree.merges.length + 1 : nFitted;
const SMALL = 4, SMALL_SHARE = 0.02; // clusters of so few rows are shown as rows apart
const heights = tree.merges ? unpack(tree.heights) : [];
const lifts = tree.merges ? unpack(tree.lift) : [];
const weights = tree.merges ? unpack(tree.weights) : [];
const agreement = tree.merges ? unpack(tree.agreement) : [];
const membersOf = (branch) => tree.members[branch];

// What is shown now: for each cluster its branch, its components, and the cluster that its rows are
// nearest to if they are rows apart, else −1.
let clusters = [];
const clusterOf = new Int32Array(Math.max(...tree.members.flat()) + 1);
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

const logSum = (values) => {
  const top = Math.max(...values);
  return top === -Infinity ? top : top + Math.log(values.reduce((sum, x) => sum + Math.exp(x - top), 0));
};
const lift = (a, b) => lifts[(Math.max(a, b) * (Math.max(a, b) - 1)) / 2 + Math.min(a, b)];
const share = (members) => logSum(members.map((k) => weights[k]));
// The log lift of two clusters: the mean of those of their components, by their shares.
const logLift = (one, other) =>
  logSum(one.flatMap((a) => other.map((b) => lift(a, b) + weights[a] + weights[b]))) - share(one) - share(other);

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
  }));
  clusters.forEach((one) => one.members.forEach((j) => { clusterOf[j] = one.k; }));
  if (tree.merges) findRowsApart();
}

const described = () => clusters.filter((one) => one.apart < 0);
const rowsApart = () => clusters.filter((one) => one.apart >= 0);
const clustersIn = (members) => [...new Set(members.map((j) => clusterOf[j]))].sort((a, b) => a - b);
setClusters(nFitted);

const clusterText = (k) => (clusters[k].apart < 0 ? String(k) : `${k}, apart (near ${clusters[k].apart})`);
// A field of a row: `key` sorts and plots, `text` is read.
const numbered = data.names.every((name) => name !== "" && Number.isFinite(Number(name)));
const fields = [
  { name: "row", key: (i) => rows[i], text: (i) => data.names[i], words: !numbered, value: (i) => Number(data.names[i]) },
  { name: "cluster", key: clusterOfRow, text: (i) => clusterText(clusterOfRow(i)) },
  { name: "component", key: (i) => component[i], text: (i) => String(component[i]) },
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
