// Shows the events of the open page: each has the markup of the part that changes, in which the
// server has escaped all text.
"use strict";

const live = document.getElementById("live");
const pill = document.getElementById("link");
const pause = document.getElementById("pause");
// The browser asks again by itself, which takes a moment.
const PATIENCE_MS = 3_000;

let events = null;
let away = null;

function say(state, text) {
  // It is announced: only where it changes.
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

// Changes only the parts that differ: a part that is clicked, has the focus or is scrolled stays.
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

// A row with a link is that of its lock, whichever rows come and go in front of it.
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
    pause.textContent = "Go on";
    say("", "Paused");
  }
}

if (live !== null) {
  pause.hidden = false;
  pause.addEventListener("click", press);
  connect();
}
