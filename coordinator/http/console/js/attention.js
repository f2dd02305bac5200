// SPDX-License-Identifier: Apache-2.0

// Attention weights of a layer: small maps of all heads, one of them large.

import { el, latestOnly, slider } from "./dom.js";
import { inspect, textsOf } from "./inspect.js";
import { percent, tokenChip, visibleToken } from "./text.js";

// From no weight to all of it; numbers on them stay readable.
const SCALE = {
  light: [[240, 253, 250], [13, 148, 136], [4, 47, 46]],
  dark: [[17, 28, 32], [15, 118, 110], [153, 246, 228]],
};
const dark = window.matchMedia("(prefers-color-scheme: dark)");
// Weights are written into the cells of maps up to this size.
const MOST_NUMBERS = 16;

function colourOf(weight) {
  const stops = SCALE[dark.matches ? "dark" : "light"];
  // Small weights are told apart more easily this way.
  const at = Math.sqrt(Math.min(1, weight)) * (stops.length - 1);
  const i = Math.min(stops.length - 2, Math.floor(at));
  return stops[i].map((from, c) => Math.round(from + (stops[i + 1][c] - from) * (at - i)));
}

function inkOn([r, g, b]) {
  const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  return luminance > 0.179 ? "#000000" : "#ffffff";
}

const rowStart = (row) => row * (row + 1) / 2;

export function startAttention(node, report) {
  const text = el("input", { id: "attention-text", type: "text", value: "The cat sat on the mat.", spellcheck: "false", dir: "auto", autocomplete: "off" });
  const layer = slider({ id: "attention-layer", label: "Layer", min: 0, max: 29, step: 1, value: 0, oninput: () => load() });
  const head = slider({ id: "attention-head", label: "Head", min: 0, max: 8, step: 1, value: 0, oninput: () => draw() });
  const heads = el("div", { class: "heads", role: "group", "aria-label": "Heads of the layer" });
  const map = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Heat map" });
  const summary = el("p", { class: "hint", id: "attention-summary" });
  let response = null;
  let texts = [];

  node.append(
    el("div", { class: "field" }, el("label", { for: "attention-text" }, "Text (up to 128 tokens)"), text),
    el("div", { class: "split" }, layer.node, head.node),
    heads, map, summary);
  text.addEventListener("input", () => load());
  dark.addEventListener("change", () => draw());

  const load = latestOnly(async () => {
    if (text.value === "") return;
    try {
      response = await inspect("InspectAttention", { text: { text: text.value }, layer: layer.value });
      texts = textsOf(response.tokens);
      layer.setMax((response.numLayers ?? 1) - 1);
      head.setMax((response.numHeads ?? 1) - 1);
      report(null);
      draw();
    } catch (error) {
      report(error);
    }
  }, 120);

  function draw() {
    if (response === null) return;
    heads.replaceChildren(...response.heads.map((entry, i) => thumbnail(entry.weights, i)));
    drawMap(response.heads[head.value].weights);
  }

  function thumbnail(weights, i) {
    const n = texts.length;
    const canvas = el("canvas", { width: n, height: n, "aria-hidden": "true" });
    const context = canvas.getContext("2d");
    for (let row = 0; row < n; ++row) {
      for (let column = 0; column <= row; ++column) {
        const [r, g, b] = colourOf(weights[rowStart(row) + column]);
        context.fillStyle = `rgb(${r} ${g} ${b})`;
        context.fillRect(column, row, 1, 1);
      }
    }
    return el("button", {
      type: "button", class: "thumb", "aria-label": `Head ${i}`, "aria-pressed": String(i === head.value),
      onclick: () => {
        head.value = i;
        draw();
        heads.children[i].focus();
      },
    }, canvas, el("span", { "aria-hidden": "true" }, String(i)));
  }

  function drawMap(weights) {
    const n = texts.length;
    const numbers = n <= MOST_NUMBERS;
    const cell = (row, column) => {
      if (column > row) return el("td", { class: "behind" });
      const weight = weights[rowStart(row) + column];
      const label = `${visibleToken(texts[row])} to ${visibleToken(texts[column])}: ${percent(weight)}`;
      const td = el("td", { title: label }, numbers
        ? weight.toFixed(2).replace("0.", ".") : el("span", { class: "sr" }, percent(weight)));
      const colour = colourOf(weight);
      td.style.backgroundColor = `rgb(${colour.join(", ")})`;
      td.style.color = inkOn(colour);
      return td;
    };
    map.replaceChildren(el("table", { class: numbers ? "heat" : "heat dense" },
      el("caption", { class: "sr" }, `Attention weights of layer ${layer.value}, head ${head.value}`),
      el("thead", null, el("tr", null, el("td", null), ...texts.map((t) => el("th", { scope: "col" }, tokenChip(t))))),
      el("tbody", null, ...texts.map((t, row) => el("tr", null, el("th", { scope: "row" }, tokenChip(t)),
        ...texts.map((_, column) => cell(row, column)))))));
    const last = weights.slice(rowStart(n - 1), rowStart(n));
    const most = last.indexOf(Math.max(...last));
    summary.replaceChildren(`Layer ${layer.value}, head ${head.value}: the last token, `, tokenChip(texts[n - 1]),
      ", looks most at ", tokenChip(texts[most]), ` (${percent(last[most])}).`);
  }

  return { show: (again) => { if (again || response === null) load(); } };
}

