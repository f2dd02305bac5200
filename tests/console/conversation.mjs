// SPDX-License-Identifier: Apache-2.0

// The page Play: conversations, and figures that earlier runs do not flatter.

import assert from "node:assert/strict";
import { test } from "node:test";
import { REPEAT, answerWith, finished, forgive, generate, open, page, tokens, visit } from "./harness.mjs";

/** The bodies of the page's requests to generate, from now on. */
function requests() {
  const bodies = [];
  page.on("request", (request) => {
    if (request.url().endsWith("/api/Generate")) bodies.push(request.postDataJSON());
  });
  return bodies;
}

test("play: a chat goes on, and every turn keeps its marks", async () => {
  await visit("play");
  const bodies = requests();
  await generate({ prompt: "My name is Ann. Say hello to me.", maxTokens: 30 });
  await finished();
  const first = await tokens().count();
  await page.fill("#reply", "What is my name?");
  await page.locator("#reply").focus();
  await page.keyboard.press("Control+Enter");
  await page.locator(".turn").nth(1).waitFor();
  await finished();
  const [{ chat: before }, { chat: after }] = bodies;
  assert.equal(before.messages.length, 1);
  assert.deepEqual(after.messages.map(({ role }) => role), ["user", "assistant", "user"]);
  assert.equal(after.messages[2].content, "What is my name?");
  // What was answered, without the token that ended it.
  const shown = await page.locator(".lane .sr[id$=-text]").first().textContent();
  assert.ok(after.messages[1].content.length > 3);
  assert.equal(shown.replace(/<\|im_end\|>$/, ""), after.messages[1].content);
  assert.equal(await page.inputValue("#reply"), "");
  // Both turns show what was said, and know their tokens.
  assert.deepEqual(await page.locator(".said-text").allTextContents(), ["My name is Ann. Say hello to me.", "What is my name?"]);
  assert.equal(await page.locator(".said-text").first().isVisible(), true);
  assert.equal(await page.locator(".turn").first().locator("[role=option]").count(), first);
  await page.locator(".answer").first().focus();
  await page.keyboard.press("Home");
  assert.match(await page.locator("#token-panel h2").textContent(), /^Token 1 /);
  await page.locator(".answer").nth(1).focus();
  await page.keyboard.press("End");
  const second = await page.locator(".turn").nth(1).locator("[role=option]").count();
  assert.match(await page.locator("#token-panel h2").textContent(), new RegExp(`^Token ${second} `));
  assert.match(await page.locator("#timeline-title").textContent(), /answer 2/);
  await page.click("#conversation-new");
  assert.equal(await page.locator(".turn").count(), 0);
  assert.equal(await page.locator("#reply-form").isVisible(), false);
  assert.equal(await page.evaluate(() => document.activeElement.id), "prompt");
});

test("play: a reply that is refused can be sent again; a raw text has none", async () => {
  await visit("play");
  await generate({ prompt: "Say one word.", maxTokens: 8 });
  await finished();
  await page.route("**/api/Generate", (route) => route.abort("connectionrefused"));
  await page.fill("#reply", "Again.");
  await page.click("#reply-send");
  await page.locator("#play-error").waitFor();
  await page.waitForFunction(() => !document.getElementById("run").disabled);
  assert.equal(await page.inputValue("#reply"), "Again.");
  assert.equal(await page.locator(".turn").count(), 1);
  await page.unroute("**/api/Generate");
  await page.click("#reply-send");
  await page.locator(".turn").nth(1).waitFor();
  await finished();
  assert.equal(await page.locator("#play-error").isVisible(), false);
  await generate({ ...REPEAT, maxTokens: 8 });
  await finished();
  assert.equal(await page.locator("#reply-form").isVisible(), false);
  forgive(/ERR_CONNECTION_REFUSED/);
});

