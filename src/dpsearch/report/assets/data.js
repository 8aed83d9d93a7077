/* The data of the page.  Text from the data reaches the page through textContent only. */
const $ = (id) => document.getElementById(id);
const make = (tag, text, attributes = {}) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};
// An element with other elements, or texts, in it.
const nest = (tag, attributes, ...inside) => {
  const node = make(tag, undefined, attributes);
  node.append(...inside.filter((one) => one !== null && one !== ""));
  return node;
};

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const KINDS = { i1: Int8Array, i2: Int16Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };
const unpack = (packed) => new KINDS[packed.dtype](bytes(packed.data).buffer);
const data = JSON.parse($("report-data").textContent);
const rows = unpack(data.rows);
const component = unpack(data.component);
const second = unpack(data.second);
const certainty = unpack(data.certainty);
const density = unpack(data.density);
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
const count = (x, what) => `${x.toLocaleString("en")} ${what}${x === 1 ? "" : "s"}`;
const percent = (x, digits = 0) => (100 * x).toFixed(digits) + " %";
