// Answers of `flame` and `durations` as what the charts draw.

import { moment } from "../../parts/text.js";

/** Return the tree of a flame graph. Its root has the time of all. */
export function flameOf({ unit, nodes }) {
  const root = { name: "all", total: 0, self: 0, count: 0, unit, children: [] };
  const made = [];
  for (const node of nodes) {
    const each = { name: node.name ?? "(no name)", total: Number(node.total), self: Number(node.self), count: node.count, unit, children: [] };
    made.push(each);
    if (node.parent === null) {
      root.children.push(each);
      root.total += each.total;
      root.count += each.count;
    } else {
      made[node.parent].children.push(each);
    }
  }
  for (const each of [root, ...made]) each.children.sort((one, other) => other.total - one.total);
  return root;
}

/** Return a heat map as counts by row and column, with the edges of its rows in nanoseconds; null without any span. */
export function durationsOf(answer, name) {
  if (answer.from === null || !answer.counts.length) return null;
  const lowest = Math.min(...answer.rows);
  const rows = Math.max(...answer.rows) - lowest + 1;
  const columns = Math.max(...answer.columns) + 1;
  const counts = Array.from({ length: rows }, () => new Array(columns).fill(0));
  answer.counts.forEach((each, index) => {
    counts[answer.rows[index] - lowest][answer.columns[index]] += each;
  });
  const edges = Array.from({ length: rows + 1 }, (_, index) => (index + lowest === 0 ? 0 : 2 ** (index + lowest - 1)));
  const from = BigInt(answer.from);
  return { name, counts, edges, from, to: from + BigInt(answer.width) * BigInt(columns), when: (time) => moment(time).slice(0, 23) };
}
