// SPDX-License-Identifier: Apache-2.0

// Explain: four looks into the model that serves.

import { startAttention } from "./attention.js";
import { startCache } from "./cache.js";
import { byId } from "./dom.js";
import { startPerplexity } from "./perplexity.js";
import { startStages } from "./stages.js";

/** Shows why something failed, or hides that again. */
function report(error) {
  const node = byId("explain-error");
  node.hidden = error === null;
  node.textContent = error?.message ?? "";
}

export function startExplain() {
  const parts = [
    startAttention(byId("attention"), report),
    startStages(byId("stages"), report),
    startPerplexity(byId("perplexity"), report),
    startCache(byId("cache"), report),
  ];
  return {
    show() {
      report(null);
      for (const part of parts) part.show();
    },
  };
}
