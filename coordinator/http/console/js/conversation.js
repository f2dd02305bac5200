// SPDX-License-Identifier: Apache-2.0

// The turns of a conversation: what was said, and the answers to it.

import { call } from "./api.js";
import { el } from "./dom.js";
import { textNodes } from "./text.js";

export class Conversation {
  constructor(node) {
    this.node = node;
    this.turns = [];
  }

  clear() {
    this.turns = [];
    this.node.replaceChildren();
  }

  /** Shows `lanes` as the answers to `said`. */
  add(said, lanes) {
    const number = this.turns.length + 1;
    const verdict = el("p", { class: "verdict", hidden: true });
    const node = el("section", { class: "turn", "aria-label": `Turn ${number}` },
      el("div", { class: "said" }, el("p", { class: "quiet" }, "You"),
        el("p", { class: "said-text", dir: "auto" }, ...textNodes(said))),
      verdict,
      el("div", { class: lanes.length > 1 ? "lanes two" : "lanes" }, ...lanes.map((lane) => lane.node)));
    this.node.append(node);
    this.turns.push({ said, lane: lanes[0], verdict, node });
    // The first turn stands for itself.
    if (number > 1) node.scrollIntoView({ block: "nearest" });
  }

  /** Takes a turn back that came to nothing. */
  dropLast() {
    this.turns.pop().node.remove();
  }

  /** All that was said and answered, then `said`, as messages of a chat. */
  async messagesWith(said) {
    const messages = [];
    for (const turn of this.turns) {
      // Without the token that ended it.
      turn.answer ??= (await call("Detokenize", {
        tokenIds: turn.lane.tokens.map((token) => token.id), skipSpecialTokens: true,
      })).text ?? "";
      messages.push({ role: "user", content: turn.said }, { role: "assistant", content: turn.answer });
    }
    return [...messages, { role: "user", content: said }];
  }
}
