// SPDX-License-Identifier: Apache-2.0

// Cluster: nodes, load and acceptance, read once a second while it is shown.

import { call, facts } from "./api.js";
import { announce, byId, el, svg, vars } from "./dom.js";
import { askForKey } from "./key_dialog.js";
import { count, counted, percent, visible } from "./text.js";

const PERIOD_MS = 1000;
// Rates are over so many readings; the sparkline has more.
const WINDOW = 5;
const KEPT = 60;
// A question that is given up.
const LIMIT_MS = 10000;

const STATES = {
  SERVING: ["✓", "good"], JOINING: ["…", "wait"], SUSPECT: ["!", "bad"],
  DRAINING: ["↓", "wait"], INCOMPATIBLE: ["✗", "bad"], GONE: ["–", "off"],
};

export function startCluster() {
  let timer = 0;
  let shown = false;
  let samples = [];
  const rows = new Map();
  // "no", "key" or "yes": whether nodes can be drained from here.
  let drains = "key";

  async function loadFacts() {
    try {
      drains = (await facts()).drain;
    } catch {
      // The coordinator does not answer; main.js asks for a new start.
      return;
    }
    byId("drain-why").hidden = drains !== "no";
    for (const { button } of rows.values()) showDrain(button);
  }

  function showDrain(button) {
    button.disabled = drains === "no";
    if (button.disabled) button.setAttribute("aria-describedby", "drain-why");
    else button.removeAttribute("aria-describedby");
  }

  async function tick() {
    clearTimeout(timer);
    if (!shown) return;
    try {
      const signal = AbortSignal.timeout(LIMIT_MS);
      const [nodes, stats] = await Promise.all([call("ListNodes", {}, { signal }), call("GetStats", {}, { signal })]);
      byId("cluster-error").hidden = true;
      addSample(stats);
      showTiles(stats);
      showNodes(nodes.nodes ?? []);
      showPairs(stats.pairs ?? []);
    } catch (error) {
      // That nobody answers is said on every page.
      byId("cluster-error").textContent = error.message;
      byId("cluster-error").hidden = error.status === 0;
    }
    if (shown) timer = setTimeout(tick, PERIOD_MS);
  }

  function addSample(stats) {
    const number = (x) => Number(x ?? 0);
    const sample = {
      at: performance.now() / 1000,
      uptime: number(stats.uptimeMs),
      tokens: number(stats.numGenerationTokens),
      requests: (stats.requests ?? []).reduce((sum, entry) => sum + number(entry.count), 0),
      drafted: number(stats.total?.numDraftTokens),
      accepted: number(stats.total?.numAcceptedDraftTokens),
      pairs: new Map((stats.pairs ?? []).map((pair) => [pairKey(pair), number(pair.stats?.numAcceptedDraftTokens)])),
    };
    // Counters begin anew with the coordinator.
    if (samples.length > 0 && sample.uptime < samples.at(-1).uptime) samples = [];
    samples.push(sample);
    samples = samples.slice(-KEPT);
  }

  const pairKey = (pair) => JSON.stringify([pair.draftNode ?? "", pair.verifierNode ?? "", pair.model ?? ""]);

  /** Change per second of what `of` reads, over the latest readings. */
  function rate(of, end = samples.length - 1) {
    const to = samples[end];
    const from = samples[Math.max(0, end - WINDOW)];
    return to && to.at > from.at ? Math.max(0, (of(to) - of(from)) / (to.at - from.at)) : 0;
  }

  function showTiles(stats) {
    const last = samples.at(-1);
    const from = samples[Math.max(0, samples.length - 1 - WINDOW)];
    const drafted = last.drafted - from.drafted;
    const lately = drafted > 0 ? percent((last.accepted - from.accepted) / drafted) : "–";
    const speeds = samples.map((_, i) => rate((sample) => sample.tokens, i));
    byId("tiles").replaceChildren(
      tile("Tokens per second", speeds.at(-1).toFixed(1), sparkline(speeds)),
      tile("Acceptance lately", lately, el("p", { class: "hint" }, last.drafted > 0 ? `${percent(stats.total.draftAcceptanceRate ?? 0)} since the start` : "no draft tokens since the start")),
      tile("Requests running", count(stats.numRequestsRunning), el("p", { class: "hint" }, `${count(stats.numRequestsWaiting)} being prepared`)),
      tile("Requests done", count(last.requests), el("p", { class: "hint" }, counted(last.tokens, "token"))));
  }

  function tile(name, value, more) {
    return el("section", { class: "card tile", "aria-label": name },
      el("h2", null, name), el("p", { class: "big" }, value), more);
  }

  function sparkline(values) {
    const top = Math.max(...values, 1);
    const points = values.map((value, i) => `${(100 * i / Math.max(1, KEPT - 1)).toFixed(1)},${(26 - 24 * value / top).toFixed(1)}`);
    return svg("svg", { class: "spark", viewBox: "0 0 100 28", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("polyline", { points: points.join(" ") }));
  }

  const stateOf = (node) => (node.state ?? "").replace("NODE_STATE_", "");

  /** Rows stay, so that focus and the reader's place do. */
  function showNodes(nodes) {
    const wanted = nodes.map((node) => node.nodeId);
    for (const [id, row] of rows) {
      if (!wanted.includes(id)) {
        row.tr.remove();
        rows.delete(id);
      }
    }
    for (const node of nodes) {
      if (!rows.has(node.nodeId)) rows.set(node.nodeId, makeRow(node));
      const row = rows.get(node.nodeId);
      row.node = node;
      fillRow(row, node);
      byId("nodes").append(row.tr);
    }
    if (nodes.length === 0) {
      byId("nodes").replaceChildren(el("tr", null, el("td", { colspan: 6 }, "No node has joined yet.")));
      rows.clear();
    }
  }

  function makeRow(node) {
    const cells = {
      name: el("th", { scope: "row" }),
      state: el("td"),
      serves: el("td", { "data-label": "Serves" }),
      load: el("td", { "data-label": "Sequences" }),
      cache: el("td", { "data-label": "KV cache" }),
    };
    const name = visible(node.registration?.name ?? "?");
    const button = el("button", {
      type: "button", class: "ghost small", "aria-label": `Drain ${name}`, onclick: () => drain(rows.get(node.nodeId).node),
    }, "Drain");
    showDrain(button);
    return { cells, button, tr: el("tr", null, ...Object.values(cells), el("td", null, button)) };
  }

  function fillRow({ cells, button, tr }, node) {
    const state = stateOf(node);
    const gone = state === "GONE";
    const load = gone ? {} : node.load ?? {};
    const [mark, tone] = STATES[state] ?? ["?", "wait"];
    const role = node.registration?.role === "NODE_ROLE_DRAFT" ? "draft node" : "verifier";
    tr.classList.toggle("gone", gone);
    replace(cells.name, el("bdi", null, visible(node.registration?.name ?? "?")),
      el("span", { class: "quiet block" }, `${role}, ${visible(node.registration?.address ?? "")}`));
    showState(cells.state, mark, tone, state.toLowerCase(), node);
    replace(cells.serves, el("bdi", null, visible(node.drafter || node.model?.name || "–")),
      node.model ? el("span", { class: "quiet block" }, `${node.model.engine ?? ""}, context ${count(node.model.maxModelLen)}`) : null);
    replace(cells.load, gone ? "–" : `${count(load.numSequences)}`,
      !gone && load.numWaiting ? el("span", { class: "quiet block" }, `${count(load.numWaiting)} waiting`) : null,
      load.numSequences && Number(load.slowdown ?? 0) > 1.2 ? el("span", { class: "quiet block" }, `${Number(load.slowdown).toFixed(1)} × slower than alone`) : null);
    const total = Number(load.kvBlocksTotal ?? 0);
    const used = Number(load.kvBlocksUsed ?? 0) / (total || 1);
    const cached = Number(load.kvBlocksCached ?? 0) / (total || 1);
    replace(cells.cache, ...(total === 0 ? ["–"] : [
      vars(el("span", { class: "meter", role: "img", "aria-label": `${percent(used)} in use, ${percent(cached)} kept for prefixes` }), { used, cached }),
      el("span", { class: "quiet block" }, `${percent(used)} of ${count(total)} blocks${cached > 0 ? `, ${percent(cached)} kept` : ""}`)]));
    button.hidden = !["SERVING", "SUSPECT", "JOINING"].includes(state);
  }

  function showState(cell, mark, tone, state, node) {
    replace(cell, el("span", { class: `badge ${tone}` }, el("span", { "aria-hidden": "true" }, mark), ` ${state}`),
      node.reason ? el("span", { class: "quiet block reason" }, visible(node.reason)) : null);
  }

  /** Nobody knows what nodes are while the coordinator is silent. */
  function fade() {
    for (const { cells, node } of rows.values()) {
      showState(cells.state, "?", "off", `was ${stateOf(node).toLowerCase()}`, node);
    }
  }

  function replace(cell, ...children) {
    cell.replaceChildren(...children.filter((child) => child !== null && child !== false && child !== undefined));
  }

  function showPairs(pairs) {
    if (pairs.length === 0) {
      byId("pairs").replaceChildren(el("p", { class: "hint" }, "Nobody has drafted yet. Generate something, and come back."));
      return;
    }
    byId("pairs").replaceChildren(el("ul", { class: "pairs" }, ...pairs.map((pair) => {
      const stats = pair.stats ?? {};
      const key = pairKey(pair);
      const speed = rate((sample) => sample.pairs.get(key) ?? 0);
      return el("li", null,
        el("p", { class: "pair" }, el("bdi", { class: "chip" }, visible(pair.draftNode || "–")),
          el("span", { class: "arrow", "aria-hidden": "true" }, "→"), el("span", { class: "sr" }, "drafts for"),
          el("bdi", { class: "chip" }, visible(pair.verifierNode || "–"))),
        vars(el("span", { class: "bar", role: "img", "aria-label": `acceptance ${percent(stats.draftAcceptanceRate ?? 0)}` }),
          { part: stats.draftAcceptanceRate ?? 0 }),
        el("p", { class: "pair-figures" },
          ...Number(stats.numDraftTokens ?? 0) === 0 ? [el("span", null, "no draft tokens")] : [
            el("span", null, `${percent(stats.draftAcceptanceRate ?? 0)} accepted`),
            el("span", null, `${count(stats.numAcceptedDraftTokens)} of ${counted(stats.numDraftTokens, "token")}`),
            el("span", null, `${(stats.meanAcceptanceLength ?? 0).toFixed(2)} tokens a step`)],
          el("span", null, `${speed.toFixed(1)} accepted/s`)));
    })));
  }

  /** What nobody serves any more without `node`, as a sentence and a space. */
  function lossOf(node) {
    const serves = (other) => other.registration?.role === "NODE_ROLE_VERIFIER" && stateOf(other) === "SERVING";
    const others = [...rows.values()].map((row) => row.node)
      .filter((other) => other.nodeId !== node.nodeId && serves(other));
    if (!serves(node) || others.some((other) => other.model?.name === node.model?.name)) return "";
    return others.length === 0 ? "This is the last verifier: nothing will serve. "
      : `This is the last verifier of ${visible(node.model?.name ?? "?")}: nothing will serve that model. `;
  }

  function drain(node) {
    const name = visible(node.registration?.name ?? node.nodeId);
    const loss = lossOf(node);
    askForKey({
      title: `Drain ${name}?`,
      text: drains === "yes"
        ? `${loss}It takes no new work, lets go of what it has, and ends. Your certificate is an operator’s: leave the key empty.`
        : `${loss}It takes no new work, lets go of what it has, and ends. Draining needs an operator’s key; it is sent once and not kept.`,
      label: "Operator key",
      ok: "Drain",
      use: async (key) => {
        if (key === "" && drains !== "yes") throw new Error("Type the key of an operator: without one the coordinator refuses.");
        try {
          await call("DrainNode", { node: node.nodeId }, { key });
        } catch (error) {
          throw new Error(`Not drained: ${error.status === 401 ? "the coordinator knows no operator with this key." : error.message}`);
        }
        announce(`${name} is draining.`);
        tick();
      },
    });
  }

  return {
    show() { shown = true; loadFacts(); tick(); },
    fade,
    hide() { shown = false; clearTimeout(timer); },
  };
}
