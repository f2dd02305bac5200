// SPDX-License-Identifier: Apache-2.0

// Whether the coordinator answers, on every page. It is asked twice a second
// unless it was heard anyway. It is silent if it has said nothing for a while, and
// a question has waited for much of that: a tab that the browser puts to sleep
// does not count its sleep.

import { announce, byId } from "./dom.js";

const PERIOD_MS = 500;
// Who has not answered for so long is said to be silent.
export const PATIENCE_MS = 3000;
const UNANSWERED_MS = 2000;
// A question that is given up; another one follows.
const LIMIT_MS = 5000;

let lastAnswer = performance.now();
let askedSince = null;
let silent = false;
let onChange = () => {};

/** Something came from the coordinator. */
export function heard() {
  lastAnswer = performance.now();
  askedSince = null;
  show();
}

/** True if the coordinator has left questions unanswered for too long. */
export function isSilent() {
  return silent;
}

/** Whole seconds since `time`, of performance.now(). */
export function secondsSince(time) {
  return Math.floor((performance.now() - time) / 1000);
}

async function ask() {
  if (performance.now() - lastAnswer >= PERIOD_MS) {
    askedSince ??= performance.now();
    try {
      await fetch("health", {
        cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(LIMIT_MS),
      });
      heard();
    } catch {
      // show() counts.
    }
  }
  setTimeout(ask, PERIOD_MS);
}

function show() {
  const now = performance.now();
  const waits = askedSince !== null && now - askedSince >= UNANSWERED_MS && now - lastAnswer >= PATIENCE_MS;
  if (waits) {
    byId("connection-text").textContent =
      `No answer from the coordinator for ${secondsSince(lastAnswer)} s.`;
  }
  if (waits === silent) return;
  silent = waits;
  byId("connection").hidden = !silent;
  document.body.classList.toggle("silent", silent);
  announce(silent
    ? "The coordinator does not answer. What this page shows is old."
    : "The coordinator answers again.");
  onChange(silent);
}

/** Begins to watch; `change` is called with true when the coordinator falls
 * silent, and with false when it answers again. */
export function watchConnection(change) {
  onChange = change;
  setInterval(show, 250);
  ask();
}
