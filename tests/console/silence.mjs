// SPDX-License-Identifier: Apache-2.0

// A coordinator that does not answer: every page says so, and goes on by itself.

import assert from "node:assert/strict";
import { test } from "node:test";
import { finished, forgive, generate, page, tokens, visit, visitBare } from "./harness.mjs";

const stop = () => process.kill(Number(process.env.CONSOLE_BARE_PID), "SIGSTOP");
const goOn = () => process.kill(Number(process.env.CONSOLE_BARE_PID), "SIGCONT");

async function expectSilence() {
  await page.locator("#connection").waitFor();
  assert.match(await page.locator("#connection").textContent(), /No answer from the coordinator for \d+ s/);
  assert.match(await page.locator("#announcer").textContent(), /does not answer/);
}

async function expectAnswers() {
  await page.locator("#connection").waitFor({ state: "hidden" });
  assert.match(await page.locator("#announcer").textContent(), /answers again/);
  assert.equal(await page.evaluate(() => document.body.classList.contains("silent")), false);
}

test("a coordinator that stands still is said to be silent on every page", async () => {
  await visitBare("cluster");
  await page.locator("#nodes tr", { hasText: "verifier-0" }).waitFor();
  assert.equal(await page.locator("#connection").isVisible(), false);
  const states = page.locator("#nodes .badge");
  assert.match(await states.first().textContent(), /✓ serving/);
  try {
    stop();
    await expectSilence();
    assert.match(await states.first().textContent(), /\? was serving/);
    assert.equal(await page.locator("#nodes .badge.good").count(), 0);
    const seconds = async () => Number(/for (\d+) s/.exec(await page.locator("#connection").textContent())[1]);
    const first = await seconds();
    assert.ok(first >= 3, `${first} s`);
    await page.waitForFunction((before) =>
      Number(/for (\d+) s/.exec(document.getElementById("connection").textContent)[1]) > before, first);
    for (const name of ["play", "explain", "cluster"]) {
      await page.click(`#tab-${name}`);
      assert.equal(await page.locator("#connection").isVisible(), true, name);
    }
  } finally {
    goOn();
  }
  await expectAnswers();
  await states.filter({ hasText: "✓ serving" }).first().waitFor();
  // The page Explain was asked for on the way, and is answered now.
  await page.waitForFunction(() => !document.getElementById("explain-notice").hidden);
  forgive(/status of 501/);
});

test("a coordinator that has gone is said to be silent", async () => {
  await visit("cluster");
  await page.locator("#nodes tr").nth(1).waitFor();
  await page.route("**/*", (route) => route.abort("connectionrefused"));
  await expectSilence();
  assert.equal(await page.locator("#cluster-error").isVisible(), false, "it is said once");
  await page.unroute("**/*");
  await expectAnswers();
  forgive(/ERR_CONNECTION_REFUSED/);
});

test("play: a stream that stalls says so, and goes on", async () => {
  await visitBare("play");
  await generate({ kind: "raw", prompt: "1 2 3", maxTokens: 2000 });
  await tokens().nth(3).waitFor();
  let before;
  try {
    stop();
    await expectSilence();
    await page.locator(".lane-status.stalled").waitFor();
    assert.match(await page.locator(".lane-status").textContent(), /no answer for \d+ s: the stream has stalled/);
    before = await tokens().count();
  } finally {
    goOn();
  }
  await page.locator("#connection").waitFor({ state: "hidden" });
  await page.waitForFunction((count) => document.querySelectorAll(".answer [role=option]").length > count
    || document.getElementById("run").disabled === false, before);
  assert.ok(await tokens().count() > before, `${await page.locator(".lane-status").textContent()} ${await page.locator("#play-error").textContent()}`);
  assert.equal(await page.locator(".lane-status.stalled").count(), 0);
  await page.evaluate(() => document.getElementById("stop").click());
  await finished();
});

test("play: a stream that breaks off is no answer", async () => {
  await visit("play");
  await page.route("**/api/Generate", (route) => route.fulfill({
    contentType: "text/event-stream",
    body: `data: ${JSON.stringify({ started: { requestId: "x", promptTokenIds: [1], sampling: { seed: "7" } } })}\n\n`,
  }));
  await generate({ prompt: "x" });
  await page.locator("#play-error").waitFor();
  assert.match(await page.locator("#play-error").textContent(), /ended the stream before/);
  assert.match(await page.locator(".lane-status").textContent(), /^Failed after 0 tokens/);
  await page.waitForFunction(() => !document.getElementById("run").disabled);
});
