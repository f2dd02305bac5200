// SPDX-License-Identifier: Apache-2.0

// The page Explain.

import assert from "node:assert/strict";
import { test } from "node:test";
import { forgive, page, visit, visitBare } from "./harness.mjs";

test("explain: attention of any layer and head", async () => {
  await visit("explain");
  await page.locator(".heat td:not(.behind)").first().waitFor();
  // "The cat sat on the mat." has seven tokens: 28 weights and a corner.
  const cells = page.locator(".heat tbody td:not(.behind)");
  assert.equal(await cells.count(), 28);
  assert.equal(await page.locator(".thumb").count(), 9);
  const read = () => cells.allTextContents();
  const first = await read();
  for (let row = 0, at = 0; row < 7; at += ++row) {
    const sum = first.slice(at, at + row + 1).reduce((a, b) => a + Number(b), 0);
    assert.ok(Math.abs(sum - 1) < 0.05, `row ${row} sums to ${sum}`);
  }
  await page.locator(".thumb").nth(4).click();
  const second = await read();
  assert.notDeepEqual(second, first);
  assert.equal(await page.inputValue("#attention-head"), "4");
  await page.fill("#attention-layer", "29");
  await page.waitForFunction(() => document.getElementById("attention-summary").textContent.startsWith("Layer 29, head 4"));
  assert.notDeepEqual(await read(), second);
});

test("explain: sliders reshape the next token's distribution in pipeline order", async () => {
  await visit("explain");
  const stages = page.locator(".pipeline li");
  await stages.first().waitFor();
  assert.deepEqual(await page.locator(".stage-name").allTextContents(),
    ["model", "logit_bias", "min_tokens", "repetition penalty", "frequency penalty", "presence penalty", "temperature", "min_p", "top_k", "top_p"]);
  const left = (i) => stages.nth(i).locator(".stage-left").textContent();
  const values = () => page.locator("#stage-chart .bar-value").allTextContents();
  assert.equal(await left(8), "off");
  const before = await values();
  await page.fill("#stage-top-k", "3");
  await page.waitForFunction(() => document.querySelectorAll(".stage-left")[8].textContent === "3 left");
  const kept = (await values()).filter((value) => value !== "cut");
  assert.equal(kept.length, 3);
  assert.ok(Math.abs(kept.reduce((sum, value) => sum + parseFloat(value), 0) - 100) < 0.3, kept.join());
  await page.fill("#stage-top-k", "0");
  await page.fill("#stage-temperature", "0");
  await page.waitForFunction(() => document.querySelectorAll(".stage-left")[6].textContent === "1 left");
  assert.match(await page.locator("#stage-chart").textContent(), /: 1 token left\./);
  await page.fill("#stage-temperature", "1");
  await page.fill("#stage-min-p", "0.5");
  await page.waitForFunction(() => /^\d left$/.test(document.querySelectorAll(".stage-left")[7].textContent));
  await page.fill("#stage-min-p", "0");
  await page.fill("#stage-top-p", "0.5");
  await page.waitForFunction(() => /^\d+ left$/.test(document.querySelectorAll(".stage-left")[9].textContent));
  await page.fill("#stage-top-p", "1");
  for (const [name, i] of [["repetition", 3], ["frequency", 4], ["presence", 5]]) {
    await page.fill(`#stage-${name}`, "1.5");
    await page.waitForFunction((at) => document.querySelectorAll(".stage-left")[at].textContent !== "off", i);
    assert.notDeepEqual(await values(), before, name);
    await page.fill(`#stage-${name}`, name === "repetition" ? "1" : "0");
    await page.waitForFunction((at) => document.querySelectorAll(".stage-left")[at].textContent === "off", i);
  }
  // Any stage can be looked at.
  await stages.first().locator("button").click();
  assert.match(await page.locator("#stage-chart").textContent(), /^After model:/);
});

