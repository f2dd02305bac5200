// SPDX-License-Identifier: Apache-2.0

// The page Cluster, and keys. Draining comes last: the node does not come back.

import assert from "node:assert/strict";
import { test } from "node:test";
import { expectHarmless, forgive, page, visit, visitBare } from "./harness.mjs";

const { CONSOLE_NODE, CONSOLE_OPERATOR_KEY } = process.env;

test("cluster: nodes, rates and pairs are live", async () => {
  await visit("cluster");
  await page.locator("#nodes tr").nth(2).waitFor();
  assert.equal(await page.locator("#nodes tr").count(), 3);
  const nodes = await page.locator("#nodes").textContent();
  assert.ok(nodes.includes("verifier-0") && nodes.includes("draft-0") && nodes.includes("✓ serving"));
  assert.ok(nodes.includes(CONSOLE_NODE), "a name with markup shows as it is");
  await expectHarmless();
  const done = async () => Number((await page.locator(".tile").nth(3).locator(".big").textContent()).replace(/\s/g, ""));
  const before = await done();
  await page.evaluate(() => fetch("/api/Generate", {
    method: "POST", headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ text: "one two three one two three one two", sampling: { temperature: 0 }, stop: { maxTokens: 30 } }),
  }).then((answer) => answer.text()));
  await page.waitForFunction((count) =>
    Number(document.querySelectorAll(".tile .big")[3].textContent.replace(/\s/g, "")) > count, before);
  await page.locator(".pairs li").first().waitFor();
  assert.match(await page.locator("#pairs").textContent(), /verifier-0.*accepted/);
});

test("a key is asked for where the server wants one, and sent", async () => {
  const seen = [];
  await page.route("**/api/*", (route) => {
    const key = route.request().headers().authorization;
    seen.push(key);
    if (key === "Bearer sesame") return route.continue();
    return route.fulfill({ status: 401, json: { error: { message: "this coordinator asks for an API key", code: "invalid_api_key" } } });
  });
  await visit("cluster");
  await page.locator("#key-dialog").waitFor();
  assert.match(await page.locator("#key-text").textContent(), /asks for an API key/);
  await page.fill("#key-input", "sesame");
  await page.click("#key-ok");
  await page.locator("#nodes tr").nth(1).waitFor();
  assert.ok(seen.includes("Bearer sesame"));
  assert.equal(await page.inputValue("#key-input"), "");
  assert.equal(await page.evaluate(() => localStorage.length + sessionStorage.length + document.cookie.length), 0);
  forgive(/status of 401/);
});

test("cluster: how slow a verifier is shows while it has sequences", async () => {
  let load = { slowdown: 1.6 };
  await page.route("**/api/ListNodes", async (route) => {
    const { nodes } = await (await route.fetch()).json();
    nodes.find(({ registration }) => registration.name === "verifier-0").load = load;
    await route.fulfill({ json: { nodes } });
  });
  await visit("cluster");
  const verifier = page.locator("#nodes tr", { hasText: "verifier-0" });
  await verifier.waitFor();
  assert.doesNotMatch(await verifier.textContent(), /slower/);
  load = { slowdown: 1.6, numSequences: 2 };
  await verifier.getByText("1.6 × slower than alone").waitFor();
});

test("cluster: bars of caches have a legend", async () => {
  await page.route("**/api/ListNodes", async (route) => {
    const { nodes } = await (await route.fetch()).json();
    const verifier = nodes.find(({ registration }) => registration.name === "verifier-0");
    Object.assign(verifier.load, { kvBlocksUsed: "30", kvBlocksCached: "20", kvBlocksTotal: "100" });
    await route.fulfill({ json: { nodes } });
  });
  await visit("cluster");
  await page.locator(".meter").first().waitFor();
  const legend = await page.locator("#page-cluster .legend li").allTextContents();
  assert.deepEqual(legend.map((text) => text.trim().split(/[ ,]/)[0]), ["in", "kept", "free"]);
  await page.getByText("30.0 % of 100 blocks, 20.0 % kept").waitFor();
  // The marks of the legend are those of the bars.
  const drawn = await page.evaluate(() => {
    const look = (selector, pseudo) => getComputedStyle(document.querySelector(selector), pseudo);
    return [
      [look(".meter", "::after").backgroundColor, look(".key.used").backgroundColor],
      [look(".meter", "::before").backgroundImage, look(".key.kept").backgroundImage],
      [look(".meter").backgroundColor, look(".key.free").backgroundColor],
    ];
  });
  for (const [bar, key] of drawn) assert.equal(key, bar);
});

