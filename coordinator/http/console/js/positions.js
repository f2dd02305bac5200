// SPDX-License-Identifier: Apache-2.0

// Acceptance by a draft token's place in its verify pass.

import { el, vars } from "./dom.js";
import { count, percent } from "./text.js";

const VERIFIED = ["DRAFT_OUTCOME_ACCEPTED", "DRAFT_OUTCOME_REJECTED", "DRAFT_OUTCOME_DISCARDED"];

export function showPositions(node, passes) {
  const places = [];
  for (const pass of passes) {
    for (const draft of pass.drafts ?? []) {
      for (const token of draft.tokens ?? []) {
        const place = (token.position ?? 0) - (pass.position ?? 0);
        if (!VERIFIED.includes(token.outcome) || place < 0) continue;
        while (places.length <= place) places.push({ verified: 0, accepted: 0 });
        places[place].verified += 1;
        places[place].accepted += token.outcome === "DRAFT_OUTCOME_ACCEPTED" ? 1 : 0;
      }
    }
  }
  if (places.length === 0) {
    node.replaceChildren(el("p", { class: "hint" }, "No draft token was verified."));
    return;
  }
  node.replaceChildren(el("ol", { class: "bars places" }, ...places.map((place, i) => {
    const rate = place.accepted / place.verified;
    return vars(el("li", null,
      el("span", { class: "bar-name" }, `${i + 1}`),
      el("span", { class: "bar", "aria-hidden": "true" }),
      el("span", { class: "bar-value" }, `${percent(rate)}`,
        el("span", { class: "quiet" }, ` ${count(place.accepted)} of ${count(place.verified)}`))),
    { part: rate });
  })));
}
