// Squarified treemaps (Bruls, Huizing, van Wijk, 2000): rows of rectangles, each row as near to squares as it gets.

// sizes: positive, the largest first. Gives {x, y, width, height} for each, which fill the area.
function squarify(sizes, x, y, width, height) {
  const total = sizes.reduce((sum, size) => sum + size, 0);
  if (!total || width <= 0 || height <= 0) return sizes.map(() => ({ x, y, width: 0, height: 0 }));
  const scale = (width * height) / total;
  const areas = sizes.map((size) => size * scale);
  const placed = [];
  let from = 0;
  while (from < areas.length) {
    const side = Math.min(width, height);
    let to = from + 1;
    let sum = areas[from];
    while (to < areas.length && worst(areas, from, to + 1, sum + areas[to], side) <= worst(areas, from, to, sum, side)) {
      sum += areas[to];
      to += 1;
    }
    const depth = side ? sum / side : 0;
    let offset = 0;
    for (let index = from; index < to; index += 1) {
      const length = depth ? areas[index] / depth : 0;
      placed.push(
        width >= height
          ? { x, y: y + offset, width: depth, height: length }
          : { x: x + offset, y, width: length, height: depth },
      );
      offset += length;
    }
    if (width >= height) [x, width] = [x + depth, width - depth];
    else [y, height] = [y + depth, height - depth];
    from = to;
  }
  return placed;
}

// The worst ratio of sides in a row; areas stand by size, so it is at one of the row's ends.
function worst(areas, from, to, sum, side) {
  const square = side * side;
  return Math.max((square * areas[from]) / (sum * sum), (sum * sum) / (square * areas[to - 1]));
}
