// Shows the events of the open page: each event has the markup of the live part, in which the server
// has escaped all text.
"use strict";

const live = document.getElementById("live");
const pill = document.getElementById("link");
const pause = document.getElementById("pause");
// The browser reconnects automatically after a moment.
const PATIENCE_MS = 3_000;

let events = null;
let away = null;

function say(state, text) {
  // Screen readers announce each change, so an unchanged text is not written again.
  if (pill.textContent !== text) {
    pill.className = `pill ${state}`;
    pill.textContent = text;
  }
}

function isThere() {
  clearTimeout(away);
  away = null;
  say("live", "Live");
}

function connect() {
  events = new EventSource(location.href);
  events.addEventListener("open", isThere);
  events.addEventListener("message", (event) => {
    isThere();
    show(JSON.parse(event.data));
  });
  events.addEventListener("error", () => {
    if (events.readyState === EventSource.CLOSED) {
      say("lost", "Not live: reload the page");
    } else {
      away ??= setTimeout(say, PATIENCE_MS, "lost", "Reconnecting…");
    }
  });
}

function show(markup) {
  const fresh = document.createElement("template");
  fresh.innerHTML = markup;
  update(live, fresh.content);
}

// Changes only the nodes that differ: a node with focus, a click or a scroll position stays.
function update(old, fresh) {
  const kept = new Set([...fresh.childNodes].map(key));
  for (const child of [...old.childNodes]) {
    if (!kept.has(key(child))) child.remove();
  }
  let at = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    if (at === null || key(at) !== key(child)) {
      old.insertBefore(child, at);
    } else {
      change(at, child);
      at = at.nextSibling;
    }
  }
  while (at !== null) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

// A row with a link belongs to the linked lock, whichever rows are added or removed before it.
function key(node) {
  const link = node.nodeName === "TR" ? node.querySelector("a") : null;
  return `${node.nodeName} ${node.id ?? ""} ${link?.getAttribute("href") ?? ""}`;
}

function change(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType === Node.TEXT_NODE) {
    old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  update(old, fresh);
}

function press() {
  if (events === null) {
    pause.textContent = "Pause";
    connect();
  } else {
    events.close();
    events = null;
    clearTimeout(away);
    away = null;
    pause.textContent = "Resume";
    say("", "Paused");
  }
}

if (live !== null) {
  pause.hidden = false;
  pause.addEventListener("click", press);
  connect();
}
