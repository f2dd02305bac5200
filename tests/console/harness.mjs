// SPDX-License-Identifier: Apache-2.0

// A page of the console in Chromium, a fresh one for each test, and what tests do
// on it. A test fails if the page complains, asks anybody but its server, or runs
// a script that is not the console's.

import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach } from "node:test";
import { chromium } from "playwright-core";

const { CONSOLE_URL, CONSOLE_BARE_URL, CONSOLE_CHROMIUM } = process.env;
// Nothing that works takes this long, on a machine that is busy.
const PATIENCE_MS = 60000;

// A raw prompt that the model goes on repeating, so that drafts are accepted.
export const REPEAT = {
  kind: "raw",
  prompt: `${"one two three four five six seven eight nine ten, ".repeat(2)}one two three four`,
};

export let page;
let browser;
let faults;

before(async () => {
  browser = await chromium.launch({
    executablePath: CONSOLE_CHROMIUM,
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });
});

after(async () => browser?.close());

beforeEach(async () => {
  faults = [];
  await open();
});

afterEach(async () => {
  await page.close();
  assert.deepEqual(faults, []);
});

/** Opens the page; a test may do it again with other options. */
export async function open(options = {}) {
  await page?.close();
  page = await browser.newPage({ viewport: { width: 1280, height: 900 }, ...options });
  page.setDefaultTimeout(PATIENCE_MS);
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) faults.push(message.text());
  });
  page.on("pageerror", (error) => faults.push(`uncaught: ${error.message}`));
  page.on("dialog", async (dialog) => {
    faults.push(`a script ran: ${dialog.message()}`);
    await dialog.dismiss();
  });
  page.on("request", (request) => {
    if (![CONSOLE_URL, CONSOLE_BARE_URL, "data:"].some((own) => request.url().startsWith(own))) {
      faults.push(`asked ${request.url()}`);
    }
  });
}

/** The browser itself notes each refusal by the server: those that a test wants. */
export function forgive(pattern) {
  faults = faults.filter((fault) => !pattern.test(fault));
}

export const visit = (name) => page.goto(`${CONSOLE_URL}#${name}`);
/** The same of a cluster that has neither operators nor --inspect. */
export const visitBare = (name) => page.goto(`${CONSOLE_BARE_URL}#${name}`);
export const tokens = () => page.locator(".answer [role=option]");

export async function generate({ prompt, maxTokens = 40, seed = "7", kind = "chat", compare = false }) {
  if (prompt !== undefined) await page.fill("#prompt", prompt);
  await page.locator(`input[name=kind][value=${kind}]`).check({ force: true });
  await page.fill("#max-tokens", String(maxTokens));
  await page.fill("#seed", seed);
  await page.locator("#compare").setChecked(compare);
  await page.click("#run");
}

export async function finished() {
  await page.waitForFunction(() => !document.getElementById("run").disabled);
  assert.equal(await page.locator("#play-error").isVisible(), false,
    await page.locator("#play-error").textContent());
}

/** Nothing that came from outside has become a part of the page. */
export async function expectHarmless() {
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.equal(await page.locator("main img, main script, main iframe, main svg[onload]").count(), 0);
}

/** Has the server answer each Generate with `messages`. */
export const answerWith = (messages) => page.route("**/api/Generate", (route) => route.fulfill({
  contentType: "text/event-stream",
  body: messages.map((message) => `data: ${JSON.stringify(message)}\n\n`).join(""),
}));
