// SPDX-License-Identifier: Apache-2.0

// Makes elements. Whatever comes from outside becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) {
      node.addEventListener(name.slice(2), value);
    } else {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  node.append(...children.flat().filter((child) => child !== null));
  return node;
}

/** An HTML element; attributes "onclick" and the like are listeners. */
export function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same in SVG. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function byId(id) {
  return document.getElementById(id);
}

/** Sets custom properties, which the style sheet draws from. */
export function vars(node, values) {
  for (const [name, value] of Object.entries(values)) {
    node.style.setProperty(`--${name}`, value);
  }
  return node;
}

/** Says something to screen readers. */
export function announce(text) {
  byId("announcer").textContent = text;
}

/** A labelled slider with its value beside it. */
export function slider({ id, label, min, max, step, value, hint, format, oninput }) {
  const show = format ?? ((x) => String(x));
  const output = el("output", { for: id }, show(value));
  const input = el("input", {
    id, type: "range", min, max, step, value,
    "aria-valuetext": show(value),
    "aria-describedby": hint ? `${id}-hint` : null,
  });
  const update = () => {
    output.textContent = show(Number(input.value));
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", () => {
    update();
    oninput?.(Number(input.value));
  });
  const node = el("div", { class: "slider" },
    el("label", { for: id }, label), output, input,
    hint ? el("p", { class: "hint", id: `${id}-hint` }, hint) : null);
  return {
    node,
    input,
    get value() { return Number(input.value); },
    set value(x) { input.value = x; update(); },
    setMax(x) { input.max = x; update(); },
  };
}

/** Runs the latest call only, and one at a time: `work` returns a promise. */
export function latestOnly(work, delay = 60) {
  let timer = 0;
  let running = false;
  let wanted = null;
  const start = async () => {
    if (running || wanted === null) return;
    const args = wanted;
    wanted = null;
    running = true;
    try {
      await work(...args);
    } finally {
      running = false;
      start();
    }
  };
  return (...args) => {
    wanted = args;
    clearTimeout(timer);
    timer = setTimeout(start, delay);
  };
}