test("play: a prompt that ran before says that drafters remember", async () => {
  await visit("play");
  const bodies = requests();
  const run = async (options) => {
    await generate({ ...REPEAT, maxTokens: 60, ...options });
    await finished();
  };
  // That no other test asks.
  const prompt = `red green blue ${REPEAT.prompt}`;
  await run({ prompt });
  assert.equal(await page.locator(".note").isVisible(), false);
  await run({ prompt, seed: "8" });
  assert.match(await page.locator(".note").textContent(), /ran here before.*(local|suffix)/);
  assert.match(await page.locator("#announcer").textContent(), /ran here before/);
  // A page that was loaded anew knows it from the cluster.
  await page.reload();
  await run({ prompt });
  assert.match(await page.locator(".note").textContent(), /ran here before.*(local|suffix)/);
  // Not of another text.
  await run({ prompt: `black white ${REPEAT.prompt}` });
  assert.equal(await page.locator(".note").isVisible(), false);
  // A comparison knows nothing of either, whatever its order.
  await run({ prompt, compare: true });
  assert.equal(await page.locator(".note:visible").count(), 0);
  assert.match(await page.locator(".verdict:visible").last().textContent(), /Both began cold.* 0 and 0 of the prompt’s tokens/);
  const salts = bodies.map(({ cacheSalt }) => cacheSalt);
  assert.deepEqual(salts.slice(0, 4), [undefined, undefined, undefined, undefined]);
  assert.ok(salts[4] && salts[5] && salts[4] !== salts[5], salts.join());
});

test("play: speed is by the verifier's clock, however tokens come here", async () => {
  await visit("play");
  // Ten passes of a token in every 10 ms; all of it came at once.
  const pass = (i) => ({
    position: 1 + i, choices: [{ tokenId: 10 + i }], timings: { startUs: String(1000 + 10000 * i), verifyUs: "9000", endUs: "999000" },
  });
  const messages = [
    { started: { requestId: "x", promptTokenIds: [1], sampling: { seed: "7" } } },
    ...[...Array(10).keys()].map((i) => ({ delta: { firstIndex: i, tokenIds: [10 + i], text: "a", textEnds: [1], trace: [pass(i)] } })),
    { finished: { finishReason: "FINISH_REASON_LENGTH", usage: { completionTokens: 10 }, timings: { tokensPerSecond: 53464.6 } } },
  ];
  await answerWith(messages);
  await generate({ kind: "raw", prompt: "x" });
  await finished();
  assert.match(await page.locator(".lane-status").textContent(), /100\.0 tokens\/s/);
});

test("play: on a phone what is known of a token is on the screen", async () => {
  await open({ viewport: { width: 360, height: 740 } });
  await visit("play");
  await generate({ prompt: "Count from one to nine.", maxTokens: 40 });
  await finished();
  await page.fill("#reply", "Once more.");
  await page.click("#reply-send");
  await page.locator(".turn").nth(1).waitFor();
  await finished();
  const token = tokens().nth(await tokens().count() - 2);
  await token.click();
  const panel = page.locator("#token-panel");
  const { y, height } = await panel.boundingBox();
  const chosen = await token.boundingBox();
  assert.ok(chosen.y + chosen.height <= y, "the token is not covered");
  assert.ok(y > 300 && y + height <= 741, `from ${y}, ${height} high`);
  await panel.getByRole("button", { name: "Close" }).click();
  assert.match(await panel.textContent(), /Point at a token/);
});

test("play: what a conversation itself left in the cache is no memory of others", async () => {
  await visit("play");
  const words = ["lamp", "boat"];
  const notes = [];
  // The same conversation twice: the second is remembered from its first turn on.
  for (let i = 0; i < 2; ++i) {
    await generate({ prompt: `Say this: ${"tick tock ".repeat(6)}`, maxTokens: 40 });
    await finished();
    notes.push(await page.locator(".note").last().isVisible());
    await page.fill("#reply", `Once more, ${words.join(" and ")}, ${"tick tock ".repeat(12)}`);
    await page.click("#reply-send");
    await page.locator(".turn").nth(1).waitFor();
    await finished();
    notes.push(await page.locator(".note").last().isVisible());
    await page.reload();
  }
  assert.deepEqual(notes, [false, false, true, true]);
});
