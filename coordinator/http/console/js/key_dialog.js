// SPDX-License-Identifier: Apache-2.0

// Asks for a secret. It is handed to the caller and kept nowhere.

import { byId } from "./dom.js";

let use = null;

function close() {
  byId("key-dialog").close();
}

async function submit(event) {
  event.preventDefault();
  const error = byId("key-error");
  error.hidden = true;
  byId("key-ok").disabled = true;
  try {
    await use(byId("key-input").value);
    close();
  } catch (failure) {
    error.textContent = failure.message;
    error.hidden = false;
  } finally {
    byId("key-ok").disabled = false;
  }
}

byId("key-form").addEventListener("submit", submit);
byId("key-cancel").addEventListener("click", close);
// However it was closed, Escape included.
byId("key-dialog").addEventListener("close", () => { byId("key-input").value = ""; });

/** `use` gets the key; if it throws, its message is shown and the user may try
 * again. One question at a time. */
export function askForKey(question) {
  const dialog = byId("key-dialog");
  if (dialog.open) return;
  use = question.use;
  byId("key-title").textContent = question.title;
  byId("key-text").textContent = question.text;
  byId("key-label").textContent = question.label;
  byId("key-ok").textContent = question.ok;
  byId("key-error").hidden = true;
  dialog.showModal();
  byId("key-input").focus();
}
