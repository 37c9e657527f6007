// The ticket office's page: shows the server's events, and buys.
"use strict";

const $ = (id) => document.getElementById(id);

// A browser opens six connections to a server: one for the events, and one stays free.
const MOST_AT_ONCE = 4;
const MOST_NEWS = 6;
const LINE_SHOWN = 5;
const TOAST_MS = 6_000;
// After a broken connection, a purchase is sent again: at most this many times, and for this long.
const MOST_TRIES = 5;
const REPEAT_MS = 60_000;
const PAUSE_MS = 300; // before the first repeat; doubled before each further repeat

const seats = new Map(); // number -> { view, card, buying, order }
let underway = 0;
let fading = 0;

// --- Server events -------------------------------------------------------------------------------

function connect(pause) {
  const events = new EventSource("/events");
  events.addEventListener("open", () => {
    pause = 500;
    link("live", "Live");
  });
  events.addEventListener("hall", (event) => show(JSON.parse(event.data)));
  events.addEventListener("faults", (event) => showFaults(JSON.parse(event.data)));
  events.addEventListener("error", () => {
    link("lost", "Reconnecting…");
    // The browser reconnects automatically, but not after an error response.
    if (events.readyState === EventSource.CLOSED) {
      setTimeout(connect, pause, Math.min(2 * pause, 10_000));
    }
  });
}

function link(state, text) {
  $("link").className = `pill ${state}`;
  $("link").textContent = text;
}

function show(change) {
  $("trouble").hidden = change.trouble === null;
  $("trouble").textContent = change.trouble ?? "";
  for (const view of change.seats) {
    const seat = seats.get(view.seat) ?? add(view.seat);
    seat.view = view;
    draw(seat);
  }
  drawPlaces();
  const views = [...seats.values()].map((seat) => seat.view);
  const count = (test) => views.filter(test).length;
  $("sold").textContent = count((view) => view.buyer !== null);
  $("paying").textContent = count((view) => state(view) === "paying");
  $("free").textContent = count((view) => state(view) === "free");
  $("waiting").textContent = views.reduce((sum, view) => sum + view.waiters.length, 0);
}

// --- The seats -----------------------------------------------------------------------------------

function state(view) {
  if (view.buyer !== null) return "sold";
  return view.holder !== null || view.waiters.length > 0 ? "paying" : "free";
}

function add(number) {
  const card = $("seat").content.firstElementChild.cloneNode(true);
  card.id = `seat-${number}`;
  card.querySelector("h3").textContent = number;
  const seat = { number, card, view: null, buying: null, order: null };
  card.querySelector("button").addEventListener("click", (event) => {
    // Otherwise the second click of a double click would leave the queue.
    if (event.detail <= 1) press(seat);
  });
  seats.set(number, seat);
  $("seats").append(card);
  return seat;
}

// Names become text only, never markup.
function draw({ number, card, view, buying }) {
  const now = state(view);
  card.className = `seat ${now}`;
  card.querySelector(".state").textContent = { free: "free", paying: "paying", sold: "sold" }[now];
  const who = card.querySelector(".who");
  if (now === "sold") {
    who.textContent = `to ${view.buyer}`;
    who.title = `fencing token ${view.token}`;
  } else {
    who.textContent = view.holder ?? "";
  }
  const place = card.querySelector(".place");
  const ahead = buying?.ahead ?? null;
  place.hidden = ahead === null;
  if (ahead !== null) {
    const waited = Math.floor((Date.now() - buying.since) / 1000);
    place.textContent = `You: ${ahead === 0 ? "next" : `${ahead} ahead`}, ${waited} s`;
  }
  const line = card.querySelector(".line");
  line.hidden = view.waiters.length === 0;
  line.querySelector(".count").textContent = `${view.waiters.length} waiting`;
  const shown = view.waiters.slice(0, LINE_SHOWN).map(waiter);
  if (view.waiters.length > LINE_SHOWN) {
    shown.push(item(`and ${view.waiters.length - LINE_SHOWN} more`, "more"));
  }
  line.querySelector("ol").replaceChildren(...shown);

  const button = card.querySelector("button");
  const [text, kind] = label(view, now, buying);
  button.textContent = text;
  button.className = kind;
  button.disabled = kind === "";
  button.setAttribute("aria-label", `${text}: seat ${number}`);
}

function item(text, kind) {
  const entry = document.createElement("li");
  entry.className = kind;
  entry.textContent = text;
  return entry;
}

// The line cuts long names; the title has the whole name.
function waiter(name) {
  const entry = item("", "");
  const text = document.createElement("span");
  text.textContent = text.title = name;
  entry.append(text);
  return entry;
}

function label(view, now, buying) {
  if (buying !== null) {
    // A paying buyer is served to the end, even without the page.
    return buying.paying ? ["Paying…", ""] : ["Leave queue", "leave"];
  }
  if (now === "sold") return ["Sold", ""];
  return now === "free" ? ["Buy", "buy"] : ["Join queue", "queue"];
}

// --- Buying --------------------------------------------------------------------------------------