test("cluster: nobody is offered to drain where nobody may", async () => {
  await visitBare("cluster");
  const button = page.locator("#nodes tr", { hasText: "verifier-0" }).getByRole("button", { name: /^Drain/ });
  await button.waitFor();
  await page.locator("#drain-why").waitFor();
  assert.match(await page.locator("#drain-why").textContent(), /--operator_keys/);
  assert.equal(await button.isDisabled(), true);
  assert.equal(await button.getAttribute("aria-describedby"), "drain-why");
});

test("cluster: who would drain the last verifier is told what that means", async () => {
  let others = [];
  await page.route("**/api/ListNodes", async (route) => {
    const { nodes } = await (await route.fetch()).json();
    const own = nodes.find(({ registration }) => registration.name === "verifier-0");
    const made = others.map((other, i) => ({
      ...own, ...other, nodeId: `other-${i}`, registration: { ...own.registration, name: `other-${i}` },
    }));
    await route.fulfill({ json: { nodes: [...nodes, ...made] } });
  });
  await visit("cluster");
  const expected = [
    [[], /This is the last verifier: nothing will serve\./],
    [[{ state: "NODE_STATE_DRAINING" }], /This is the last verifier: nothing will serve\./],
    [[{ model: { name: "another" } }], /This is the last verifier of \S+: nothing will serve that model\./],
    [[{}], /^It takes no new work/],
  ];
  for (const [nodes, text] of expected) {
    others = nodes;
    await page.locator("#nodes tr", { hasText: "verifier-0" }).waitFor();
    await page.waitForResponse("**/api/ListNodes");
    await page.waitForResponse("**/api/ListNodes");
    await page.getByRole("button", { name: "Drain verifier-0" }).click();
    assert.match(await page.locator("#key-text").textContent(), text);
    await page.click("#key-cancel");
  }
  // Nobody serves less without a drafter.
  await page.getByRole("button", { name: "Drain draft-0" }).click();
  assert.match(await page.locator("#key-text").textContent(), /^It takes no new work/);
});

test("a key does not stay in the dialog, however it is closed", async () => {
  await visit("cluster");
  await page.click("#key-open");
  await page.fill("#key-input", "secret");
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => document.getElementById("key-input").value === "");
  assert.equal(await page.locator("#key-dialog").isVisible(), false);
  // What no header can carry is refused here.
  await page.locator("#nodes tr", { hasText: CONSOLE_NODE }).getByRole("button", { name: /^Drain/ }).click();
  await page.fill("#key-input", "schl\u00fcssel");
  await page.click("#key-ok");
  await page.locator("#key-error").waitFor();
  assert.match(await page.locator("#key-error").textContent(), /ASCII/);
});

test("cluster: an operator drains a node", async () => {
  await visit("cluster");
  const row = page.locator("#nodes tr", { hasText: CONSOLE_NODE });
  assert.equal(await page.locator("#drain-why").isVisible(), false);
  await row.getByRole("button", { name: /^Drain/ }).click();
  const refused = [["", /Type the key of an operator/], ["wrong", /^Not drained: the coordinator knows no operator with this key/]];
  for (const [key, why] of refused) {
    await page.fill("#key-input", key);
    await page.click("#key-ok");
    await page.waitForFunction((pattern) => new RegExp(pattern).test(document.getElementById("key-error").textContent), why.source);
    assert.equal(await page.locator("#key-error").isVisible(), true);
  }
  await page.fill("#key-input", CONSOLE_OPERATOR_KEY);
  await page.click("#key-ok");
  await page.locator("#key-dialog").waitFor({ state: "hidden" });
  await page.waitForFunction((name) => {
    const found = [...document.querySelectorAll("#nodes tr")].find((tr) => tr.textContent.includes(name));
    return found === undefined || /draining|gone/.test(found.textContent);
  }, CONSOLE_NODE);
  forgive(/status of 40[13]/);
});
