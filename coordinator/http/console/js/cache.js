// SPDX-License-Identifier: Apache-2.0

// Rows of keys and values with and without a KV cache, counted.

import { announce, el, slider, vars } from "./dom.js";
import { inspect, textsOf } from "./inspect.js";
import { count, milliseconds, visible } from "./text.js";

export function startCache(node, report) {
  const text = el("input", { id: "cache-text", type: "text", value: "The cat sat on the mat.", spellcheck: "false", dir: "auto", autocomplete: "off" });
  const tokens = slider({ id: "cache-tokens", label: "Tokens to generate", min: 1, max: 32, step: 1, value: 12 });
  const button = el("button", { type: "button", class: "primary", id: "cache-run", onclick: run }, "Count");
  const result = el("div", { id: "cache-result" });
  node.append(
    el("div", { class: "field" }, el("label", { for: "cache-text" }, "Prompt (up to 128 tokens)"), text),
    el("div", { class: "split" }, tokens.node, el("div", { class: "row" }, button)),
    result);

  async function run() {
    button.disabled = true;
    result.replaceChildren(el("p", { class: "hint" }, "Computing, without a cache too. That takes its time …"));
    try {
      draw(await inspect("InspectCache", { prompt: { text: text.value }, numTokens: tokens.value }));
      report(null);
    } catch (error) {
      result.replaceChildren();
      report(error);
    } finally {
      button.disabled = false;
    }
  }

  function draw(response) {
    const rows = (work) => (work?.keyRows ?? []).map(Number);
    const sum = (list) => list.reduce((a, b) => a + b, 0);
    const cached = rows(response.withCache);
    const plain = rows(response.withoutCache);
    const most = Math.max(...cached, ...plain, 1);
    const texts = textsOf(response.tokens);
    const line = (name, list, work, kind) => el("div", { class: `work ${kind}` },
      el("h3", null, name),
      el("p", { class: "big" }, count(sum(list)), el("span", { class: "unit" }, " key rows")),
      el("p", { class: "hint" }, `and as many value rows, in ${milliseconds(Number(work?.durationUs ?? 0) / 1000)}`),
      el("ol", { class: "columns", "aria-label": `${name}: key rows for each token` },
        ...list.map((value) => vars(el("li", { title: `${count(value)} rows` },
          el("span", { class: "sr" }, `${count(value)} rows`)), { part: value / most }))));
    result.replaceChildren(
      el("p", { class: "verdict" },
        el("strong", null, `${(sum(plain) / sum(cached)).toFixed(1)} times fewer projections with the cache`),
        ` for ${count((response.promptTokens ?? []).length)} prompt tokens and ${count(texts.length)} new ones in ${count(response.numLayers)} layers, and the same text: `,
        el("bdi", { class: "quote" }, visible(texts.join("")))),
      el("div", { class: "split" }, line("With the cache", cached, response.withCache, "with"),
        line("Without", plain, response.withoutCache, "without")));
    announce("Counted.");
  }

  return { show() {} };
}
