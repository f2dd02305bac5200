// SPDX-License-Identifier: Apache-2.0

// Play: a prompt, the answer with each token's origin, and how it came about.

import { call } from "./api.js";
import { announce, byId, el, slider } from "./dom.js";
import { Lane } from "./lane.js";
import { showPositions } from "./positions.js";
import { count, milliseconds } from "./text.js";
import { showTimeline } from "./timeline.js";
import { TokenPanel } from "./token_panel.js";

const SETTINGS = [
  { id: "temperature", field: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05, value: 0, hint: "0 always takes the likeliest token." },
  { id: "top-k", field: "topK", label: "top_k", min: 0, max: 100, step: 1, value: 0, hint: "0 is off.", format: (x) => (x === 0 ? "off" : String(x)) },
  { id: "top-p", field: "topP", label: "top_p", min: 0.05, max: 1, step: 0.05, value: 1 },
  { id: "min-p", field: "minP", label: "min_p", min: 0, max: 1, step: 0.01, value: 0 },
  { id: "repetition", field: "repetitionPenalty", label: "Repetition penalty", min: 0.5, max: 2, step: 0.05, value: 1 },
  { id: "frequency", field: "frequencyPenalty", label: "Frequency penalty", min: -2, max: 2, step: 0.1, value: 0 },
  { id: "presence", field: "presencePenalty", label: "Presence penalty", min: -2, max: 2, step: 0.1, value: 0 },
];

export function startPlay() {
  const sliders = SETTINGS.map((setting) => {
    const made = slider(setting);
    byId("play-sliders").append(made.node);
    return { ...setting, made };
  });
  const drafts = slider({
    id: "draft-tokens", label: "Draft tokens in a run", min: 0, max: 16, step: 1, value: 0,
    hint: "0 lets the coordinator choose.", format: (x) => (x === 0 ? "auto" : String(x)),
  });
  byId("play-sliders").append(drafts.node);

  const panel = new TokenPanel(byId("token-panel"));
  let abort = null;

  function requestOf(speculative, seed) {
    const sampling = { seed: String(seed) };
    for (const { field, made } of sliders) sampling[field] = made.value;
    const speculation = { enabled: speculative };
    if (speculative && drafts.value > 0) speculation.maxDraftTokens = drafts.value;
    if (speculative && byId("drafter").value) speculation.drafter = byId("drafter").value;
    const prompt = byId("prompt").value;
    const chat = document.querySelector("input[name=kind]:checked").value === "chat";
    return {
      ...(chat ? { chat: { messages: [{ role: "user", content: prompt }] } } : { text: prompt }),
      sampling,
      stop: { maxTokens: Number(byId("max-tokens").value) },
      speculation,
      logprobs: 5,
      trace: speculative,
      skipSpecialTokens: false,
    };
  }

  function fail(error) {
    byId("play-error").textContent = error.message;
    byId("play-error").hidden = false;
  }

  async function run(event) {
    event.preventDefault();
    if (abort !== null) return;
    const seed = byId("seed").value === ""
      ? crypto.getRandomValues(new Uint32Array(1))[0] >>> 1
      : byId("seed").value;
    const compare = byId("compare").checked;
    const kinds = compare
      ? [{ title: "Speculative", speculative: true }, { title: "Plain", speculative: false }]
      : [{ title: "Answer", speculative: true }];
    const lanes = kinds.map((kind) => new Lane({
      ...kind, panel, onProgress: kind.speculative ? drawFigures : () => {},
    }));
    byId("lanes").replaceChildren(...lanes.map((lane) => lane.node));
    byId("lanes").classList.toggle("two", compare);
    panel.clear();
    byId("play-error").hidden = true;
    byId("verdict").hidden = true;
    byId("figures").hidden = true;
    abort = new AbortController();
    byId("run").disabled = true;
    byId("stop").disabled = false;
    announce("Generating.");
    try {
      // One behind the other, so that neither takes the other's time.
      for (const [i, lane] of lanes.entries()) {
        await lane.run(requestOf(kinds[i].speculative, seed), abort.signal);
      }
      if (compare) judge(...lanes);
      announce("The answer is complete.");
    } catch (error) {
      if (error.name !== "AbortError") fail(error);
      announce(error.name === "AbortError" ? "Stopped." : "");
    } finally {
      abort = null;
      byId("run").disabled = false;
      byId("stop").disabled = true;
    }
  }

  function drawFigures(lane) {
    byId("figures").hidden = lane.passes.length === 0;
    showPositions(byId("positions"), lane.passes);
    showTimeline(byId("timeline"), lane);
  }

  function judge(speculative, plain) {
    const a = speculative.tokens.map((token) => token.id);
    const b = plain.tokens.map((token) => token.id);
    const differs = a.findIndex((id, i) => id !== b[i]);
    const equal = a.length === b.length && differs < 0;
    const verdict = byId("verdict");
    verdict.hidden = false;
    verdict.classList.toggle("bad", !equal);
    const speed = (lane) => lane.finished?.timings?.tokensPerSecond ?? 0;
    const ratio = speed(plain) > 0 ? `: ${(speed(speculative) / speed(plain)).toFixed(2)} times the speed` : "";
    verdict.replaceChildren(
      el("strong", null, equal
        ? `✓ The same text: all ${count(a.length)} tokens are equal.`
        : `✗ The texts differ from token ${differs < 0 ? Math.min(a.length, b.length) : differs} on.`),
      ` Seed ${speculative.seed}. Speculative ${speed(speculative).toFixed(1)} tokens/s, plain ${speed(plain).toFixed(1)} tokens/s${ratio}.`,
      ` The whole answers took ${milliseconds(speculative.elapsed)} and ${milliseconds(plain.elapsed)}; the second found ${count(plain.finished?.usage?.cachedPromptTokens)} of the prompt’s tokens in the cache.`);
  }

  byId("play-form").addEventListener("submit", run);
  byId("stop").addEventListener("click", () => abort?.abort());

  async function loadDrafters() {
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

  return { show: loadDrafters };
}
