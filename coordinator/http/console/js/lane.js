// SPDX-License-Identifier: Apache-2.0

// One answer: its tokens as they come, and the figures under it.

import { ApiError, stream } from "./api.js";
import { PATIENCE_MS, isSilent, secondsSince } from "./connection.js";
import { el } from "./dom.js";
import { bytesOf, count, counted, decodeBytes, milliseconds, percent, sliceBytes, textNodes, visibleToken } from "./text.js";

const ORIGINS = {
  draft: "accepted draft token",
  correction: "the target’s choice, where a draft token was rejected",
  target: "the target’s own token",
};

// Tokens in a block of the KV cache, which is found again as a whole.
const BLOCK = 16;

// Drafters that propose what earlier requests were answered.
const REMEMBER = ["suffix", "hybrid", "local"];

let lastLane = 0;

export class Lane {
  constructor({ title, speculative, panel, onProgress }) {
    this.speculative = speculative;
    this.panel = panel;
    this.onProgress = onProgress;
    this.number = ++lastLane;
    this.tokens = [];
    this.passes = [];
    // What was proposed for each index of the completion.
    this.proposals = new Map();
    this.promptLength = 0;
    this.seed = "";
    this.elapsed = NaN;
    // When something came last, and when tokens did.
    this.heardAt = NaN;
    this.tokensAt = NaN;
    this.chosen = -1;
    this.drawn = 0;
    this.build(title);
  }

  build(title) {
    const id = `lane-${this.number}`;
    this.text = el("div", {
      class: "answer", role: "listbox", tabindex: "0", dir: "auto", id: `${id}-tokens`,
      "aria-label": `${title}: tokens`, "aria-orientation": "horizontal",
    });
    this.status = el("p", { class: "lane-status" }, "Waiting for its turn …");
    this.note = el("p", { class: "note", hidden: true });
    this.reading = el("p", { class: "sr", id: `${id}-text` });
    this.legend = this.speculative
      ? el("ul", { class: "legend", "aria-label": "Marks" },
        ...Object.entries(ORIGINS).map(([kind, meaning]) => el("li", null,
          el("span", { class: `tok ${kind}`, "aria-hidden": "true" }, "abc"), ` ${meaning}`)))
      : null;
    this.node = el("section", { class: "card lane", "aria-labelledby": id },
      el("h2", { id }, title), this.text, this.reading, this.status, this.note, this.legend);
    this.text.addEventListener("keydown", (event) => this.onKey(event));
    this.text.addEventListener("focus", () => {
      if (this.chosen < 0 && this.tokens.length > 0) this.choose(0);
    });
    for (const kind of ["pointerover", "click"]) {
      this.text.addEventListener(kind, (event) => {
        const token = event.target.closest("[data-index]");
        if (token === null) return;
        this.choose(Number(token.dataset.index));
        // What is known of it may now cover it.
        if (kind === "click") token.scrollIntoView({ block: "nearest" });
      });
    }
  }

  /** Resolves when the answer is complete. */
  async run(request, signal) {
    const start = performance.now();
    this.heardAt = start;
    this.tokensAt = start;
    this.status.textContent = "Waiting for the first token …";
    const watch = setInterval(() => this.showWait(), 500);
    try {
      await stream("Generate", request, (message) => this.onMessage(message), { signal });
      if (!this.finished) throw new ApiError(0, "The coordinator ended the stream before the answer ended.");
    } catch (error) {
      const soFar = `after ${counted(this.tokens.length, "token")}`;
      this.status.textContent = error.name === "AbortError" ? `Stopped ${soFar}.` : `Failed ${soFar}.`;
      throw error;
    } finally {
      clearInterval(watch);
      // Not later, over the figures of the next answer.
      clearTimeout(this.timer);
      this.onProgress(this);
      this.status.classList.remove("stalled");
      this.elapsed = performance.now() - start;
      this.reading.textContent = this.tokens.map((token) => token.text).join("");
    }
  }

  /** Says that it will not run. */
  skip() {
    this.status.textContent = "Not run.";
  }

  /** Says how long nothing has come, and whether anybody is at work. */
  showWait() {
    const now = performance.now();
    if (now - this.tokensAt < PATIENCE_MS) return;
    const stalled = isSilent() || (this.seed !== "" && now - this.heardAt >= PATIENCE_MS);
    this.status.classList.toggle("stalled", stalled);
    const soFar = counted(this.tokens.length, "token");
    this.status.textContent = stalled
      ? `${soFar}, then no answer for ${secondsSince(this.heardAt)} s: the stream has stalled.`
      : `${soFar}, no further one for ${secondsSince(this.tokensAt)} s; the cluster is at work …`;
  }

  /** Those of the drafters that proposed something here which remember answers. */
  rememberingDrafters() {
    const names = new Set([...this.proposals.values()].flat().map((proposal) => proposal.drafter));
    return REMEMBER.filter((name) => names.has(name));
  }

  /** True if the cluster had all of the prompt cached that can be, and more than
   * `before`, the lane of the turn before this one, left there. */
  isKnown(before) {
    const cached = this.finished?.usage?.cachedPromptTokens ?? 0;
    const carried = before ? before.promptLength + before.tokens.length : 0;
    return cached > carried && cached >= Math.floor((this.promptLength - 1) / BLOCK) * BLOCK;
  }

  /** False if no draft token was verified, so that nothing is told of them. */
  get verifiedDrafts() {
    return Number(this.finished?.speculation?.numDraftTokens ?? 0) > 0;
  }

