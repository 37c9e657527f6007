// The fault panel: shows the buyers' processes, and sends faults. Hidden unless the server enables it.
// Loaded before page.js, which uses this file.
"use strict";

const processes = new Map(); // number -> list item
const WORDS = { kill: "Kill", freeze: "Freeze", thaw: "Thaw", "cut-off": "Cut off", reconnect: "Reconnect" };

let faultsSeat = null;

function showFaults(panel) {
  faultsSeat = panel.seat;
  $("faults").hidden = false;
  $("faults-seat").textContent = `seat ${panel.seat}`;
  $("faults-seat").href = `#seat-${panel.seat}`;
  $("faults-lease").textContent = `the lease of ${panel.lease_ms / 1000} s`;
  $("faults-written").textContent = panel.written;
  $("faults-refused").textContent = panel.refused;
  const shown = new Set(panel.buyers.map((buyer) => buyer.number));
  for (const [number, entry] of processes) {
    if (!shown.has(number)) entry.remove(), processes.delete(number);
  }
  panel.buyers.forEach(drawProcess);
  drawPlaces();
  const reports = panel.reports.map(({ name, ...report }) => item(`${name}: ${describe(report)}`, kind(report)));
  if (reports.length > 0) $("faults-reports").replaceChildren(...reports);
}

function drawProcess(buyer) {
  let entry = processes.get(buyer.number);
  if (entry === undefined) {
    entry = $("process").content.firstElementChild.cloneNode(true);
    entry.id = `buyer-${buyer.number}`;
    for (const button of entry.querySelectorAll("button")) {
      button.addEventListener("click", () => sendFault(`/${buyer.number}/${button.dataset.next}`));
    }
    processes.set(buyer.number, entry);
    $("faults-buyers").append(entry);
  }
  entry.querySelector("strong").textContent = buyer.name;
  entry.querySelector(".pid").textContent = `process ${buyer.pid}`;
  const states = [];
  if (buyer.has_ended) states.push(buyer.is_killed ? "killed" : "ended");
  else {
    if (buyer.is_frozen) states.push("frozen");
    if (buyer.is_cut_off) states.push("cut off");
  }
  entry.className = states.length === 0 ? buyer.last.stage : "faulty";
  const last = describe(buyer.last);
  const doing = states.length === 0 ? last : `${states.join(" and ")}; before: ${last}`;
  entry.querySelector(".doing").textContent = doing;
  for (const button of entry.querySelectorAll("button")) {
    const { fault, undo } = button.dataset;
    const isOn = fault === "freeze" ? buyer.is_frozen : fault === "cut-off" && buyer.is_cut_off;
    button.dataset.next = isOn ? undo : fault;
    button.textContent = WORDS[button.dataset.next];
    button.setAttribute("aria-label", `${button.textContent}: ${buyer.name}`);
    button.disabled = buyer.has_ended;
  }
}

function describe(report) {
  switch (report.stage) {
    case "starting": return "starts";
    case "waiting": return "waits";
    case "paying": return `pays with token ${report.token}`;
    case "written": return `wrote with token ${report.token}`;
    case "refused": return `stale write refused, token ${report.token}`;
    case "sold": return "the seat is sold for good";
    default: return `not served: ${report.detail}`;
  }
}

function kind(report) {
  return { written: "good", refused: "bad" }[report.stage] ?? "";
}

// The buyers' positions in the seat's queue.
function drawPlaces() {
  const waiters = seats.get(faultsSeat)?.view.waiters ?? [];
  const place = new Map(waiters.map((name, index) => [name, index + 1]));
  for (const entry of processes.values()) {
    const number = place.get(entry.querySelector("strong").textContent);
    entry.dataset.place = number === undefined ? "" : `position ${number}`;
  }
}

async function sendFault(path) {
  let error = "";
  try {
    const response = await fetch(`/faults/buyers${path}`, { method: "POST" });
    if (!response.ok) error = (await response.json()).detail;
  } catch {
    error = "The office did not respond.";
  }
  $("faults-error").textContent = error;
}
