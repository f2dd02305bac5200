// SPDX-License-Identifier: Apache-2.0

// Texts of tokens, shown so that nothing in them can hide or do anything.

import { el } from "./dom.js";

const decoder = new TextDecoder();
const encoder = new TextEncoder();

// Control characters, line separators, marks that turn the direction of text or
// have no width, and what no font has. Line feed and tab are handled apart.
const HIDDEN =
  // eslint-disable-next-line no-control-regex
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/u;

export function bytesOf(text) {
  return encoder.encode(text);
}

/** Base64, as bytes fields of messages have it. */
export function decodeBytes(base64) {
  const raw = atob(base64 ?? "");
  return decoder.decode(Uint8Array.from(raw, (c) => c.charCodeAt(0)));
}

export function sliceBytes(bytes, begin, end) {
  return decoder.decode(bytes.subarray(begin, end));
}

function nameOf(char) {
  const code = char.codePointAt(0);
  return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** A text in one line, with escapes for what would not be seen. */
export function visible(text) {
  let out = "";
  for (const char of text) {
    if (char === "\n") out += "↵";
    else if (char === "\t") out += "⇥";
    else if (HIDDEN.test(char)) out += `⟨${nameOf(char)}⟩`;
    else out += char;
  }
  return out;
}

/** The same with spaces that can be seen: for the text of one token. */
export function visibleToken(text) {
  return visible(text).replaceAll(" ", "␣") || "∅";
}

/** Nodes for running text: line ends break the line, the rest as visible(). */
export function textNodes(text) {
  const nodes = [];
  let plain = "";
  const flush = () => {
    if (plain) nodes.push(document.createTextNode(plain));
    plain = "";
  };
  for (const char of text) {
    if (char === "\n") {
      flush();
      nodes.push(el("span", { class: "esc", "aria-hidden": "true" }, "↵"), "\n");
    } else if (HIDDEN.test(char)) {
      flush();
      nodes.push(el("span", { class: "esc" }, nameOf(char)));
    } else {
      plain += char;
    }
  }
  flush();
  return nodes;
}

/** A token's text in a box of its own, whose direction touches nothing else. */
export function tokenChip(text) {
  return el("bdi", { class: "chip" }, visibleToken(text));
}

export function percent(p) {
  if (p === undefined || p === null || Number.isNaN(p)) return "–";
  const value = 100 * p;
  if (value === 0) return "0 %";
  if (value < 0.01) return "< 0.01 %";
  return `${value < 1 ? value.toFixed(2) : value.toFixed(1)} %`;
}

export function milliseconds(ms) {
  if (!Number.isFinite(ms)) return "–";
  if (ms >= 10000) return `${(ms / 1000).toFixed(1)} s`;
  return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
}

export function count(n) {
  return Number(n ?? 0).toLocaleString("en-US").replaceAll(",", "\u00a0");
}

/** "1 token", "2 tokens". */
export function counted(n, noun) {
  return `${count(n)} ${noun}${Number(n ?? 0) === 1 ? "" : "s"}`;
}
