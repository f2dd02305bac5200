// SPDX-License-Identifier: Apache-2.0

// Explain: four looks into the model that serves.

import { startAttention } from "./attention.js";
import { startCache } from "./cache.js";
import { byId, el } from "./dom.js";
import { UNIMPLEMENTED, forgetRefusal } from "./inspect.js";
import { startPerplexity } from "./perplexity.js";
import { startStages } from "./stages.js";

// Cards that a verifier with --inspect is needed for.
const INSPECTING = ["attention", "stages", "cache"];
const BAD_REQUEST = 400;

// What keeps a card from working, by its id: not its input, which the card itself
// tells, but something that concerns them all.
const faults = new Map();

/** Says once what several cards suffer from. */
function showFaults() {
  const all = [...faults.values()];
  const off = all.some((error) => error.status === UNIMPLEMENTED);
  byId("explain-notice").hidden = !off;
  for (const id of INSPECTING) byId(id).hidden = off;
  const other = all.find((error) => error.status !== UNIMPLEMENTED);
  byId("explain-error").hidden = other === undefined;
  byId("explain-error").textContent = other?.message ?? "";
}

/** Calling the result shows why a card failed, or, with null, that it went well. */
function reporter(id) {
  const line = el("p", { class: "error", role: "alert", hidden: true });
  byId(id).append(line);
  return (error) => {
    const own = error?.status === BAD_REQUEST;
    line.hidden = !own;
    line.textContent = own ? error.message : "";
    if (error === null || own) faults.delete(id);
    else faults.set(id, error);
    showFaults();
  };
}

export function startExplain() {
  const parts = [
    ["attention", startAttention],
    ["stages", startStages],
    ["perplexity", startPerplexity],
    ["cache", startCache],
  ].map(([id, start]) => start(byId(id), reporter(id)));

  function show() {
    const again = faults.size > 0;
    faults.clear();
    forgetRefusal();
    for (const part of parts) part.show(again);
  }

  byId("explain-again").addEventListener("click", show);
  return { show };
}
