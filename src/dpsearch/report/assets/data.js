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
const placed = (tag, name, style) => {
  const node = make(tag, undefined, { class: name });
  Object.assign(node.style, style);
  return node;
};

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const KINDS = { i1: Int8Array, i2: Int16Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };
const unpack = (packed) => new KINDS[packed.dtype](bytes(packed.data).buffer);
const data = JSON.parse($("report-data").textContent);
const rows = unpack(data.rows);
const component = unpack(data.component);
const density = unpack(data.density);
const n = rows.length;
const at = new Map(Array.from(rows, (row, i) => [row, i]));

// Numbers as `Format.text` in _numbers.py writes them: unit, whether they may be years, what is 0.
const brief = (x, [unit, years, tiny] = ["", false, 0], digits = 3) => {
  if (!Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  let text = "0";
  if (size > 0 && size >= tiny) {
    const decimals = Math.max(digits - 1 - Math.floor(Math.log10(size)), 0);
    text = size < 1e-4 || size >= 1e15
      ? Number(size.toPrecision(digits)).toExponential().replace("e+", "e").replace("-", "−")
      : size.toLocaleString("en", { maximumFractionDigits: decimals, useGrouping: !years });
  }
  const minus = x < 0 && text !== "0" ? "−" : "";
  return minus + ("$€£¥₹".includes(unit) ? unit + text : `${text}\u00a0${unit}`);
};
const spread = (x, [unit]) => "±\u00a0" + brief(x, [unit, false, 0], 2); // which is no year
const count = (x, what) => `${x.toLocaleString("en")} ${what}${x === 1 ? "" : "s"}`;
const percent = (x, digits = 0) => (100 * x).toFixed(digits) + "\u00a0%";
