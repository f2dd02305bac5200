// SPDX-License-Identifier: Apache-2.0

// The pages as tabs, and the key.

import { onKeyWanted, setApiKey } from "./api.js";
import { startCluster } from "./cluster.js";
import { watchConnection } from "./connection.js";
import { byId } from "./dom.js";
import { startExplain } from "./explain.js";
import { askForKey } from "./key_dialog.js";
import { startPlay } from "./play.js";

const PAGES = ["play", "cluster", "explain"];
const pages = {};

function show(name, focus) {
  for (const page of PAGES) {
    const tab = byId(`tab-${page}`);
    const chosen = page === name;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    byId(`page-${page}`).hidden = !chosen;
    if (chosen && focus) tab.focus();
    if (!chosen) pages[page].hide?.();
  }
  pages[name].show?.();
  history.replaceState(null, "", `#${name}`);
}

function onTabKey(event) {
  const at = PAGES.indexOf(event.currentTarget.id.slice("tab-".length));
  const to = {
    ArrowLeft: (at + PAGES.length - 1) % PAGES.length,
    ArrowRight: (at + 1) % PAGES.length,
    Home: 0,
    End: PAGES.length - 1,
  }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  show(PAGES[to], true);
}

/** What the page shows is asked for anew. */
function refresh() {
  const chosen = PAGES.find((page) => !byId(`page-${page}`).hidden);
  pages[chosen].show?.();
}

function askForApiKey(message) {
  askForKey({
    title: "API key",
    text: message ?? "Sent with every request. It stays in this page’s memory and is gone when you close it.",
    label: "API key",
    ok: "Use key",
    use: async (key) => {
      setApiKey(key);
      refresh();
    },
  });
}

pages.play = startPlay();
pages.cluster = startCluster();
pages.explain = startExplain();
for (const page of PAGES) {
  byId(`tab-${page}`).addEventListener("click", () => show(page, false));
  byId(`tab-${page}`).addEventListener("keydown", onTabKey);
}
byId("key-open").addEventListener("click", () => askForApiKey());
onKeyWanted((error) => askForApiKey(error.message));
const asked = location.hash.slice(1);
show(PAGES.includes(asked) ? asked : "play", false);
watchConnection((silent) => {
  if (silent) pages.cluster.fade();
  else refresh();
});
// Nothing can be pressed that nobody listens to.
for (const button of document.querySelectorAll("[data-wants-script]")) button.disabled = false;
