// Colours of components. Paul Tol's "light" scheme: made for filled, labelled areas, told apart by colour-blind eyes.

const HUES = ["#77aadd", "#ee8866", "#44bb99", "#eedd88", "#ffaabb", "#99ddff", "#bbcc33"];
const OTHERS = "#cfcfcf";
const WEIGHTS = "#b9a7cf";
const hues = new Map();

[...components.values()]
  .filter((row) => row.name !== "weights")
  .slice(0, HUES.length)
  .forEach((row, index) => hues.set(row.name, HUES[index]));
if (components.has("weights")) hues.set("weights", WEIGHTS);

function colourOf(component) {
  return hues.get(component) ?? OTHERS;
}

function drawLegend() {
  const sizes = new Map();
  const add = (name, size) => sizes.set(name, (sizes.get(name) ?? 0) + size);
  for (const layer of closure.children)
    for (const part of layer.children) add(hues.has(part.name) ? part.name : "", measured(part, state.measure));
  const chosen = state.selected && componentOf(state.selected);
  const rows = [...hues.keys()].filter((name) => sizes.has(name) && (state.weights || name !== "weights")).map((name) => {
    const key = thingOfComponent(name);
    const parts = [swatch(hues.get(name)), el("span", { class: "name" }, name), " ", el("small", {}, amount(sizes.get(name)))];
    if (key === null) return el("li", { class: "others" }, parts);
    return el("li", {}, el("button", { type: "button", "aria-pressed": String(chosen === name), onclick: () => select(key) }, parts));
  });
  const others = components.size - hues.size;
  if (others > 0) {
    const text = [swatch(OTHERS), counted(others, "other component"), " ", el("small", {}, amount(sizes.get("") ?? 0))];
    rows.push(el("li", { class: "others" }, text));
  }
  byId("legend").replaceChildren(...rows);
}

function swatch(colour) {
  return el("i", { class: "swatch", "aria-hidden": "true", style: { "--fill": colour } });
}

watch((changed) => {
  if (changed.has("measure") || changed.has("weights") || changed.has("selected")) drawLegend();
});
