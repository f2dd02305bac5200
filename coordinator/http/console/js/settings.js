// SPDX-License-Identifier: Apache-2.0

// The settings of Play, and the requests that they make.

import { call } from "./api.js";
import { byId, el, slider } from "./dom.js";

const SAMPLING = [
  { id: "temperature", field: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05, value: 0, hint: "0 always takes the likeliest token." },
  { id: "top-k", field: "topK", label: "top_k", min: 0, max: 100, step: 1, value: 0, hint: "0 is off.", format: (x) => (x === 0 ? "off" : String(x)) },
  { id: "top-p", field: "topP", label: "top_p", min: 0.05, max: 1, step: 0.05, value: 1 },
  { id: "min-p", field: "minP", label: "min_p", min: 0, max: 1, step: 0.01, value: 0 },
  { id: "repetition", field: "repetitionPenalty", label: "Repetition penalty", min: 0.5, max: 2, step: 0.05, value: 1 },
  { id: "frequency", field: "frequencyPenalty", label: "Frequency penalty", min: -2, max: 2, step: 0.1, value: 0 },
  { id: "presence", field: "presencePenalty", label: "Presence penalty", min: -2, max: 2, step: 0.1, value: 0 },
];
// The coordinator says so often that it lives: a stream that is silent for much
// longer has stalled.
const ALIVE_MS = 1000;

/** A tenant that nobody was before: nothing is remembered or cached for it. */
function freshSalt() {
  return btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(12))));
}

export class Settings {
  constructor() {
    this.sliders = SAMPLING.map((setting) => {
      const made = slider(setting);
      byId("play-sliders").append(made.node);
      return { ...setting, made };
    });
    this.drafts = slider({
      id: "draft-tokens", label: "Draft tokens in a run", min: 0, max: 16, step: 1, value: 0,
      hint: "0 lets the coordinator choose.", format: (x) => (x === 0 ? "auto" : String(x)),
    });
    byId("play-sliders").append(this.drafts.node);
  }

  get chat() {
    return document.querySelector("input[name=kind]:checked").value === "chat";
  }

  /** The seed that was typed, or one at random. */
  get seed() {
    return byId("seed").value === ""
      ? crypto.getRandomValues(new Uint32Array(1))[0] >>> 1
      : byId("seed").value;
  }

  /** A request for GenerateRequest.prompt; `fresh`: as if nothing was asked before. */
  requestOf(prompt, { speculative, seed, fresh }) {
    const sampling = { seed: String(seed) };
    for (const { field, made } of this.sliders) sampling[field] = made.value;
    const speculation = { enabled: speculative };
    if (speculative && this.drafts.value > 0) speculation.maxDraftTokens = this.drafts.value;
    if (speculative && byId("drafter").value) speculation.drafter = byId("drafter").value;
    return {
      ...prompt,
      sampling,
      stop: { maxTokens: Number(byId("max-tokens").value) },
      speculation,
      logprobs: 5,
      trace: true,
      skipSpecialTokens: false,
      aliveIntervalMs: ALIVE_MS,
      ...(fresh ? { cacheSalt: freshSalt() } : {}),
    };
  }

  async loadDrafters() {
    try {
      const { nodes = [] } = await call("ListNodes");
      const names = new Set(["local", ...nodes.map((node) => node.drafter).filter(Boolean)]);
      const chosen = byId("drafter").value;
      byId("drafter").replaceChildren(
        el("option", { value: "" }, "any"),
        ...[...names].map((name) => el("option", { value: name }, name)));
      byId("drafter").value = names.has(chosen) ? chosen : "";
    } catch {
      // The list is a help only; generating will tell what is wrong.
    }
  }
}