function press(seat) {
  if (seat.buying !== null) {
    seat.buying.abort.abort();
    return;
  }
  const buyer = $("buyer").value.trim();
  $("missing").textContent = buyer === "" ? "Enter your name first." : "";
  $("buyer").setAttribute("aria-invalid", String(buyer === ""));
  if (buyer === "") {
    $("buyer").focus();
  } else if (underway >= MOST_AT_ONCE) {
    announce("bad", `At most ${MOST_AT_ONCE} purchases at once from a page: wait until one is complete.`);
  } else {
    buy(seat, buyer);
  }
}

async function buy(seat, buyer) {
  // `ahead` is null until the server has queued the buyer, and again at the buyer's turn.
  seat.buying = { abort: new AbortController(), ahead: null, since: Date.now(), paying: false };
  // The key stays until a response arrives: a later click is another purchase.
  if (seat.order?.buyer !== buyer) seat.order = { buyer, key: newKey() };
  underway += 1;
  draw(seat);
  try {
    const [outcome, data] = await answer(seat);
    seat.order = null;
    if (outcome === "ticket") {
      const waited = (data.waited_ms / 1000).toFixed(1);
      announce("good", `Seat ${data.seat} is yours, ${data.buyer}. You waited ${waited} s; fencing token ${data.token}.`);
    } else {
      announce("bad", words(seat.number, data));
    }
  } catch (error) {
    const left = error.name === "AbortError";
    announce(left ? "" : "bad", left
      ? `You left the queue for seat ${seat.number}.`
      : `The office did not respond. Check seat ${seat.number} before you try again.`);
  } finally {
    seat.buying = null;
    underway -= 1;
    draw(seat);
  }
}

// 128 random bits. `crypto.randomUUID` exists only on localhost, or with TLS.
function newKey() {
  const bytes = [...crypto.getRandomValues(new Uint8Array(16))];
  return bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Returns the response to an order, which is sent again after a broken connection. The office
// recognises a repeated order by its key, and sends the first response.
async function answer(seat) {
  let cut = null;
  for (let tries = 1; ; tries += 1) {
    try {
      return await send(seat);
    } catch (error) {
      cut ??= Date.now();
      const isOver = tries === MOST_TRIES || Date.now() - cut > REPEAT_MS;
      if (error.name === "AbortError" || isOver) throw error;
      seat.buying.ahead = null;
      draw(seat);
      await new Promise((wake) => setTimeout(wake, PAUSE_MS * 2 ** (tries - 1)));
    }
  }
}

async function send(seat) {
  const response = await fetch(`/seats/${seat.number}/buy/events`, {
    method: "POST",
    headers: { "content-type": "application/json", "idempotency-key": seat.order.key },
    body: JSON.stringify({ buyer: seat.order.buyer }),
    signal: seat.buying.abort.signal,
  });
  if (response.headers.get("content-type") === "text/event-stream") return follow(seat, response);
  return [response.ok ? "ticket" : "problem", await response.json()];
}

// Shows the events of a purchase; returns the last one.
async function follow(seat, response) {
  for await (const [name, data] of events(response)) {
    switch (name) {
      case "place":
        Object.assign(seat.buying, { ahead: data.ahead, since: Date.now() - data.waited_ms, paying: false });
        break;
      case "turn":
        Object.assign(seat.buying, { ahead: null, paying: true });
        break;
      default:
        return [name, data];
    }
    draw(seat);
  }
  throw new Error("no outcome");
}

// The events of a response. `EventSource` has no POST.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let unread = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (unread + value).split("\n\n");
    unread = parts.pop();
    for (const part of parts) {
      const field = (name) => part.split("\n").find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      if (field("event") !== undefined) yield [field("event"), JSON.parse(field("data"))];
    }
  }
}

// The codes of a purchase that had begun and may have been completed.
const UNKNOWN = ["lock-lost", "idempotency-run-too-long", "idempotency-outcome-unknown"];

function words(number, problem) {
  if (UNKNOWN.includes(problem.code)) {
    return `It is unknown if you bought seat ${number}. Check whether the seat is yours.`;
  }
  const again = problem.retry_after === undefined ? "" : ` Try again in ${problem.retry_after} s.`;
  switch (problem.status) {
    case 423: return `Timed out waiting for seat ${number}.${again}`;
    case 429: return `The queue for seat ${number} is full.${again}`;
    case 503: return `Seat ${number} was not bought: ${problem.detail}${again}`;
    default: return `Seat ${number} was not bought: ${problem.detail}`;
  }
}

function announce(kind, text) {
  const entry = item(text, kind);
  $("news").querySelector(".none")?.remove();
  $("news").prepend(entry);
  while ($("news").children.length > MOST_NEWS) $("news").lastElementChild.remove();
  // The list is out of sight for a buyer who has scrolled down to a seat.
  $("toast").textContent = text;
  $("toast").className = `shown ${kind}`;
  clearTimeout(fading);
  fading = setTimeout(() => { $("toast").className = ""; }, TOAST_MS);
}

// --- Start ---------------------------------------------------------------------------------------

$("who").addEventListener("submit", (event) => event.preventDefault());
$("buyer").value = localStorage.getItem("buyer") ?? "";
$("buyer").addEventListener("change", () => localStorage.setItem("buyer", $("buyer").value.trim()));
setInterval(() => {
  for (const seat of seats.values()) if ((seat.buying?.ahead ?? null) !== null) draw(seat);
}, 1_000);
$("faults-start").addEventListener("click", () => sendFault(""));
connect(500);
