// SPDX-License-Identifier: Apache-2.0

// Calls of InspectService: a verifier inspects one text at a time.

import { ApiError, call } from "./api.js";
import { decodeBytes } from "./text.js";

const TRIES = 20;
const WAIT_MS = 150;

let queue = Promise.resolve();

async function callPatiently(method, body) {
  for (let i = 1; ; ++i) {
    try {
      return await call(method, body);
    } catch (error) {
      // Somebody else inspects.
      if (!(error instanceof ApiError) || error.status !== 429 || i === TRIES) throw error;
      await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
    }
  }
}

/** This page's calls wait for each other; the verifier need not refuse them. */
export function inspect(method, body) {
  const result = queue.then(() => callPatiently(method, body));
  queue = result.catch(() => {});
  return result;
}

/** The texts of InspectedTokens. */
export function textsOf(tokens) {
  return (tokens ?? []).map((token) => decodeBytes(token.bytes));
}
