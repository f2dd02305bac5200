// SPDX-License-Identifier: Apache-2.0

// The page Play.

import assert from "node:assert/strict";
import { test } from "node:test";
import { REPEAT, answerWith, finished, forgive, generate, open, page, tokens, visit } from "./harness.mjs";

test("play: tokens stream in, marked by their origin", async () => {
  await visit("play");
  await generate({ ...REPEAT, maxTokens: 120 });
  await page.waitForFunction(() => document.querySelectorAll(".answer [role=option]").length > 0);
  await finished();
  const count = await tokens().count();
  assert.ok(count > 20 && count <= 120, `${count} tokens`);
  const drafts = await page.locator(".answer .tok.draft").count();
  assert.ok(drafts > 0, "repeated text has accepted draft tokens");
  // The legend names the marks; draft tokens have an accessible name too.
  const name = await page.locator(".answer .tok.draft").first().getAttribute("aria-label");
  assert.match(name, /accepted draft token/);
  assert.match(await page.locator(".lane-status").textContent(), /tokens\/s.*draft tokens accepted/);
  assert.ok(await page.locator("#positions li").count() > 0);
  assert.ok(await page.locator("#timeline rect.verify").count() > 3);
  assert.ok(await page.locator("#timeline tbody tr").count() > 3);
});

test("play: pointing at a token, or the keyboard, shows what is known of it", async () => {
  await visit("play");
  await generate({ ...REPEAT, maxTokens: 60 });
  await finished();
  await tokens().nth(2).hover();
  const panel = page.locator("#token-panel");
  await panel.getByText("Probability (model)").waitFor();
  assert.match(await panel.locator("dl").textContent(), /Probability \(model\)\s*[\d.]+ %/);
  assert.equal(await panel.locator(".bars li").count(), 5);
  // The alternatives' texts come by and by.
  await page.waitForFunction(() =>
    ![...document.querySelectorAll("#token-panel .bar-name")].some((name) => name.textContent.startsWith("#")));
  await page.locator(".answer").focus();
  await page.keyboard.press("Home");
  assert.match(await panel.locator("h2").textContent(), /^Token 1 /);
  await page.keyboard.press("ArrowRight");
  assert.match(await panel.locator("h2").textContent(), /^Token 2 /);
  await page.keyboard.press("End");
  assert.match(await panel.locator("h2").textContent(), new RegExp(`^Token ${await tokens().count()} `));
  // What was proposed for a token shows with it.
  const drafted = Number(await page.locator(".answer .tok.draft").first().getAttribute("data-index"));
  await tokens().nth(drafted).hover();
  await panel.getByText("Proposed").waitFor();
  assert.match(await panel.locator(".proposals").textContent(), /accepted/);
  const rejected = page.locator(".answer .tok.correction").first();
  if (await rejected.count() > 0) {
    await rejected.hover();
    await panel.locator(".outcome.rejected").first().waitFor();
  }
});

test("play: stop ends the work for the request", async () => {
  await visit("play");
  // As soon as a few tokens are there: two thousand may take no more than seconds.
  await page.evaluate(() => {
    const observer = new MutationObserver(() => {
      if (document.querySelectorAll(".answer [role=option]").length < 4) return;
      observer.disconnect();
      document.getElementById("stop").click();
    });
    observer.observe(document.getElementById("turns"), { childList: true, subtree: true });
  });
  await generate({ ...REPEAT, maxTokens: 2000 });
  await page.getByText(/^Stopped after/).waitFor();
  await finished();
  const count = await tokens().count();
  assert.ok(count < 2000);
  await page.waitForFunction(async () => {
    const answer = await fetch("/api/ListNodes", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: "{}",
    });
    const { nodes } = await answer.json();
    return nodes.every((node) => (node.load?.numSequences ?? 0) === 0);
  });
  assert.equal(await tokens().count(), count);
});