test("explain: perplexity follows a token's probability", async () => {
  await visit("explain");
  await page.locator(".ppl input").first().waitFor();
  assert.equal(await page.locator(".ppl input").count(), 6);
  const value = async () => Number(await page.locator("#perplexity-value").textContent());
  const model = await value();
  const sliders = page.locator(".ppl input");
  await sliders.nth(0).fill("0");
  const higher = await value();
  assert.ok(higher < model, `${higher} < ${model}`);
  // By hand: the mean of -ln p over six tokens, the first's p now 1.
  const logs = (await page.locator(".ppl output").allTextContents()).map((text) => Number(/p = (-?[\d.]+)/.exec(text)[1]));
  const expected = Math.exp(logs.reduce((a, b) => a + b, 0) / 6);
  assert.ok(Math.abs(higher - expected) / expected < 0.02, `${higher} is ${expected}`);
  await sliders.nth(5).focus();
  await page.keyboard.press("ArrowLeft");
  assert.ok(await value() > higher);
  await page.click("#perplexity-reset");
  await page.waitForFunction((want) => Number(document.getElementById("perplexity-value").textContent) === want, model);
});

test("explain: rows of keys with and without a cache are counted", async () => {
  await visit("explain");
  await page.fill("#cache-tokens", "5");
  await page.click("#cache-run");
  await page.locator(".columns").nth(1).waitFor();
  const totals = await page.locator("#cache-result .big").allTextContents();
  // 30 layers: 7 + 4 rows with a cache, 7 + 8 + 9 + 10 + 11 without.
  assert.deepEqual(totals.map((text) => text.replace(/\s/g, "")), ["330keyrows", "1350keyrows"]);
});

test("explain: a cluster that does not inspect says so once, calmly, and scores all the same", async () => {
  const asked = [];
  page.on("request", (request) => {
    if (request.url().includes("/api/Inspect")) asked.push(request.url());
  });
  await visitBare("explain");
  await page.locator("#explain-notice").waitFor();
  assert.match(await page.locator("#explain-notice").textContent(), /specwire up --inspect/);
  for (const id of ["attention", "stages", "cache"]) {
    assert.equal(await page.locator(`#${id}`).isVisible(), false, id);
  }
  await page.locator(".ppl input").first().waitFor();
  assert.equal(await page.locator("#page-explain .error:visible").count(), 0);
  assert.equal(asked.length, 1, asked.join());
  for (const slider of await page.locator(".ppl input").all()) await slider.fill("0");
  assert.equal(await page.locator("#perplexity-value").textContent(), "1.00");
  forgive(/status of 501/);
});

test("explain: what was switched off comes when a verifier inspects", async () => {
  await page.route("**/api/Inspect*", (route) => route.fulfill({
    status: 501, json: { error: { message: "no verifier of \"x\" inspects; start one with --inspect" } },
  }));
  await visit("explain");
  await page.locator("#explain-notice").waitFor();
  await page.unroute("**/api/Inspect*");
  await page.click("#explain-again");
  await page.locator(".heat td").first().waitFor();
  await page.locator("#stage-chart li").first().waitFor();
  assert.equal(await page.locator("#explain-notice").isVisible(), false);
  forgive(/status of 501/);
});

test("explain: what concerns all cards is said once, a text's own fault at the text", async () => {
  await page.route("**/api/{Inspect*,Score}", (route) => route.fulfill({
    status: 503, json: { error: { message: "no verifier serves" } },
  }));
  await visit("explain");
  await page.locator("#explain-error").waitFor();
  assert.equal(await page.locator("#page-explain .error:visible").count(), 1);
  await page.unroute("**/api/{Inspect*,Score}");
  // Coming back asks again.
  await page.click("#tab-play");
  await page.click("#tab-explain");
  await page.locator(".heat td").first().waitFor();
  await page.locator(".ppl input").first().waitFor();
  await page.locator("#explain-error").waitFor({ state: "hidden" });
  await page.fill("#attention-text", "word ".repeat(300));
  await page.locator("#attention .error").waitFor();
  assert.equal(await page.locator("#page-explain .error:visible").count(), 1);
  forgive(/status of (503|400)/);
});
