// What is looked at: one place that changes, and everybody who draws it.

const state = { selected: null, zoom: closure, measure: "size", weights: true, tab: "files" };
const watchers = [];

function watch(draw) {
  watchers.push(draw);
}

function change(parts) {
  Object.assign(state, parts);
  for (const draw of watchers) draw(new Set(Object.keys(parts)));
}

// Select a thing; a second time lets it go. A file comes into view in the map, other things make it show the whole.
function select(key) {
  if (state.selected === key || key === null) return change({ selected: null });
  const leaf = leaves.get(key);
  if (!leaf) return change({ selected: key, zoom: closure });
  const path = pathOf(leaf);
  const around = path.findLast((node) => node !== leaf && node.size > 1.2 * leaf.size && (state.weights || node !== closure));
  const isWeight = path.includes(weightsLayer);
  return change({ selected: key, zoom: around ?? path[1], weights: state.weights || isWeight });
}

// Weights outweigh all else: where they do, the map starts without them.
const weightsLayer = closure.children.find((node) => node.name === "weights") ?? null;
if (weightsLayer && weightsLayer.size > closure.size / 2 && closure.children.length > 1) state.weights = false;
