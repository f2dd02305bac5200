// SPDX-License-Identifier: Apache-2.0

// Calls of InspectService: a verifier inspects one text at a time.

import { ApiError, call } from "./api.js";
import { decodeBytes } from "./text.js";

const TRIES = 20;
const WAIT_MS = 150;
/** The status of an error that says that no verifier inspects. */
export const UNIMPLEMENTED = 501;

let queue = Promise.resolve();
// What said that no verifier inspects: further calls fail with it unasked.
let refusal = null;

/** Has the cluster asked again whether a verifier inspects. */
export function forgetRefusal() {
  refusal = null;
}

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
  const result = queue.then(() => {
    if (refusal !== null) throw refusal;
    return callPatiently(method, body);
  });
  queue = result.catch((error) => {
    if (error.status === UNIMPLEMENTED) refusal = error;
  });
  return result;
}

/** The texts of InspectedTokens. */
export function textsOf(tokens) {
  return (tokens ?? []).map((token) => decodeBytes(token.bytes));
}
