// Facts about sessions that most answers lack: where a session ran, and the title of the session with an id.

import { get } from "../api.js";
import { count, visible } from "./text.js";

const REST_MILLISECONDS = 10_000;
const NOBODY = { process: null, pid: null, host: null, node: null, rank: null, job: null, file: null, labels: {} };

const keyOf = ({ source, session }) => `${source}\n${session}`;

export class Names {
  constructor() {
    this._version = null;
    this._at = -Infinity;
    this._facts = new Map();
  }

  /** Read the names of a version of the table. While all `sessions` have names, they are read at most every 10 s. */
  async refresh(version, sessions) {
    const known = performance.now() - this._at < REST_MILLISECONDS && sessions.every((each) => this._facts.has(keyOf(each)));
    if (version === this._version || known) return;
    const answer = await get("names");
    this._at = performance.now();
    this._version = Math.max(version, answer.version);
    this._facts = new Map(answer.sessions.map((each) => [keyOf(each), each]));
  }

  /** Return the title of a session, which no other session of its source has. */
  session(place) {
    return visible(this._facts.get(keyOf(place))?.title ?? place.session);
  }

  /** Return the title of a session by its id alone, or the id if several sources have it. */
  sessionOf(id) {
    const found = [...this._facts.values()].filter((each) => each.session === id);
    return found.length === 1 ? this.session(found[0]) : id;
  }

  /** Return all that is known of a lane, names first and ids last, as pairs. */
  facts(lane) {
    const { process, pid, rank, node, host, job, file, labels } = this._facts.get(keyOf(lane)) ?? NOBODY;
    return [
      ["process", process], ["process id", pid], ["rank", rank], ["node", node], ["host", host], ["job", job], ["file", file],
      ...Object.entries(labels).map(([name, value]) => [`label ${visible(name)}`, value]),
      ["source", lane.source], ["format", lane.format], ["clock", lane.clock],
      ["events", count(lane.events)], ["missing", lane.missing === null ? "an unknown number" : count(lane.missing)],
      ["session id", lane.session], ["stream id", lane.stream], ["substream", lane.substream],
    ];
  }
}
