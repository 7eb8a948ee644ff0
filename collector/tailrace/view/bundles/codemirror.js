// The parts of CodeMirror 6 that the SQL editor uses.
export { autocompletion, closeBrackets, completionKeymap } from "@codemirror/autocomplete";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { PostgreSQL, sql } from "@codemirror/lang-sql";
export { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
export { EditorState } from "@codemirror/state";
export { drawSelection, EditorView, keymap, placeholder } from "@codemirror/view";
export { tags } from "@lezer/highlight";
