// SPDX-License-Identifier: Apache-2.0

// Texts that attack whoever looks at them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { expectHarmless, finished, generate, page, tokens, visit } from "./harness.mjs";

const HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>\u202eevil\u2066\u0007\u0000\u200f&amp;";

test("hostile text of a model shows as text", async () => {
  await visit("play");
  const parts = [HOSTILE.slice(0, 20), HOSTILE.slice(20), "\u05e9\u05dc\u05d5\u05dd", "\n<b>"];
  const ends = [];
  parts.reduce((sum, part) => (ends.push(sum + new TextEncoder().encode(part).length), ends.at(-1)), 0);
  const messages = [
    { started: { requestId: "x", promptTokenIds: [1], sampling: { seed: "7" } } },
    { delta: {
      tokenIds: [10, 11, 12, 13], text: parts.join(""), textEnds: ends,
      origins: ["TOKEN_ORIGIN_TARGET", "TOKEN_ORIGIN_DRAFT", "TOKEN_ORIGIN_DRAFT", "TOKEN_ORIGIN_TARGET"],
      logprobs: [10, 11, 12, 13].map((id) => ({ chosen: { tokenId: id, logprob: -0.1 }, top: [{ tokenId: id, logprob: -0.1 }, { tokenId: 99, logprob: -3 }] })),
      trace: [{
        position: 1,
        drafts: [{ drafter: HOSTILE, node: HOSTILE, tokens: [{ position: 1, tokenId: 98, tokenBytes: Buffer.from(HOSTILE).toString("base64"), outcome: "DRAFT_OUTCOME_REJECTED" }] }],
        timings: { startUs: "5", verifyUs: "10", endUs: "20" },
      }],
    } },
    { finished: { finishReason: "FINISH_REASON_STOP", usage: { completionTokens: 4 } } },
  ];
  await page.route("**/api/Generate", (route) => route.fulfill({
    contentType: "text/event-stream",
    body: messages.map((message) => `data: ${JSON.stringify(message)}\n\n`).join(""),
  }));
  await page.route("**/api/Detokenize", (route) => route.fulfill({ json: { text: HOSTILE } }));
  await generate({ prompt: HOSTILE.replace("\u0000", "") });
  await finished();
  await tokens().first().hover();
  await page.locator(".outcome.rejected").waitFor();
  await page.waitForFunction(() => document.querySelector("#token-panel").textContent.includes("U+202E"));
  const answer = await page.locator(".answer").textContent();
  for (const part of ["<script>window.hacked", "<img src=x", "U+202E", "U+2066", "U+0007", "U+0000", "U+200F", "&amp;", "<b>", "\u05e9\u05dc\u05d5\u05dd"]) {
    assert.ok(answer.includes(part), `${part} in ${answer}`);
  }
  assert.ok(!/[\u202e\u2066\u200f\u0007\u0000]/.test(answer));
  await expectHarmless();
});

test("hostile text of a user shows as text", async () => {
  await visit("explain");
  const text = HOSTILE.replace("\u0000", "");
  await page.locator(".heat td").first().waitFor();
  await page.fill("#attention-text", text);
  await page.waitForFunction(() => document.querySelector(".heat")?.textContent.includes("script"));
  await page.fill("#perplexity-text", text);
  await page.waitForFunction(() => document.querySelector(".ppl").textContent.includes("script"));
  await page.fill("#stage-prompt", text);
  await page.fill("#cache-text", text);
  await page.fill("#cache-tokens", "2");
  await page.click("#cache-run");
  await page.locator(".columns").first().waitFor();
  const shown = await page.locator("main").textContent();
  assert.ok(!/[\u202e\u2066\u0007]/.test(shown));
  assert.ok(shown.includes("U+0007"));
  await expectHarmless();
});