  /** Tokens per second from the first pass to the last, by the verifier's clock:
   * how they came here tells of the coordinator and the network too. */
  get speed() {
    const told = this.finished?.timings?.tokensPerSecond ?? 0;
    if (this.passes.length < 2) return told;
    const end = ({ timings }) => Number(timings.startUs ?? 0) + Number(timings.verifyUs ?? 0);
    const time = (end(this.passes.at(-1)) - end(this.passes[0])) / 1e6;
    const tokens = this.tokens.length - (this.passes[0].choices ?? []).length;
    return time > 0 ? tokens / time : told;
  }

  /** Says something of the figures. */
  setNote(text) {
    this.note.textContent = text;
    this.note.hidden = text === "";
  }

  onMessage({ started, delta, finished }) {
    this.heardAt = performance.now();
    if (started) {
      this.promptLength = (started.promptTokenIds ?? []).length;
      this.seed = started.sampling?.seed ?? "0";
    }
    if (delta) this.onDelta(delta);
    if (finished) this.onFinished(finished);
  }

  onDelta(delta) {
    this.onTrace(delta.trace ?? []);
    const bytes = bytesOf(delta.text ?? "");
    let begin = 0;
    (delta.tokenIds ?? []).forEach((id, i) => {
      const end = (delta.textEnds ?? [])[i] ?? begin;
      this.addToken({
        id,
        text: sliceBytes(bytes, begin, end),
        draft: (delta.origins ?? [])[i] === "TOKEN_ORIGIN_DRAFT",
        logprobs: (delta.logprobs ?? [])[i] ?? null,
        choice: this.choices?.get((delta.firstIndex ?? 0) + i) ?? null,
      });
      begin = end;
    });
    this.tokensAt = performance.now();
    this.status.classList.remove("stalled");
    this.status.textContent = `${counted(this.tokens.length, "token")} …`;
    this.scheduleProgress();
  }

  onTrace(passes) {
    this.choices ??= new Map();
    for (const pass of passes) {
      const first = (pass.position ?? 0) - this.promptLength;
      (pass.choices ?? []).forEach((choice, i) => this.choices.set(first + i, choice));
      for (const draft of pass.drafts ?? []) {
        for (const token of draft.tokens ?? []) this.addProposal(draft, token);
      }
      if (pass.timings) this.passes.push(pass);
    }
  }

  addProposal(draft, token) {
    const index = (token.position ?? 0) - this.promptLength;
    const list = this.proposals.get(index) ?? [];
    list.push({
      id: token.tokenId ?? 0,
      text: decodeBytes(token.tokenBytes),
      outcome: (token.outcome ?? "").replace("DRAFT_OUTCOME_", "").toLowerCase(),
      drafter: draft.drafter ?? "",
      nodeName: draft.node ?? "",
      draftProbability: token.draftProbability,
      target: token.target,
    });
    this.proposals.set(index, list);
  }

  addToken(token) {
    const index = this.tokens.length;
    token.index = index;
    token.rejected = (this.proposals.get(index) ?? []).filter((p) => p.outcome === "rejected");
    token.kind = token.draft ? "draft" : token.rejected.length > 0 ? "correction" : "target";
    this.tokens.push(token);
    const shown = token.text === ""
      ? [el("span", { class: "esc", title: "no text of its own" }, "∅")] : textNodes(token.text);
    token.node = el("span", {
      class: `tok ${this.speculative ? token.kind : "target"}`, role: "option", id: `lane-${this.number}-${index}`,
      "data-index": index, "aria-selected": "false",
      "aria-label": `${visibleToken(token.text)}, ${ORIGINS[token.kind]}`,
    }, ...shown);
    this.text.append(token.node);
    this.text.scrollTop = this.text.scrollHeight;
  }

  onFinished(finished) {
    this.onTrace(finished.trace ? [finished.trace] : []);
    if (finished.text && this.tokens.length > 0) {
      const last = this.tokens.at(-1);
      last.text += finished.text;
      last.node.append(...textNodes(finished.text));
    }
    this.finished = finished;
    const stats = finished.speculation ?? {};
    const times = finished.timings ?? {};
    const parts = [
      counted(finished.usage?.completionTokens, "token"),
      `${this.speed.toFixed(1)} tokens/s`,
      `first after ${milliseconds(times.timeToFirstTokenMs)}`,
      `finished by ${(finished.finishReason ?? "").replace("FINISH_REASON_", "").toLowerCase()}`,
    ];
    if (this.speculative) {
      parts.push(...this.verifiedDrafts
        ? [`${percent(stats.draftAcceptanceRate ?? 0)} of ${counted(stats.numDraftTokens, "draft token")} accepted`,
          `${(stats.meanAcceptanceLength ?? 0).toFixed(2)} tokens a step`]
        : ["no draft tokens"]);
    }
    this.status.replaceChildren(...parts.map((part) => el("span", null, part)));
  }

  /** Figures are drawn a few times a second, not for every token. */
  scheduleProgress() {
    if (this.timer) return;
    this.timer = setTimeout(() => {
      this.timer = 0;
      this.onProgress(this);
    }, 250);
  }

  choose(index) {
    this.tokens[this.chosen]?.node.setAttribute("aria-selected", "false");
    this.chosen = Math.max(0, Math.min(index, this.tokens.length - 1));
    const token = this.tokens[this.chosen];
    if (!token) return;
    token.node.setAttribute("aria-selected", "true");
    this.text.setAttribute("aria-activedescendant", token.node.id);
    this.panel.show(token, this);
  }

  onKey(event) {
    const last = this.tokens.length - 1;
    const to = {
      ArrowRight: this.chosen + 1, ArrowDown: this.chosen + 1,
      ArrowLeft: this.chosen - 1, ArrowUp: this.chosen - 1,
      Home: 0, End: last,
    }[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.choose(to);
    this.tokens[this.chosen].node.scrollIntoView({ block: "nearest" });
  }
}

export { ORIGINS };
