// SPDX-License-Identifier: Apache-2.0

// When each round drafted, travelled and verified.

import { el, svg } from "./dom.js";
import { count, milliseconds } from "./text.js";

const ROW = 18;
const LABEL = 34;
// Rounds drawn and listed: the latest.
const MOST = 20;

function spans(timings) {
  const us = (name) => Number(timings[name] ?? 0);
  const start = us("startUs");
  const verified = start + us("verifyUs");
  const list = [{ kind: "verify", from: start, to: verified }];
  if (timings.proposalUs !== undefined) {
    const came = us("proposalUs");
    const way = Math.max(0, us("networkUs"));
    // The verdict's way is known; what is left was the proposal's and its commit's.
    const back = Math.min(way, Math.max(0, us("endUs") - verified));
    const draft = us("draftUs");
    list.unshift(
      { kind: "network", from: came - (way - back), to: came },
      { kind: "draft", from: came - (way - back) - draft, to: came - (way - back) });
    list.push({ kind: "network", from: verified, to: verified + back });
  } else if (us("endUs") > verified) {
    list.push({ kind: "network", from: verified, to: us("endUs") });
  }
  return list.filter((span) => span.to > span.from)
    .map((span) => ({ ...span, from: Math.max(0, span.from), to: Math.max(0, span.to) }));
}

export function showTimeline(node, lane) {
  const passes = lane.passes.slice(-MOST);
  if (passes.length === 0) {
    node.replaceChildren(el("p", { class: "hint" }, "No round yet."));
    return;
  }
  const rows = passes.map((pass) => ({ pass, spans: spans(pass.timings) }));
  const begin = Math.min(...rows.flatMap((row) => row.spans.map((span) => span.from)));
  const end = Math.max(...rows.flatMap((row) => row.spans.map((span) => span.to)), begin + 1);
  // As wide as there is room, so that letters have their own size.
  const width = Math.max(280, Math.min(1000, node.clientWidth || 700));
  const x = (us) => LABEL + (width - LABEL) * (us - begin) / (end - begin);
  const height = rows.length * ROW + 22;
  const bars = rows.flatMap((row, i) => [
    i % 2 === 0 ? svg("rect", { class: "stripe", x: 0, y: i * ROW, width, height: ROW }) : null,
    svg("text", { class: "axis", x: 4, y: i * ROW + 13 }, String(lane.passes.length - rows.length + i + 1)),
    ...row.spans.map((span) => svg("rect", {
      class: `span ${span.kind}`, x: x(span.from), y: i * ROW + (span.kind === "network" ? 6 : 3),
      width: Math.max(1.5, x(span.to) - x(span.from)), height: span.kind === "network" ? ROW - 12 : ROW - 6, rx: 2,
    })),
  ]);
  const ticks = (width < 500 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]).map((part) => svg("text", {
    class: "axis", x: LABEL + (width - LABEL) * part, y: height - 4,
    "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle",
  }, milliseconds((begin + (end - begin) * part) / 1000)));
  const open = node.querySelector("details")?.open ?? false;
  const leftOut = lane.passes.length - passes.length;
  node.replaceChildren(
    ...leftOut > 0 ? [el("p", { class: "hint" }, `The last ${passes.length} of ${count(lane.passes.length)} rounds.`)] : [],
    el("ul", { class: "legend keys", "aria-hidden": "true" },
      ...["draft", "network", "verify"].map((kind) => el("li", null, el("span", { class: `key ${kind}` }), ` ${kind}`))),
    svg("svg", {
      class: "timeline", viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `${rows.length} rounds over ${milliseconds((end - begin) / 1000)}; the table below has their times`,
    }, ...bars, ...ticks),
    table(rows, lane, open));
}

function table(rows, lane, open) {
  const time = (us) => milliseconds(Number(us ?? 0) / 1000);
  const accepted = (pass) => (pass.drafts ?? []).flatMap((draft) => draft.tokens ?? [])
    .filter((token) => token.outcome === "DRAFT_OUTCOME_ACCEPTED").length;
  return el("details", { open }, el("summary", null, "Rounds as a table"),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Rounds" },
      el("table", null,
        el("thead", null, el("tr", null, ...["Round", "Start", "Waited", "Draft", "Network", "Verify", "Tokens", "Accepted"]
          .map((name) => el("th", { scope: "col" }, name)))),
        el("tbody", null, ...rows.map(({ pass }, i) => el("tr", null,
          el("th", { scope: "row" }, count(lane.passes.length - rows.length + i + 1)),
          ...["startUs", "waitUs", "draftUs", "networkUs", "verifyUs"].map((name) => el("td", null, time(pass.timings[name]))),
          el("td", null, count((pass.choices ?? []).length)),
          el("td", null, count(accepted(pass)))))))));
}
