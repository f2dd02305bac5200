// SPDX-License-Identifier: Apache-2.0

// Perplexity of a text, token by token, with sliders for "what if".

import { call } from "./api.js";
import { el, latestOnly } from "./dom.js";
import { decodeBytes, percent, tokenChip, visibleToken } from "./text.js";

// Most tokens that get a slider.
const MOST = 40;
// Sliders move the natural logarithm of a probability.
const LEAST = Math.log(1e-6);
// Less than this is no probability at all.
const NONE = -1e6;

const orNone = (logprob) => (logprob < NONE ? -Infinity : logprob);
const fixed = (x, digits) => (Number.isFinite(x) ? x.toFixed(digits) : "∞");

export function startPerplexity(node, report) {
  const text = el("input", { id: "perplexity-text", type: "text", value: "The cat sat on the mat.", spellcheck: "false", dir: "auto", autocomplete: "off" });
  const big = el("output", { class: "big", id: "perplexity-value", for: "perplexity-text" });
  const formula = el("p", { class: "hint", id: "perplexity-formula" });
  const list = el("ol", { class: "ppl", "aria-label": "Tokens and their probabilities" });
  const reset = el("button", { type: "button", class: "ghost", id: "perplexity-reset", onclick: () => load() }, "Back to the model’s");
  let logprobs = [];
  let measured = NaN;

  node.append(
    el("div", { class: "field" }, el("label", { for: "perplexity-text" }, "Text"), text),
    el("div", { class: "row ppl-head" }, el("div", null, el("h3", { id: "perplexity-label" }, "Perplexity"), big), reset),
    formula, list);
  text.addEventListener("input", () => load());

  const load = latestOnly(async () => {
    if (text.value === "") return;
    try {
      const score = await call("Score", { text: text.value, tokenBytes: true });
      report(null);
      measured = Number(score.perplexity);
      draw(score);
    } catch (error) {
      report(error);
    }
  }, 150);

  function draw(score) {
    const texts = (score.tokenBytes ?? []).map(decodeBytes);
    logprobs = (score.logprobs ?? []).map((entry) => (entry.chosen ? orNone(Number(entry.chosen.logprob ?? 0)) : null));
    list.replaceChildren(...texts.map((token, i) => {
      if (logprobs[i] === null) {
        return el("li", null, tokenChip(token), el("span", { class: "hint" }, "nothing precedes it: not scored"));
      }
      return i < MOST ? row(token, i) : el("li", null, tokenChip(token), el("span", { class: "hint" }, percent(Math.exp(logprobs[i]))));
    }));
    update();
  }

  function row(token, i) {
    const start = Math.max(LEAST, logprobs[i]);
    const value = el("output", { for: `ppl-${i}` });
    const show = () => {
      const p = Math.exp(logprobs[i]);
      value.textContent = `${percent(p)}  (−ln p = ${fixed(-logprobs[i], 2)})`;
      input.setAttribute("aria-valuetext", percent(p));
    };
    const input = el("input", {
      id: `ppl-${i}`, type: "range", min: LEAST, max: 0, step: "any", value: start,
      "aria-label": `Probability of ${visibleToken(token)}, token ${i + 1}`,
      oninput: () => {
        logprobs[i] = Number(input.value);
        show();
        update();
      },
    });
    // A step of the keyboard is a tenth, whatever the browser makes of "any".
    input.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 0.1, ArrowUp: 0.1, ArrowLeft: -0.1, ArrowDown: -0.1 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      input.value = Number(input.value) + by;
      input.dispatchEvent(new Event("input"));
    });
    show();
    return el("li", null, tokenChip(token), input, value);
  }

  function update() {
    const scored = logprobs.filter((logprob) => logprob !== null);
    const mean = -scored.reduce((a, b) => a + b, 0) / scored.length;
    const value = Math.exp(mean);
    big.textContent = fixed(value, 2);
    formula.textContent = `exp(${fixed(mean, 3)}), over ${scored.length} tokens; the model itself: ${fixed(measured, 2)}`;
  }

  return { show: (again) => { if (again || Number.isNaN(measured)) load(); } };
}
