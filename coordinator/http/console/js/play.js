// SPDX-License-Identifier: Apache-2.0

// Play: a prompt, the answer with each token's origin, and how it came about; a
// chat goes on for as long as one likes.

import { Conversation } from "./conversation.js";
import { announce, byId, el } from "./dom.js";
import { Lane } from "./lane.js";
import { showPositions } from "./positions.js";
import { Settings } from "./settings.js";
import { count, milliseconds } from "./text.js";
import { showTimeline } from "./timeline.js";
import { TokenPanel } from "./token_panel.js";

const ALONE = [{ title: "Answer", speculative: true }];
const COMPARED = [{ title: "Speculative", speculative: true }, { title: "Plain", speculative: false }];

class Play {
  constructor() {
    this.settings = new Settings();
    this.panel = new TokenPanel(byId("token-panel"));
    this.conversation = new Conversation(byId("turns"));
    // Prompts that have run on this page outside of comparisons. Of what ran before
    // it was loaded, or elsewhere, the prefix cache tells.
    this.asked = new Set();
    this.abort = null;
    byId("play-form").addEventListener("submit", (event) => this.begin(event));
    byId("reply-form").addEventListener("submit", (event) => this.reply(event));
    byId("conversation-new").addEventListener("click", () => this.reset());
    for (const id of ["stop", "reply-stop"]) {
      byId(id).addEventListener("click", () => this.abort?.abort());
    }
    for (const id of ["prompt", "reply"]) {
      byId(id).addEventListener("keydown", (event) => {
        if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
        event.preventDefault();
        event.target.form.requestSubmit();
      });
    }
  }

  async begin(event) {
    event.preventDefault();
    if (this.abort !== null) return;
    this.clear();
    const chat = this.settings.chat;
    const done = await this.answer(byId("prompt").value, chat);
    byId("reply-form").hidden = !(done && chat);
  }

  async reply(event) {
    event.preventDefault();
    const said = byId("reply").value;
    if (this.abort !== null || said.trim() === "") return;
    if (await this.answer(said, true)) byId("reply").value = "";
  }

  /** Takes everything away that earlier answers left. */
  clear() {
    this.conversation.clear();
    this.panel.clear();
    byId("reply").value = "";
    for (const id of ["play-error", "figures", "reply-form"]) byId(id).hidden = true;
  }

  reset() {
    if (this.abort !== null) return;
    this.clear();
    announce("A new conversation.");
    byId("prompt").focus();
  }

  setRunning(running) {
    for (const id of ["run", "reply-send", "conversation-new"]) byId(id).disabled = running;
    for (const id of ["stop", "reply-stop"]) byId(id).disabled = !running;
  }

  /** One turn. True if there is an answer now, a part of one if it was stopped. */
  async answer(said, chat) {
    const compare = byId("compare").checked;
    const turn = this.conversation.turns.length + 1;
    const lanes = (compare ? COMPARED : ALONE).map((kind) => new Lane({
      ...kind,
      title: turn > 1 ? `${kind.title} ${turn}` : kind.title,
      panel: this.panel,
      onProgress: kind.speculative ? (lane) => this.drawFigures(lane, turn) : () => {},
    }));
    byId("play-error").hidden = true;
    this.abort = new AbortController();
    this.setRunning(true);
    announce("Generating.");
    try {
      const prompt = chat ? { chat: { messages: await this.conversation.messagesWith(said) } } : { text: said };
      this.conversation.add(said, lanes);
      await this.run(lanes, prompt, compare);
      announce(`The answer is complete. ${this.conversation.turns.at(-1).verdict.textContent}${lanes[0].note.textContent}`);
      return true;
    } catch (error) {
      return this.explain(error, turn, lanes);
    } finally {
      this.abort = null;
      this.setRunning(false);
    }
  }

  async run(lanes, prompt, compare) {
    const seed = this.settings.seed;
    // One behind the other, so that neither takes the other's time.
    for (const [i, lane] of lanes.entries()) {
      const request = this.settings.requestOf(prompt, { speculative: lane.speculative, seed, fresh: compare });
      try {
        await lane.run(request, this.abort.signal);
      } catch (error) {
        for (const later of lanes.slice(i + 1)) later.skip();
        throw error;
      }
    }
    if (compare) this.judge(...lanes);
    else this.noteMemory(lanes[0], JSON.stringify(prompt));
  }

  /** Says that an answer that was given before is drafted more easily. */
  noteMemory(lane, prompt) {
    const names = lane.rememberingDrafters();
    const before = this.conversation.turns.at(-2)?.lane;
    if (lane.verifiedDrafts && names.length > 0 && (this.asked.has(prompt) || lane.isKnown(before))) {
      lane.setNote(`This prompt, or one that begins like it, ran here before, and the drafter ${names.join(" and ")} keeps what was answered: `
        + "acceptance and speed can be far better than for a new text. “Compare with plain decoding” starts without that memory.");
    }
    this.asked.add(prompt);
  }

  explain(error, turn, lanes) {
    const stopped = error.name === "AbortError";
    if (!stopped) {
      byId("play-error").textContent = error.message;
      byId("play-error").hidden = false;
    }
    announce(stopped ? "Stopped." : "");
    if (lanes[0].tokens.length > 0) return true;
    // A reply that was not taken can be sent again.
    if (turn > 1 && this.conversation.turns.length === turn) this.conversation.dropLast();
    return false;
  }

  drawFigures(lane, turn) {
    byId("figures").hidden = lane.passes.length === 0;
    for (const node of document.querySelectorAll(".of-turn")) {
      node.textContent = turn > 1 ? `of answer ${turn}` : "";
    }
    showPositions(byId("positions"), lane.passes);
    showTimeline(byId("timeline"), lane);
  }

  judge(speculative, plain) {
    const a = speculative.tokens.map((token) => token.id);
    const b = plain.tokens.map((token) => token.id);
    const differs = a.findIndex((id, i) => id !== b[i]);
    const equal = a.length === b.length && differs < 0;
    const { verdict } = this.conversation.turns.at(-1);
    const cached = (lane) => count(lane.finished?.usage?.cachedPromptTokens);
    const ratio = plain.speed > 0 ? `: ${(speculative.speed / plain.speed).toFixed(2)} times the speed` : "";
    verdict.hidden = false;
    verdict.classList.toggle("bad", !equal);
    verdict.replaceChildren(
      el("strong", null, equal
        ? `✓ The same text: all ${count(a.length)} tokens are equal.`
        : `✗ The texts differ from token ${differs < 0 ? Math.min(a.length, b.length) : differs} on.`),
      ` Seed ${speculative.seed}. Speculative ${speculative.speed.toFixed(1)} tokens/s, plain ${plain.speed.toFixed(1)} tokens/s${ratio}.`,
      ` The whole answers took ${milliseconds(speculative.elapsed)} and ${milliseconds(plain.elapsed)}.`,
      ` Both began cold: no earlier text to remember, ${cached(speculative)} and ${cached(plain)} of the prompt’s tokens in the cache.`);
  }
}

export function startPlay() {
  const play = new Play();
  return { show: () => play.settings.loadDrafters() };
}
