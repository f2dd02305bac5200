// SPDX-License-Identifier: Apache-2.0

// Explain: four looks into the model that serves.

import { startAttention } from "./attention.js";
import { startCache } from "./cache.js";
import { byId, el } from "./dom.js";
import { startPerplexity } from "./perplexity.js";
import { startStages } from "./stages.js";

/** Puts a line for errors into a card. Calling the result shows why something
 * failed, or, with null, that it went well. */
function errorLine(card) {
  const line = el("p", { class: "error", role: "alert", hidden: true });
  card.append(line);
  return (error) => {
    line.hidden = error === null;
    line.textContent = error?.message ?? "";
  };
}

export function startExplain() {
  const parts = [
    ["attention", startAttention],
    ["stages", startStages],
    ["perplexity", startPerplexity],
    ["cache", startCache],
  ].map(([id, start]) => start(byId(id), errorLine(byId(id))));
  return {
    show() {
      for (const part of parts) part.show();
    },
  };
}
