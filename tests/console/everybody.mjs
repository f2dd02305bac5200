// SPDX-License-Identifier: Apache-2.0

// All pages for everybody: sizes of screens, light and dark, keyboard, and what
// axe finds. Screenshots are kept.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { REPEAT, finished, forgive, generate, open, page, visit, visitBare } from "./harness.mjs";

const { CONSOLE_PICTURES } = process.env;
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const SIZES = [[360, 740], [768, 1024], [1440, 1000]];

async function expectNoSeriousFault(what) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run(document, {
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
  }));
  const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
  assert.deepEqual(serious.map(({ id, nodes }) => `${what}: ${id}: ${nodes.slice(0, 3).map((node) => `${node.target} ${node.failureSummary}`).join("; ")}`), []);
}

for (const colorScheme of ["light", "dark"]) {
  for (const [width, height] of SIZES) {
    test(`no serious fault for anybody, ${colorScheme}, ${width} wide`, async () => {
      await open({ viewport: { width, height }, colorScheme, reducedMotion: "reduce" });
      const look = async (name, picture = { fullPage: true }) => {
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
        assert.ok(overflow <= 0, `${name} is ${overflow} px wider than the screen`);
        if (picture.fullPage) await page.evaluate(() => window.scrollTo(0, 0));
        await page.screenshot({ path: `${CONSOLE_PICTURES}/${name}-${colorScheme}-${width}.png`, ...picture });
        await expectNoSeriousFault(name);
      };
      await visit("play");
      await generate({ ...REPEAT, maxTokens: 60, compare: width > 1000 });
      await finished();
      await page.locator(".answer").first().focus();
      await page.keyboard.press("ArrowRight");
      await page.locator("#token-panel .bars").waitFor();
      if (width < 900) {
        // Over the page's lower end, which a picture of all of it would not show.
        await look("token", { fullPage: false });
        await page.getByRole("button", { name: "Close" }).click();
      }
      await look("play");
      await generate({ prompt: "My name is Ann. Say hello to me.", maxTokens: 24, compare: width > 1000 });
      await finished();
      await page.fill("#reply", "And now in French,\nplease.");
      await page.click("#reply-send");
      await page.locator(".turn").nth(1).waitFor();
      await finished();
      await look("conversation");
      // From page to page by keyboard.
      await page.locator("#tab-play").focus();
      await page.keyboard.press("ArrowRight");
      await page.locator("#nodes tr").first().waitFor();
      await look("cluster");
      await page.keyboard.press("ArrowRight");
      await page.locator(".heat td").first().waitFor();
      await page.locator(".ppl input").first().waitFor();
      await page.locator("#stage-chart li").first().waitFor();
      await page.click("#cache-run");
      await page.locator(".columns").nth(1).waitFor();
      await look("explain");
      await page.click("#key-open");
      await expectNoSeriousFault("dialog");
      await page.keyboard.press("Escape");
      await visitBare("explain");
      await page.locator("#explain-notice").waitFor();
      await page.locator(".ppl input").first().waitFor();
      await look("explain-off");
      await page.click("#tab-cluster");
      await page.locator("#drain-why").waitFor();
      await page.locator("#nodes tr").first().waitFor();
      await page.route("**/{api/*,health}", (route) => route.abort("connectionrefused"));
      await page.locator("#connection").waitFor();
      await look("silent");
      await page.unroute("**/{api/*,health}");
      await page.locator("#connection").waitFor({ state: "hidden" });
      forgive(/status of 501|ERR_CONNECTION_REFUSED/);
    });
  }
}
