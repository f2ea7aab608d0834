// From a thing to the profile's lines: every chain without loops, the shortest first, as `pih why` gives them.

const MOST_CHAINS = 12;
const MOST_STEPS = 4000;

// Each chain: words, the profile's line first, and the keys of the things that it passes.
function chainsOf(key) {
  const found = new Map();
  let open = [{ words: [], keys: [key], at: key }];
  for (let step = 0; step < MOST_STEPS && open.length && found.size < MOST_CHAINS; step += 1) {
    const { words, keys, at } = open.shift();
    if (at === null) {
      const text = words.join("\n");
      if (!found.has(text)) found.set(text, { words, keys });
      continue;
    }
    for (const { words: own, parent } of causes.get(at) ?? []) {
      if (parent !== null && keys.includes(parent)) continue;
      const longer = { words: [...own, ...words], keys: parent ? [parent, ...keys] : keys, at: parent };
      const place = open.findIndex((other) => other.words.length > longer.words.length);
      open.splice(place < 0 ? open.length : place, 0, longer);
    }
  }
  return [...found.values()];
}
