// The capability graph: columns of buttons, and lines between them that a picture behind draws.

const LINE = "line"; // the kind of nodes that are lines of the profile

const nodes = new Map(); // the button of a key
let links = []; // {from, to, kind}

function rootsOf(key) {
  return (causes.get(key) ?? []).filter((cause) => cause.parent === null);
}

// Plugins by how far they are from the profile, those next to it in the order of its lines.
function orderedPlugins() {
  const place = (key) => {
    const [first] = chainsOf(key);
    const line = first ? Number(/:(\d+) /.exec(first.words[0])?.[1] ?? 0) : 0;
    return [first ? first.words.length : 99, line];
  };
  const ranked = bundle.plugins.map((plugin) => ({ plugin, at: place(keyOf("plugin", plugin.id)) }));
  return ranked.sort((a, b) => a.at[0] - b.at[0] || a.at[1] - b.at[1]).map(({ plugin }) => plugin);
}

// What plugins and lines bring along, grouped by who does. Parents: keys; of everyone, more than a few.
function groups() {
  const found = new Map();
  for (const thing of things.values()) {
    if (thing.kind !== "artifact" && thing.kind !== "part") continue;
    if (thing.kind === "part" && thing.name === "base userland") continue;
    const why = causes.get(thing.key) ?? [];
    if (!why.length) continue;
    const [{ words, parent }] = why;
    const isEveryones = why.length > 3;
    const title = isEveryones ? "needed by every plugin" : titleOf(thing, words, parent);
    const parents = isEveryones ? why.map((cause) => cause.parent) : [parent ?? keyOf(LINE, words[0])];
    const id = `${parents[0]}\n${title}`;
    if (!found.has(id)) found.set(id, { title, parents, isEveryones, members: [] });
    found.get(id).members.push(thing);
  }
  return [...found.values()];
}

function titleOf(thing, words, parent) {
  if (parent === null && words.length === 1) return "named by the profile";
  const last = words.at(-1);
  const own = thing.kind === "artifact" && last.endsWith(thing.name) ? last.slice(0, -thing.name.length).trim() : last;
  return parent === null ? own.split(":")[0] : own;
}

// Whether a group goes back to a line of the profile without a plugin between.
function isOfLine({ parents }) {
  return parents.some((key) => key.startsWith(`${LINE}\n`) || (causes.get(key) ?? []).some((cause) => cause.parent === null && things.get(key)?.kind !== "plugin"));
}

function node(key, text, kind, extra = {}) {
  const made = el("button", { type: "button", class: `node ${kind}`, "aria-pressed": "false", ...extra }, text);
  if (things.has(key)) made.addEventListener("click", () => select(key));
  nodes.set(key, made);
  return made;
}

