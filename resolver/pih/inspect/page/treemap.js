// The map: one level of the closure as buttons, with a glimpse of the level below in each.

const GAP = 3;
const LABEL = 20;
const SMALLEST = 2; // what would be thinner is not drawn; the level's table has it

function childrenOf(node) {
  return node.children.filter((inner) => measured(inner, state.measure) > 0 && (state.weights || inner !== weightsLayer));
}

function wholeOf(node) {
  return childrenOf(node).reduce((sum, inner) => sum + measured(inner, state.measure), 0);
}

function drawMap() {
  const map = byId("map");
  const focused = map.contains(document.activeElement) ? document.activeElement.node : null;
  const { width, height } = map.getBoundingClientRect();
  const inner = childrenOf(state.zoom);
  inner.sort((a, b) => measured(b, state.measure) - measured(a, state.measure));
  const sizes = inner.map((node) => measured(node, state.measure));
  const boxes = squarify(sizes, 0, 0, width, height);
  const cells = inner.map((node, index) => cell(node, boxes[index])).filter(Boolean);
  map.replaceChildren(...cells);
  const next = cells.find((one) => one.node === focused) ?? cells.find((one) => one.node.key && one.node.key === state.selected) ?? cells[0];
  if (next) next.tabIndex = 0;
  if (focused) (next ?? map).focus();
  drawCrumbs();
  drawLevel(inner);
  const hides = weightsLayer && !state.weights && state.zoom === closure;
  byId("left-out").hidden = !hides;
  if (hides) byId("left-out").replaceChildren(`The weights, ${amount(measured(weightsLayer, state.measure))}, are left out of the map.`);
}

// How a node stands to what is selected: with it, apart from it, or neither where nothing has a place in the map.
function marks(node) {
  const key = state.selected;
  if (key === null || (!leaves.has(key) && componentOf(key) === null && things.get(key).kind !== "layer")) return "";
  return holds(node, key) ? (node.kind === "layer" ? "" : " chosen") : " apart";
}

// Whether a node has what is selected in it: the file itself, or files of the selected component.
function holds(node, key) {
  if (leaves.has(key)) return pathOf(leaves.get(key)).includes(node);
  const thing = things.get(key);
  if (thing.kind === "layer") return pathOf(node).some((at) => at.kind === "layer" && `${at.name} layer` === thing.name);
  const name = componentOf(key);
  return name !== null && (node.component ? node.component === name : node.children.some((inner) => holds(inner, key)));
}

