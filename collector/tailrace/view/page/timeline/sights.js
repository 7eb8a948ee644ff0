// Where the parts of a frame stand in a viewport: each part has a range of time, each piece of the viewport a scale.

/** Return where a frame's parts are in sight, right of the pixel `left`: for each its `part`, and how its times become
 * pixels from `left` to `left + width`. */
export function sightsOf(view, frame, left) {
  const found = [];
  for (const piece of view.pieces()) {
    for (const part of frame?.parts ?? []) {
      if (part.to <= piece.from || part.from >= piece.to) continue;
      const at = (time) => Math.min(Math.max(piece.x + (Number(time - piece.from) - piece.part) * piece.scale, piece.x), piece.end);
      const [first, last] = [at(part.from), at(part.to)];
      const shift = Number(part.from - piece.from) - piece.part - (first - piece.x) / piece.scale;
      found.push({ part, shift, scale: piece.scale, left: left + first, width: last - first, bucket: part.bucket });
    }
  }
  return found;
}

/** Return the sight at a pixel, or undefined. */
export const sightAt = (sights, x) => sights.find(({ left, width }) => x >= left && x <= left + width);
