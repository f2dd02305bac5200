// SPDX-License-Identifier: Apache-2.0

// The next token's distribution after each stage of the sampling pipeline.

import { el, latestOnly, slider, vars } from "./dom.js";
import { inspect } from "./inspect.js";
import { count, counted, decodeBytes, percent, tokenChip } from "./text.js";

const SHOWN = 12;
const NAMES = {
  RAW: "model", LOGIT_BIAS: "logit_bias", MIN_TOKENS: "min_tokens",
  REPETITION_PENALTY: "repetition penalty", FREQUENCY_PENALTY: "frequency penalty",
  PRESENCE_PENALTY: "presence penalty", TEMPERATURE: "temperature",
  MIN_P: "min_p", TOP_K: "top_k", TOP_P: "top_p",
};
const SETTINGS = [
  { id: "stage-repetition", field: "repetitionPenalty", label: "Repetition penalty", min: 0.5, max: 2, step: 0.05, value: 1 },
  { id: "stage-frequency", field: "frequencyPenalty", label: "Frequency penalty", min: -2, max: 2, step: 0.1, value: 0 },
  { id: "stage-presence", field: "presencePenalty", label: "Presence penalty", min: -2, max: 2, step: 0.1, value: 0 },
  { id: "stage-temperature", field: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05, value: 1 },
  { id: "stage-min-p", field: "minP", label: "min_p", min: 0, max: 1, step: 0.01, value: 0 },
  { id: "stage-top-k", field: "topK", label: "top_k", min: 0, max: 60, step: 1, value: 0, format: (x) => (x === 0 ? "off" : String(x)) },
  { id: "stage-top-p", field: "topP", label: "top_p", min: 0.05, max: 1, step: 0.01, value: 1 },
];

const nameOf = (stage) => NAMES[(stage.kind ?? "").replace("PIPELINE_STAGE_KIND_", "")] ?? stage.kind;

export function startStages(node, report) {
  const prompt = el("input", { id: "stage-prompt", type: "text", value: "The cat sat on the", spellcheck: "false", dir: "auto", autocomplete: "off" });
  const completion = el("input", { id: "stage-completion", type: "text", value: " mat. The dog sat on the", spellcheck: "false", dir: "auto", autocomplete: "off" });
  const sliders = SETTINGS.map((setting) => ({ ...setting, made: slider({ ...setting, oninput: () => load() }) }));
  const pipeline = el("ol", { class: "pipeline", "aria-label": "Stages, in their order" });
  const chart = el("div", { id: "stage-chart" });
  let stages = [];
  // Which stage the chart shows; the last follows what is drawn from.
  let chosen = -1;

  node.append(
    el("div", { class: "split" },
      el("div", { class: "field" }, el("label", { for: "stage-prompt" }, "Prompt"), prompt),
      el("div", { class: "field" }, el("label", { for: "stage-completion" }, "Completion so far"), completion)),
    el("div", { class: "sliders" }, ...sliders.map(({ made }) => made.node)),
    pipeline, chart);
  prompt.addEventListener("input", () => load());
  completion.addEventListener("input", () => load());

  const load = latestOnly(async () => {
    if (prompt.value + completion.value === "") return;
    const sampling = Object.fromEntries(sliders.map(({ field, made }) => [field, made.value]));
    try {
      const response = await inspect("InspectNextToken", {
        prompt: { text: prompt.value }, completion: { text: completion.value }, sampling, top: 64,
      });
      stages = response.stages ?? [];
      report(null);
      draw();
    } catch (error) {
      report(error);
    }
  });

  function draw() {
    const at = chosen < 0 ? stages.length - 1 : chosen;
    pipeline.replaceChildren(...stages.map((stage, i) => el("li", { class: stage.active ? "active" : null },
      el("button", {
        type: "button", "aria-pressed": String(i === at),
        onclick: () => {
          chosen = i === stages.length - 1 ? -1 : i;
          draw();
          pipeline.children[i].firstChild.focus();
        },
      }, el("span", { class: "stage-name" }, nameOf(stage)),
      el("span", { class: "stage-left" }, stage.active || i === 0 ? `${count(stage.numLeft)} left` : "off")))));
    drawChart(stages[0], stages[at]);
  }

  function drawChart(raw, stage) {
    const key = (entry) => entry.token?.tokenId ?? 0;
    const before = new Map((raw.top ?? []).map((entry) => [key(entry), entry.probability ?? 0]));
    const after = new Map((stage.top ?? []).map((entry) => [key(entry), entry.probability ?? 0]));
    const rows = [];
    for (const entry of [...(raw.top ?? []).slice(0, SHOWN), ...(stage.top ?? []).slice(0, SHOWN)]) {
      if (!rows.some((row) => key(row) === key(entry))) rows.push(entry);
    }
    rows.sort((a, b) => (after.get(key(b)) ?? 0) - (after.get(key(a)) ?? 0)
      || (before.get(key(b)) ?? 0) - (before.get(key(a)) ?? 0));
    // Beyond what was told a token may be left with less than the least of these.
    const least = Math.min(...after.values());
    const whole = (stage.numLeft ?? 0) <= after.size;
    const scale = Math.max(...before.values(), ...after.values());
    chart.replaceChildren(
      el("p", { class: "hint" }, "After ", el("strong", null, nameOf(stage)), `: ${counted(stage.numLeft, "token")} left. The upright mark is the model’s own probability.`),
      el("ul", { class: "bars stages", "aria-label": `Probabilities after ${nameOf(stage)}` }, ...rows.slice(0, SHOWN + 4).map((entry) => {
        const p = after.get(key(entry)) ?? 0;
        const raw_p = before.get(key(entry)) ?? 0;
        const gone = p === 0 && whole;
        return vars(el("li", { class: gone ? "cut" : null },
          el("span", { class: "bar-name" }, tokenChip(decodeBytes(entry.token?.bytes))),
          el("span", { class: "bar", "aria-hidden": "true" }),
          el("span", { class: "bar-value" }, gone ? "cut" : p === 0 ? `< ${percent(least)}` : percent(p))),
        { part: p / scale, raw: raw_p / scale });
      })));
  }

  return { show: (again) => { if (again || stages.length === 0) load(); } };
}