function cell(node, box) {
  const [x, y, width, height] = [box.x + GAP / 2, box.y + GAP / 2, box.width - GAP, box.height - GAP];
  if (width < SMALLEST || height < SMALLEST) return null;
  const made = el("button", {
    type: "button",
    class: `cell ${node.kind}${marks(node)}`,
    tabindex: -1,
    "aria-pressed": node.key ? String(node.key === state.selected) : false,
    "aria-label": spoken(node),
    style: { left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px`, "--fill": fillOf(node) },
    onclick: () => open(node),
  });
  made.node = node;
  const isLabelled = width > 46 && height > LABEL;
  if (isLabelled) made.append(label(node, width));
  if (node.children.length && width > 24 && height > LABEL + 16) glimpse(made, node, width, height);
  return made;
}

function fillOf(node) {
  return node.component ? colourOf(node.component) : "var(--card)";
}

function label(node, width) {
  const size = width > 110 ? el("small", {}, amount(measured(node, state.measure))) : null;
  return el("span", { class: "label", "aria-hidden": "true" }, el("b", {}, node.name), size);
}

// What a glimpse shows: of a layer its components, of these their files, whatever the folders between.
function below(node) {
  if (node.kind === "layer" || node.kind === "bundle") return childrenOf(node);
  return childrenOf(node).flatMap((inner) => (inner.kind === "file" ? [inner] : below(inner)));
}

function glimpse(parent, node, width, height) {
  const inner = below(node).sort((a, b) => measured(b, state.measure) - measured(a, state.measure));
  const boxes = squarify(inner.map((one) => measured(one, state.measure)), 4, LABEL + 2, width - 10, height - LABEL - 8);
  inner.forEach((one, index) => {
    const box = boxes[index];
    if (box.width < 3 || box.height < 3) return;
    const style = { left: `${box.x}px`, top: `${box.y}px`, width: `${box.width - 1}px`, height: `${box.height - 1}px`, "--fill": fillOf(one) };
    const part = el("span", { class: `part${marks(one)}`, "aria-hidden": "true", style });
    if (box.width > 54 && box.height > 17) part.append(shown(one.name));
    part.node = one;
    parent.append(part);
  });
}

function spoken(node) {
  const size = amount(measured(node, state.measure));
  const many = node.kind === "file" ? "" : `, ${counted(node.files, "file")}`;
  const does = node.kind === "file" ? "Show why it is here." : "Open.";
  return `${node.name}, ${node.kind}, ${size}, ${share(measured(node, state.measure), wholeOf(state.zoom))} of ${state.zoom.name}${many}. ${does}`;
}

function open(node) {
  if (node.kind === "file") return change({ selected: state.selected === node.key ? null : node.key });
  return change({ zoom: node });
}

function up() {
  const from = state.zoom;
  if (!from.parent) return change({ selected: null });
  change({ zoom: from.parent });
  const cells = [...byId("map").children];
  const before = cells.find((one) => one.node === from) ?? cells[0];
  for (const one of cells) one.tabIndex = one === before ? 0 : -1;
  before?.focus();
}

function drawCrumbs() {
  const path = pathOf(state.zoom);
  const items = path.map((node, index) => {
    const isHere = index === path.length - 1;
    return el("li", {}, isHere ? el("span", { "aria-current": "location" }, node.name) : el("button", { type: "button", onclick: () => change({ zoom: node }) }, node.name));
  });
  const size = el("small", {}, `${amount(wholeOf(state.zoom))}`);
  byId("crumbs").replaceChildren(el("ol", {}, items), size);
}

function drawLevel(inner) {
  const whole = wholeOf(state.zoom);
  const rows = inner.map((node) =>
    el("tr", {},
      el("th", { scope: "row" }, el("button", { type: "button", class: "link", onclick: () => open(node) }, node.name)),
      el("td", { class: "number" }, amount(measured(node, state.measure))),
      el("td", { class: "number" }, share(measured(node, state.measure), whole)),
      el("td", { class: "number" }, node.files.toLocaleString("en")),
    ),
  );
  const head = ["Name", "Size", "Share", "Files"].map((text, index) => el("th", { scope: "col", class: index ? "number" : false }, text));
  const table = el("table", {}, el("caption", { class: "unseen" }, `Contents of ${state.zoom.name}`), el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows));
  byId("level").querySelector("div").replaceChildren(table);
}

// The nearest cell in a direction, by the distance of centres, what lies off the axis counting double.
function neighbour(from, dx, dy) {
  const centre = (one) => {
    const box = one.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  };
  const [x, y] = centre(from);
  let best = null;
  let least = Infinity;
  for (const one of byId("map").children) {
    const [ox, oy] = centre(one);
    const along = (ox - x) * dx + (oy - y) * dy;
    const across = Math.abs((ox - x) * dy) + Math.abs((oy - y) * dx);
    if (one !== from && along > 1 && along + 2 * across < least) [best, least] = [one, along + 2 * across];
  }
  return best;
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function onMapKey(event) {
  const cells = [...byId("map").children];
  const here = cells.indexOf(document.activeElement);
  let next = null;
  if (event.key in ARROWS && here >= 0) next = neighbour(cells[here], ...ARROWS[event.key]);
  else if (event.key === "Home") next = cells[0];
  else if (event.key === "End") next = cells.at(-1);
  else if (event.key === "Escape") up();
  else return;
  event.preventDefault();
  event.stopPropagation();
  if (!next) return;
  for (const one of cells) one.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function onMapHover(event) {
  const at = event.target.closest?.(".part, .cell");
  const tip = byId("tip");
  tip.hidden = !at;
  if (!at) return;
  const { node } = at;
  const file = node.key && files.get(node.key);
  const size = `${amount(node.size)} unpacked, ${share(node.size, closure.size)} of the bundle`;
  const name = file ? file.path : pathOf(node).slice(1).map((one) => one.name).join(" › ");
  const lines = [el("b", {}, name), size, file ? `${file.component}: ${file.reason}` : counted(node.files, "file")];
  tip.replaceChildren(...lines.map((line) => el("div", {}, line)));
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - width - 8);
  const below = event.clientY + 18 + height < window.innerHeight;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${below ? event.clientY + 18 : event.clientY - height - 12}px`;
}

function drawMeasures() {
  const choice = (value, text) => {
    const input = el("input", { type: "radio", name: "measure", value, checked: state.measure === value, onchange: () => change({ measure: value }) });
    return el("label", {}, input, el("span", {}, text));
  };
  const parts = [];
  if (isShipped) parts.push(el("fieldset", { class: "segments" }, el("legend", { class: "unseen" }, "Size"), choice("size", "Unpacked"), choice("shipped", "Shipped")));
  if (weightsLayer) {
    const input = el("input", { type: "checkbox", id: "weights", checked: state.weights, onchange: (event) => change({ weights: event.target.checked, zoom: closure }) });
    parts.push(el("label", { class: "check" }, input, " Weights"));
  }
  byId("measures").replaceChildren(...parts);
}

watch((changed) => {
  if (["zoom", "measure", "weights", "selected"].some((part) => changed.has(part))) drawMap();
  if (weightsLayer && changed.has("weights")) byId("weights").checked = state.weights;
  if (changed.has("zoom")) byId("said").replaceChildren(shown(`${state.zoom.name}, ${amount(wholeOf(state.zoom))}, ${counted(childrenOf(state.zoom).length, "part")}`));
});
