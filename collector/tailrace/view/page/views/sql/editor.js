// CodeMirror in a shadow root: there its style sheets are adopted, which the page's policy allows.

import {
  autocompletion, bracketMatching, closeBrackets, completionKeymap, defaultKeymap, drawSelection, EditorState, EditorView,
  HighlightStyle, history, historyKeymap, keymap, PostgreSQL, sql, syntaxHighlighting, tags,
} from "../../vendor/codemirror.js";
import { h } from "../../parts/dom.js";

const LOOKS = EditorView.theme({
  "&": { backgroundColor: "var(--surface)", color: "var(--ink)", fontSize: "13.5px", minHeight: "150px", maxHeight: "46vh" },
  ".cm-content": { fontFamily: "var(--mono)", caretColor: "var(--ink)", padding: "10px 4px" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { overflow: "auto" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--select)" },
  ".cm-tooltip": { backgroundColor: "var(--surface)", border: "1px solid var(--line-strong)", color: "var(--ink)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--accent-ink)" },
});
const COLOURS = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--line-2)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--line-3)" },
  { tag: tags.comment, color: "var(--soft)", fontStyle: "italic" },
]);

export class Editor {
  constructor({ text, views, ran, changed }) {
    this.element = h("div", { class: "editor" });
    const root = this.element.attachShadow({ mode: "open" });
    const run = { key: "Mod-Enter", run: () => (ran(), true) };
    this._view = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: text,
        extensions: [
          history(), drawSelection(), bracketMatching(), closeBrackets(), autocompletion(), EditorView.lineWrapping,
          sql({ dialect: PostgreSQL, upperCaseKeywords: true, schema: Object.fromEntries(views.map((view) => [view.name, view.columns.map((column) => column.name)])) }),
          syntaxHighlighting(COLOURS), LOOKS,
          keymap.of([run, ...completionKeymap, ...defaultKeymap, ...historyKeymap]),
          EditorView.contentAttributes.of({ "aria-label": "SQL statement" }),
          EditorView.updateListener.of((update) => update.docChanged && changed(this.text)),
        ],
      }),
    });
  }

  get text() {
    return this._view.state.doc.toString();
  }

  set text(text) {
    this._view.dispatch({ changes: { from: 0, to: this._view.state.doc.length, insert: text } });
  }

  close() {
    this._view.destroy();
  }
}
