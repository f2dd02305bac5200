// SPDX-License-Identifier: Apache-2.0

// Drives the console's pages in Chromium against a cluster with the real model and
// a bare one with made-up tokens; console_test.py starts them. One process and one
// order: the last test takes a node away.

import "./harness.mjs";
import "./play.mjs";
import "./conversation.mjs";
import "./silence.mjs";
import "./hostile.mjs";
import "./explain.mjs";
import "./everybody.mjs";
import "./cluster.mjs";
