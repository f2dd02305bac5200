// SPDX-License-Identifier: Apache-2.0

// Calls to the coordinator: POST /api/METHOD, requests and responses as JSON.

import { heard } from "./connection.js";

/** What a call failed with. */
export class ApiError extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// Kept in memory only: gone with the page.
let apiKey = "";
const listeners = new Set();

export function setApiKey(key) {
  apiKey = key;
}

/** Calls `listener` whenever the server asks for a key. */
export function onKeyWanted(listener) {
  listeners.add(listener);
}

async function request(method, body, { key, signal } = {}) {
  const headers = { "Content-Type": "application/json" };
  const used = (key ?? apiKey).trim();
  // A header takes nothing else.
  if (/[^\x21-\x7e]/.test(used)) throw new ApiError(0, "A key has no spaces and no letters beyond ASCII.");
  if (used) headers.Authorization = `Bearer ${used}`;
  let response;
  try {
    response = await fetch(`api/${method}`, {
      method: "POST", headers, body: JSON.stringify(body), signal,
      cache: "no-store", credentials: "omit",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The coordinator cannot be reached. Is it running?");
  }
  heard();
  if (response.ok) return response;
  const error = await errorOf(response);
  if (key === undefined && error.status === 401) {
    for (const listener of listeners) listener(error);
  }
  throw error;
}

async function errorOf(response) {
  let message = `The coordinator answered ${response.status}.`;
  let code = "";
  try {
    const { error } = await response.json();
    message = error?.message ?? message;
    code = error?.code ?? "";
  } catch {
    // No JSON: the status must do.
  }
  return new ApiError(response.status, message, code);
}

/** One response. */
export async function call(method, body = {}, options = {}) {
  return (await request(method, body, options)).json();
}

/** Facts of the coordinator that no method tells: console.json. */
export async function facts() {
  const response = await fetch("console.json", { cache: "no-store", credentials: "omit" });
  return response.json();
}

async function readOn(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The connection to the coordinator broke off.");
  }
}

/** Server-sent events: `onMessage` gets each response of a stream. */
export async function stream(method, body, onMessage, options = {}) {
  const response = await request(method, body, options);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await readOn(reader);
    if (done) break;
    heard();
    rest += value;
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const event of events) deliver(event, onMessage);
  }
  if (rest.trim()) deliver(rest, onMessage);
}

function deliver(event, onMessage) {
  let kind = "message";
  const data = [];
  for (const line of event.split("\n")) {
    if (line.startsWith("event:")) kind = line.slice(6).trim();
    if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  if (data.length === 0) return;
  const message = JSON.parse(data.join("\n"));
  if (kind === "error") {
    throw new ApiError(0, message.error?.message ?? "The stream failed.",
      message.error?.code);
  }
  onMessage(message);
}