test("play: plain and speculative answers are equal, with either rule of choice", async () => {
  await visit("play");
  for (const temperature of ["0", "0.8"]) {
    await page.locator("#page-play summary").first().evaluate((node) => { node.parentElement.open = true; });
    await page.fill("#temperature", temperature);
    await generate({ ...REPEAT, maxTokens: 60, seed: "12345", compare: true });
    await finished();
    const verdict = await page.locator(".verdict:visible").last().textContent();
    assert.match(verdict, /The same text: all \d+ tokens are equal\./);
    assert.match(verdict, /Seed 12345\. Speculative [\d.]+ tokens\/s, plain [\d.]+ tokens\/s/);
    const texts = await page.locator(".lane .sr[id$=-text]").allTextContents();
    assert.equal(texts.length, 2);
    assert.ok(texts[0].length > 20);
    assert.equal(texts[0], texts[1]);
  }
});

test("play: what the server refuses is said", async () => {
  await visit("play");
  await page.evaluate(() => { document.getElementById("max-tokens").removeAttribute("max"); });
  await generate({ maxTokens: 1000000 });
  await page.locator("#play-error").waitFor();
  assert.match(await page.locator("#play-error").textContent(), /max_tokens/);
  await page.waitForFunction(() => !document.getElementById("run").disabled);
  // The browser notes each refusal itself.
  forgive(/status of 400/);
});

test("play: nothing is told of draft tokens where there were none", async () => {
  await visit("play");
  const proposal = { drafter: "local", tokens: [{ position: 1, tokenId: 4, outcome: "DRAFT_OUTCOME_STALE" }] };
  await answerWith([
    { started: { requestId: "x", promptTokenIds: [1], sampling: { seed: "7" } } },
    { delta: { firstIndex: 0, tokenIds: [10], text: "a", textEnds: [1], trace: [{ position: 1, choices: [{ tokenId: 10 }], drafts: [proposal] }] } },
    { finished: { finishReason: "FINISH_REASON_LENGTH", usage: { completionTokens: 1 }, speculation: { numPasses: "1", numDraftedTokens: "1" } } },
  ]);
  // Twice: the second answer is to a prompt that ran before.
  for (let i = 0; i < 2; ++i) {
    await generate({ kind: "raw", prompt: "x" });
    await finished();
    const status = await page.locator(".lane-status span").allTextContents();
    assert.equal(status[0], "1 token");
    assert.equal(status.at(-1), "no draft tokens");
    assert.doesNotMatch(status.join(), /accepted|a step/);
    assert.equal(await page.locator(".note").isVisible(), false);
  }
});

test("play: the prompt tells how to send it", async () => {
  await visit("play");
  assert.match(await page.locator("#prompt").evaluate((prompt) =>
    document.getElementById(prompt.getAttribute("aria-describedby"))?.textContent), /Ctrl and Enter/);
  await page.fill("#max-tokens", "2");
  await page.locator("#prompt").press("Control+Enter");
  await tokens().first().waitFor();
  await finished();
});

test("nothing can be pressed before the page listens", async () => {
  let goOn;
  const held = new Promise((resolve) => { goOn = resolve; });
  await page.route("**/js/play.js", async (route) => {
    await held;
    await route.continue();
  });
  const loaded = visit("play");
  await page.locator("#run").waitFor();
  const enabled = () => page.locator("header button:enabled, main button:enabled:visible").count();
  assert.equal(await enabled(), 0);
  await page.locator("#max-tokens").press("Enter");
  goOn();
  await loaded;
  await page.locator("#run:enabled").waitFor();
  assert.equal(await enabled(), 5);
});

test("play: plain decoding does not run where the speculative answer failed", async () => {
  await visit("play");
  await page.route("**/api/Generate", (route) => route.abort("connectionrefused"));
  await generate({ prompt: "x", compare: true });
  await page.locator("#play-error").waitFor();
  await page.waitForFunction(() => !document.getElementById("run").disabled);
  assert.deepEqual(await page.locator(".lane-status").allTextContents(), ["Failed after 0 tokens.", "Not run."]);
  forgive(/ERR_CONNECTION_REFUSED/);
});
