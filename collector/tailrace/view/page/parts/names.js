// Names of sessions, processes and threads. An id stands where there is no name, and behind names that are alike.

import { get } from "../api.js";
import { count, moment, shortIds, visible } from "./text.js";

const REST_MILLISECONDS = 10_000;
const NOBODY = { process: null, pid: null, host: null, node: null, rank: null, job: null, file: null, group: null, opened: null, alive: false, labels: {}, threads: [] };
const THREAD_FILE = /\/thread\.([^/]+?)(?:\/stream)?\.obs[^/]*$/;

const keyOf = ({ source, session }) => `${source}\n${session}`;

export class Names {
  constructor() {
    this._version = null;
    this._at = -Infinity;
    this._take([]);
  }

  /** Read the names of a version of the table. While all `sessions` have names, they are read at most every 10 s. */
  async refresh(version, sessions) {
    const known = performance.now() - this._at < REST_MILLISECONDS && sessions.every((each) => this._facts.has(keyOf(each)));
    if (version === this._version || known) return;
    const answer = await get("names");
    this._at = performance.now();
    this._version = Math.max(version, answer.version);
    this._take(answer.sessions);
  }

  _take(sessions) {
    const ids = shortIds(sessions.map((each) => each.session));
    this._facts = new Map(sessions.map((each) => [keyOf(each), each]));
    this._titles = tellApart(sessions.map((each) => ({
      key: keyOf(each), scope: each.source, title: titleOf(each) || ids.get(each.session), more: moreOf(each, ids.get(each.session)),
    })));
    this._threads = new Map(sessions.flatMap((each) => each.threads.map(({ stream, name }) => [`${keyOf(each)}\n${stream}`, visible(name)])));
  }

  /** Return what is known of a session. */
  of(place) {
    return this._facts.get(keyOf(place)) ?? NOBODY;
  }

  /** Return the title of a session, which no other session of its source has. */
  session(place) {
    return this._titles.get(keyOf(place)) ?? place.session;
  }

  /** Return the title of a session by its id alone, or the id if several sources have it. */
  sessionOf(id) {
    const found = [...this._facts.values()].filter((each) => each.session === id);
    return found.length === 1 ? this.session(found[0]) : id;
  }

  /** Return the name of a stream: of its thread, where the format has a stream for each thread. */
  stream({ source, session, stream, format }) {
    const known = this._threads.get(`${source}\n${session}\n${stream}`);
    if (known) return known;
    if (!stream) return format === "jets" ? "records" : "(no stream)";
    const [pid, tid] = stream.split("/").slice(-2);
    if ((format === "ovni" || format === "dftracer") && tid) return pid === tid ? "main thread" : `thread ${visible(tid)}`;
    if (format === "et3") return `thread ${visible(stream)}`;
    return /^\d+$/.test(stream) ? `stream ${stream}` : visible(stream);
  }

  /** Return the process that wrote a stream, as an item of `tellApart`. A session of ovni is one thread of a process. */
  process({ source, session, stream, format }) {
    const facts = this.of({ source, session });
    const parts = stream.split("/");
    if (format === "ovni" && parts.length === 3) {
      const [loom, pid] = parts;
      return { key: [source, facts.group, loom, pid].join("\n"), scope: source, title: titleOf({ ...facts, pid }), more: [placeOf(facts), loom, facts.group] };
    }
    return { key: keyOf({ source, session }), scope: source, title: this.session({ source, session }), more: [] };
  }

  /** Return all that is known of a lane, names first and ids last, as pairs. */
  facts(lane) {
    const { process, pid, rank, node, host, job, file, labels } = this.of(lane);
    return [
      ["process", process], ["process id", pid], ["rank", rank], ["node", node], ["host", host], ["job", job], ["file", file],
      ...Object.entries(labels).map(([name, value]) => [`label ${visible(name)}`, value]),
      ["source", lane.source], ["format", lane.format], ["clock", lane.clock],
      ["events", count(lane.events)], ["missing", lane.missing === null ? "an unknown number" : count(lane.missing)],
      ["session id", lane.session], ["stream id", lane.stream], ["substream", lane.substream],
    ];
  }
}

/** Return the titles of items by their `key`. Within a `scope`, titles that are alike get those of the words `more` that
 * differ, in order, until no two are alike. */
export function tellApart(items) {
  const titles = new Map(items.map(({ key, title }) => [key, title]));
  const most = Math.max(0, ...items.map(({ more }) => more.length));
  for (let at = 0; at < most; at += 1) {
    const alike = Map.groupBy(items, ({ key, scope }) => `${scope}\n${titles.get(key)}`);
    for (const several of alike.values()) {
      if (new Set(several.map(({ more }) => more[at])).size < 2) continue;
      for (const { key, more } of several) if (more[at]) titles.set(key, `${titles.get(key)} · ${visible(more[at])}`);
    }
  }
  return titles;
}

function titleOf({ process, rank, pid, file }) {
  const name = process ?? (pid === null ? file?.split("/").at(-1) : `process ${pid}`);
  const place = rank === null || /^rank\b/i.test(process ?? "") ? null : `rank ${rank}`;
  return [place, name].filter(Boolean).map((each) => visible(String(each))).join(" · ");
}

const placeOf = ({ node, host }) => node ?? host;

/** Return the words that tell a session apart from others of the same title, in order. */
function moreOf(facts, id) {
  const { process, pid, file, labels, opened } = facts;
  const [thread] = THREAD_FILE.exec(file ?? "")?.slice(1) ?? [];
  const directory = file?.split("/").slice(0, -1);
  return [
    thread ? `thread ${thread}` : null, placeOf(facts), process && pid ? `process ${pid}` : null,
    Object.entries(labels).map(([name, value]) => `${name} ${value}`).join(", "), directory?.at(-1), directory?.join("/"),
    opened === null ? null : moment(opened).slice(0, 19), id,
  ];
}
