// Text and elements. All text of a bundle passes through `shown` and becomes a text node, never markup.

const UNITS = ["B", "kB", "MB", "GB", "TB"];
// What turns a line around, hides, or moves the cursor: shown by its number.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

function shown(text) {
  const numbered = (char) => "\\u" + char.charCodeAt(0).toString(16).padStart(4, "0");
  return String(text).toWellFormed().replace(HIDDEN, numbered);
}

// Bytes as people read them: three digits or so, and a unit of a thousand.
function amount(count) {
  let unit = 0;
  while (count >= 999.5 && unit < UNITS.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${count.toFixed(unit === 0 || count >= 99.95 ? 0 : 1)} ${UNITS[unit]}`;
}

// Bytes of memory, in units of 1024, as the profile gives them.
function memory(count) {
  return count >= 2 ** 30 ? `${(count / 2 ** 30).toFixed(2)} GiB` : `${(count / 2 ** 20).toFixed(1)} MiB`;
}

function share(part, whole) {
  if (!whole) return "";
  const percent = (100 * part) / whole;
  return percent > 0 && percent < 0.1 ? "< 0.1 %" : `${percent.toFixed(1)} %`;
}

function counted(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

function lastOf(path) {
  return path.slice(path.lastIndexOf("/") + 1) || path;
}

// An element: attributes by name, `on…` for listeners, then children, of which text becomes text.
function el(tag, attributes = {}, ...children) {
  const made = tag.startsWith("svg:")
    ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4))
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) made.style.setProperty(key, text);
    else made.setAttribute(name, value === true ? "" : shown(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === "") continue;
    made.append(child instanceof Node ? child : shown(child));
  }
  return made;
}

function byId(id) {
  return document.getElementById(id);
}
