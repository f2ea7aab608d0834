// The bundle: its files as a tree of layers, components and folders; its things with their causes.

const bundle = JSON.parse(byId("data").textContent);
const things = new Map(); // by key
const causes = new Map(); // lists of {words, parent} by key; parent is a key or null

function keyOf(kind, name) {
  return `${kind}\n${name}`;
}

for (const { kind, name, about, digest, component, why } of bundle.graph) {
  const key = keyOf(kind, name);
  things.set(key, { key, kind, name, about, digest, component: component && keyOf(...component) });
  causes.set(key, why.map(([words, parent]) => ({ words, parent: parent && keyOf(...parent) })));
}

const files = new Map(bundle.files.map((file) => [keyOf("file", file.path), file]));
const components = new Map(bundle.components.map((row) => [row.name, row]));
const ratios = new Map(bundle.layers.map((row) => [row.name, row.size ? row.compressed / row.size : 0]));
const isShipped = bundle.layers.some((row) => row.compressed > 0);

// What a component is called among the things; a file's own component may be another part than its list says.
function thingOfComponent(name) {
  for (const kind of ["plugin", "artifact", "part"]) if (things.has(keyOf(kind, name))) return keyOf(kind, name);
  return null;
}

function componentOf(key) {
  if (files.has(key)) return files.get(key).component;
  const thing = things.get(key);
  return thing && components.has(thing.name) && thing.kind !== "layer" ? thing.name : null;
}

function folder(name, kind, parent, component = null) {
  return { name, kind, parent, component, children: [], size: 0, shipped: 0, files: 0, key: null, inner: new Map() };
}

function child(node, name, kind, component) {
  let found = node.inner.get(name);
  if (!found) {
    found = folder(name, kind, node, component);
    node.inner.set(name, found);
    node.children.push(found);
  }
  return found;
}

// The whole closure. A node's size is what its files take unpacked, shipped its share of the layers' blobs.
function grow() {
  const root = folder(bundle.identity.name, "bundle", null);
  for (const layer of bundle.layers) child(root, layer.name, "layer");
  for (const file of bundle.files) {
    let node = child(child(root, file.layer, "layer"), file.component, "component", file.component);
    const parts = file.path.split("/").filter(Boolean);
    for (const part of parts.slice(0, -1)) node = child(node, `${part}/`, "folder", file.component);
    const leaf = folder(parts.at(-1) ?? file.path, "file", node, file.component);
    leaf.key = keyOf("file", file.path);
    node.children.push(leaf);
    const shipped = file.size * (ratios.get(file.layer) ?? 0);
    for (let at = leaf; at; at = at.parent) {
      at.size += file.size;
      at.shipped += shipped;
      at.files += 1;
    }
  }
  settle(root);
  return root;
}

// A folder with one folder in it is one step, and children stand by size.
function settle(node) {
  for (let index = 0; index < node.children.length; index += 1) {
    let inner = node.children[index];
    while (inner.kind === "folder" && inner.children.length === 1 && inner.children[0].kind === "folder") {
      inner.children[0].name = inner.name + inner.children[0].name;
      inner = inner.children[0];
      inner.parent = node;
    }
    node.children[index] = inner;
    settle(inner);
  }
  node.children.sort((a, b) => b.size - a.size || (a.name < b.name ? -1 : 1));
}

const closure = grow();
const leaves = new Map();
(function note(node) {
  if (node.key) leaves.set(node.key, node);
  node.children.forEach(note);
})(closure);

function pathOf(node) {
  return node ? [...pathOf(node.parent), node] : [];
}

function measured(node, measure) {
  return measure === "shipped" ? node.shipped : node.size;
}
