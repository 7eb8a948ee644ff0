// A flame graph: whose time it is, callers above callees; a click shows one of them over the whole width.

import { colours, font, spanColour } from "../parts/theme.js";
import { cut, fit, length, plural, share } from "../parts/text.js";
import { Surface } from "./surface.js";

const ROW = 21;
const LEAST = 0.6;
const MOST_ROWS = 40;

export class Flame {
  /** A click on a node calls `picked(name)`. */
  constructor({ picked }) {
    this._root = null;
    this._top = null;
    this._boxes = [];
    this._picked = picked;
    this.surface = new Surface({
      label: "Flame graph",
      height: (width) => Math.max(3, Math.min(MOST_ROWS, this._top ? depth(this._top, width / (this._top.total || 1)) : 1)) * ROW,
      paint: (pen, width, height) => this._draw(pen, width, height),
      tip: (x, y) => this._describe(this._at(x, y)),
      picked: (x, y) => this._focus(this._at(x, y)),
    });
    this.element = this.surface.element;
  }

  /** Show a tree: each node has `name`, `total`, `self`, `count`, `unit` and `children`. */
  set(root) {
    this._root = this._top = root;
    this.surface.label = `Flame graph: ${root.children.slice(0, 5).map((each) => `${each.name} ${share(each.total / (root.total || 1))}`).join(", ")}`;
    this.surface.draw();
  }

  close() {
    this.surface.close();
  }

  _draw(pen, width, height) {
    pen.fillStyle = colours().surface;
    pen.fillRect(0, 0, width, height);
    this._boxes = [];
    if (this._top?.total > 0) this._node(pen, this._top, 0, 0, width);
  }

  _node(pen, node, row, x, width) {
    if (width < LEAST || row >= MOST_ROWS) return;
    const palette = colours();
    const y = row * ROW;
    this._boxes.push({ node, x, y, width });
    pen.fillStyle = node === this._root ? palette.sunken : palette[spanColour(node.name)];
    pen.fillRect(x, y, Math.max(width - 0.75, LEAST), ROW - 1.5);
    if (width > 24) {
      pen.font = font(12);
      pen.fillStyle = node === this._root ? palette.ink : palette["span-ink"];
      pen.fillText(fit(pen, node.name, width - 8), x + 5, y + ROW / 2 - 0.5);
    }
    let left = x;
    for (const child of node.children) {
      const wide = (child.total / node.total) * width;
      this._node(pen, child, row + 1, left, wide);
      left += wide;
    }
  }

  _at(x, y) {
    return this._boxes.find((box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + ROW)?.node ?? null;
  }

  _describe(node) {
    if (!node) return null;
    const part = share(node.total / (this._root.total || 1));
    return `${cut(node.name, 120)}: ${length(Math.round(node.total), node.unit)} (${part}), itself ${length(Math.round(node.self), node.unit)}, ${plural(node.count, "span")}`;
  }

  _focus(node) {
    if (!node) return;
    this._top = node === this._top ? this._root : node;
    if (node !== this._root) this._picked(node.name);
    this.surface.draw();
  }
}

/** Return how many rows of a tree are wide enough to be drawn. */
function depth(node, scale) {
  return 1 + Math.max(0, ...node.children.filter((each) => each.total * scale >= LEAST).map((each) => depth(each, scale)));
}