function lineNode(text) {
  const key = keyOf(LINE, text);
  if (nodes.has(key)) return null;
  const [, place, said] = /^(.*?:\d+) (.*)$/s.exec(text) ?? [null, "", text];
  const made = el("div", { class: "node line", title: shown(text) }, el("small", {}, place.replace(/^.*\//, "")), said);
  nodes.set(key, made);
  return made;
}

function pluginRow(plugin, lines) {
  const key = keyOf("plugin", plugin.id);
  const provided = Object.keys(plugin.provides).map((name) => {
    links.push({ from: keyOf("capability", name), to: key, kind: "provides" });
    return node(keyOf("capability", name), name, "capability");
  });
  for (const { words } of rootsOf(key)) {
    lines.push(lineNode(words[0]));
    const asked = bundle.requires.filter((need) => need.provider === plugin.id).map((need) => need.capability);
    for (const name of asked.length ? asked : Object.keys(plugin.provides)) {
      links.push({ from: keyOf(LINE, words[0]), to: keyOf("capability", name), kind: "asks" });
    }
  }
  for (const need of plugin.requires) links.push({ from: key, to: keyOf("capability", need.capability), kind: "requires" });
  return el("div", { class: "row" }, el("div", { class: "capabilities" }, provided), node(key, plugin.id, "plugin"));
}

function groupBox({ title, parents, isEveryones, members }, lines) {
  for (const parent of parents) if (parent.startsWith(`${LINE}\n`)) lines.push(lineNode(parent.slice(LINE.length + 1)));
  const buttons = members.map((thing) => {
    for (const parent of parents) links.push({ from: parent, to: thing.key, kind: "brings", isGrouped: true, isHidden: isEveryones });
    return node(thing.key, thing.name, components.has(thing.name) || thing.kind === "part" ? "artifact" : "artifact tool");
  });
  return el("div", { class: "group" }, el("p", {}, title), buttons);
}

function drawGraph() {
  nodes.clear();
  links = [];
  const [above, below] = [[], []]; // lines of the profile: those that plugins answer, and the others
  const rows = orderedPlugins().map((plugin) => pluginRow(plugin, above));
  const found = groups();
  const ofPlugins = found.filter((group) => !isOfLine(group)).map((group) => groupBox(group, above));
  const ofLines = found.filter(isOfLine).map((group) => groupBox(group, below));
  const column = (title, name, ...children) => el("div", { class: `column ${name}` }, title && el("h3", {}, title), el("div", { class: "stack" }, children));
  const middle = el("div", { class: "column" }, el("div", { class: "heads" }, el("h3", {}, "Capabilities"), el("h3", {}, "Plugins")), el("div", { class: "stack" }, rows));
  const legend = el("ul", { class: "legend small" },
    el("li", {}, el("i", { class: "stroke" }), "provides, brings"),
    el("li", {}, el("i", { class: "stroke dashed" }), "requires"),
    el("li", {}, el("i", { class: "chip tool" }), "for the build alone, not in the image"),
  );
  byId("graph").replaceChildren(
    el("div", { class: "canvas" },
      el("svg:svg", { "aria-hidden": "true", focusable: "false" }),
      el("div", { class: "band" }, column("Profile", "", above), middle, column("Brought along", "", ofPlugins), column("Selected", "chosen")),
      el("div", { class: "band" }, column("", "", below), el("div", {}), column("", "", ofLines)),
    ),
    legend,
  );
}

function pairsOf(keys) {
  const pairs = new Set();
  for (let index = 1; index < keys.length; index += 1) pairs.add(`${keys[index - 1]}\n\n${keys[index]}`);
  return pairs;
}

// The shortest chain as the graph has it: a plugin reaches another one by way of the capability that it requires.
function routeOf(chain) {
  const route = [];
  const keys = [keyOf(LINE, chain.words[0]), ...chain.keys];
  keys.forEach((key, index) => {
    const before = route.at(-1);
    if (before && things.get(key)?.kind === "plugin") {
      const provided = links.filter((link) => link.to === key && link.kind === "provides").map((link) => link.from);
      const through = provided.find((capability) => links.some((link) => link.from === before && link.to === capability));
      if (through) route.push(through);
    }
    if (index === 0 || things.get(key)?.kind !== "layer") route.push(key);
  });
  return route;
}

function drawChosen() {
  const column = document.querySelector(".column.chosen .stack");
  for (const key of [...nodes.keys()]) if (key.startsWith("file\n")) nodes.delete(key);
  links = links.filter((link) => link.kind !== "file");
  const chain = state.selected && chainsOf(state.selected)[0];
  const route = chain ? routeOf(chain) : [];
  const inChain = route.filter((key) => files.has(key) || ["file", "op", "kernel", "image", "layer"].includes(things.get(key)?.kind));
  column.replaceChildren(
    ...inChain.map((key) => node(key, things.get(key).kind === "file" ? lastOf(things.get(key).name) : things.get(key).name, "file", { title: shown(things.get(key).name) })),
    inChain.length ? "" : el("p", { class: "hint" }, "A selected file or kernel stands here."),
  );
  const pairs = pairsOf(route);
  for (const pair of pairs) {
    const [from, to] = pair.split("\n\n");
    if (inChain.includes(to)) links.push({ from, to, kind: "file" });
  }
  for (const [key, made] of nodes) {
    const isOn = route.includes(key);
    made.classList.toggle("on", isOn);
    made.classList.toggle("of", !isOn && key === things.get(state.selected)?.component);
    made.classList.toggle("off", route.length > 0 && !isOn);
    if (made.tagName === "BUTTON") made.setAttribute("aria-pressed", String(key === state.selected));
  }
  drawLinks(pairs, route.length > 0);
}

function drawLinks(pairs = new Set(), isChosen = false) {
  const canvas = document.querySelector("#graph .canvas");
  const picture = canvas.querySelector("svg");
  const origin = canvas.getBoundingClientRect();
  picture.setAttribute("viewBox", `0 0 ${origin.width} ${origin.height}`);
  const seen = new Set();
  const drawn = links.map((link) => {
    const isOn = pairs.has(`${link.from}\n\n${link.to}`);
    const from = nodes.get(link.from);
    const goal = nodes.get(link.to);
    if (!from || !goal) return null;
    if (link.isHidden && !isOn) return null;
    const to = link.isGrouped && !isOn ? goal.closest(".group") : goal;
    const line = `${curve(from.getBoundingClientRect(), to.getBoundingClientRect(), origin)}`;
    if (!isOn && seen.has(line)) return null;
    seen.add(line);
    return el("svg:path", { d: line, class: `${link.kind}${isOn ? " on" : isChosen ? " off" : ""}` });
  });
  picture.replaceChildren(...drawn.filter(Boolean).sort((a, b) => a.classList.contains("on") - b.classList.contains("on")));
}

// From the side of one box to the facing side of another; boxes of one column are joined from above to below.
function curve(a, b, origin) {
  if (a.right > b.left && b.right > a.left) {
    const [x, y1, y2] = [Math.min(a.left, b.left) - origin.left, a.y + a.height / 2 - origin.top, b.y + 14 - origin.top];
    if (Math.abs(b.top - a.bottom) > 30) return `M${a.left - origin.left} ${y1}C${x - 26} ${y1} ${x - 26} ${y2} ${b.left - origin.left} ${y2}`;
    const middle = a.left + Math.min(a.width, b.width) / 2 - origin.left;
    return `M${middle} ${a.bottom - origin.top}L${middle} ${b.top - origin.top}`;
  }
  const isForward = a.x < b.x;
  const [x1, x2] = isForward ? [a.right, b.left] : [a.left, b.right];
  const [y1, y2] = [a.y + a.height / 2, b.y + Math.min(b.height / 2, 14)].map((y) => y - origin.top);
  const [from, to] = [x1 - origin.left, x2 - origin.left];
  const bend = Math.max(24, Math.abs(to - from) / 2) * (isForward ? 1 : -1);
  const numbers = [from, y1, from + bend, y1, to - bend, y2, to, y2].map((value) => value.toFixed(1));
  return `M${numbers[0]} ${numbers[1]}C${numbers.slice(2).join(" ")}`;
}

watch((changed) => {
  if (changed.has("selected")) drawChosen();
});
