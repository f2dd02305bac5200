// SPDX-License-Identifier: Apache-2.0

// What is known of the token that was pointed at.

import { call } from "./api.js";
import { el, vars } from "./dom.js";
import { ORIGINS } from "./lane.js";
import { percent, tokenChip } from "./text.js";

const OUTCOMES = {
  accepted: "accepted",
  rejected: "rejected: the target chose another token",
  discarded: "discarded: it stood behind a rejected one",
  overlapped: "came late: the token was known already",
  stale: "stale: it belonged to a path that was left",
  trimmed: "trimmed by a limit",
  unused: "unused at the end",
};

export class TokenPanel {
  constructor(node) {
    this.node = node;
    this.texts = new Map();
    this.clear();
  }

  clear() {
    this.wanted = null;
    this.node.classList.remove("pinned");
    this.node.replaceChildren(
      el("h2", null, "Token"),
      el("p", { class: "hint" }, "Point at a token, or go to the answer and use the arrow keys, to see its probability, the alternatives and what was proposed."));
  }

  show(token, lane) {
    if (this.wanted === token) return;
    this.wanted = token;
    const choice = token.choice?.target;
    const chosen = token.logprobs?.chosen;
    const facts = [["Origin", lane.speculative ? ORIGINS[token.kind] : "plain decoding"]];
    if (chosen) facts.push(["Probability (model)", percent(Math.exp(chosen.logprob ?? 0))]);
    if (choice) facts.push(["With these settings", percent(choice.probability ?? 0)]);
    // Where there is no room beside the answer it stays at the screen's lower end.
    this.node.classList.add("pinned");
    this.node.replaceChildren(
      el("div", { class: "panel-head" },
        el("h2", null, `Token ${token.index + 1} `, tokenChip(token.text)),
        el("button", { type: "button", class: "ghost small", onclick: () => this.clear() }, "Close")),
      el("dl", { class: "facts" }, ...facts.map(([name, value]) =>
        el("div", null, el("dt", null, name), el("dd", null, value)))),
      ...this.alternatives(token), ...this.proposals(token, lane));
    this.loadTexts(token);
  }

  alternatives(token) {
    const top = token.logprobs?.top ?? [];
    if (top.length === 0) return [];
    return [
      el("h3", null, "Likeliest tokens (model)"),
      el("ul", { class: "bars" }, ...top.map((entry) => {
        const p = Math.exp(entry.logprob ?? 0);
        const id = entry.tokenId ?? 0;
        return vars(el("li", { class: id === token.id ? "is-chosen" : null },
          el("span", { class: "bar-name", "data-token": id },
            tokenChip(id === token.id ? token.text : this.texts.get(id) ?? `#${id}`),
            id === token.id ? el("span", { class: "sr" }, " (chosen)") : null),
          el("span", { class: "bar", "aria-hidden": "true" }),
          el("span", { class: "bar-value" }, percent(p))), { part: p });
      })),
    ];
  }

  proposals(token, lane) {
    const list = lane.proposals.get(token.index) ?? [];
    if (list.length === 0) return [];
    return [
      el("h3", null, "Proposed"),
      el("ul", { class: "proposals" }, ...list.slice(0, 8).map((proposal) => el("li", null,
        el("p", null, tokenChip(proposal.text || `#${proposal.id}`), " ",
          el("span", { class: `outcome ${proposal.outcome}` }, OUTCOMES[proposal.outcome] ?? proposal.outcome)),
        el("p", { class: "hint" }, [
          `by ${proposal.drafter || "a drafter"}${proposal.nodeName ? ` on ${proposal.nodeName}` : ""}`,
          proposal.draftProbability === undefined ? "" : `drafter ${percent(proposal.draftProbability)}`,
          proposal.target ? `target ${percent(proposal.target.probability ?? 0)}` : "",
        ].filter(Boolean).join(" · "))))),
    ];
  }

  /** Alternatives come as ids; their texts are asked for once. */
  async loadTexts(token) {
    const ids = (token.logprobs?.top ?? []).map((entry) => entry.tokenId ?? 0)
      .filter((id) => id !== token.id && !this.texts.has(id));
    if (ids.length === 0) return;
    await Promise.all(ids.map(async (id) => {
      try {
        const { text = "" } = await call("Detokenize", { tokenIds: [id] });
        this.texts.set(id, text);
      } catch {
        // The id stays.
      }
    }));
    if (this.wanted !== token) return;
    for (const id of ids) {
      const name = this.node.querySelector(`[data-token="${id}"]`);
      if (name && this.texts.has(id)) name.replaceChildren(tokenChip(this.texts.get(id)));
    }
  }
}
