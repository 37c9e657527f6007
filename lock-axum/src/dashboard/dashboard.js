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

// The focus, and how far tables are scrolled, stay where they are.
function show(markup) {
  const held = document.activeElement;
  const place = live.contains(held) ? place_of(held) : null;
  const scrolled = [...live.querySelectorAll(".scroll")].map((part) => [part.id, part.scrollLeft]);
  live.innerHTML = markup;
  for (const [id, left] of scrolled) {
    const part = document.getElementById(id);
    if (part !== null) part.scrollLeft = left;
  }
  if (place !== null) find(place)?.focus({ preventScroll: true });
}

// A link is the one to its page; all else that has the focus has an id.
function place_of(element) {
  return element.id !== "" ? { id: element.id } : { href: element.getAttribute("href") };
}

function find({ id, href }) {
  if (id !== undefined) return document.getElementById(id);
  return [...live.querySelectorAll("a")].find((link) => link.getAttribute("href") === href);
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
