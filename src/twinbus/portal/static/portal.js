// What pages of the portal do beyond links and forms. Nothing here reads text of messages as anything but text.
"use strict";

const root = document.documentElement;
const THEMES = ["", "light", "dark"];

function applyTheme(theme) {
  if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
}

function storedTheme() {
  try { return localStorage.getItem("theme") || ""; } catch { return ""; }
}

// Before the page is drawn, so that it does not change its colours before one's eyes.
applyTheme(storedTheme());
root.dataset.script = "on";

document.addEventListener("DOMContentLoaded", () => {
  document.querySelector("[data-theme-switch]")?.addEventListener("click", switchTheme);
  document.querySelector("[data-menu-switch]")?.addEventListener("click", switchMenu);
  document.querySelectorAll("[data-live]").forEach(follow);
  document.querySelectorAll("form[data-check]").forEach(checkWhileTyping);
  document.querySelectorAll("[data-partition-size]").forEach(showLargestSize);
  document.querySelectorAll("select[data-submit]").forEach((each) => each.addEventListener("change", () => each.form.requestSubmit()));
  localTimes(document);
  const next = document.querySelector("a[data-continue]");
  if (next) setTimeout(() => { if (document.contains(next)) location.replace(next.href); }, 50);
});

document.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  const copy = target?.closest("[data-copy]");
  if (copy) copyTable(copy);
  const all = target?.closest("input[data-all]");
  if (all) all.form.querySelectorAll(`input[name="${all.dataset.all}"]`).forEach((each) => { each.checked = all.checked; });
});

document.addEventListener("submit", (event) => {
  const question = event.submitter?.dataset.ask || event.target.dataset.ask;
  if (question && !window.confirm(question)) event.preventDefault();
});

// One key at a time, as in many lists: "/" to search, "g" then a letter to go somewhere.
let lastKey = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest?.("input, textarea, select")) return;
  if (event.key === "/") {
    const search = document.querySelector('input[type="search"]');
    if (search) { event.preventDefault(); search.focus(); }
  }
  const places = { o: "/", p: "/pairing", b: "/bill", j: "/jobs" };
  if (lastKey === "g" && places[event.key]) location.assign(places[event.key]);
  if (event.key === "ArrowRight" || event.key === "n") document.querySelector("a[data-next]")?.click();
  lastKey = event.key;
});

function switchTheme() {
  const next = THEMES[(THEMES.indexOf(storedTheme()) + 1) % THEMES.length];
  try { localStorage.setItem("theme", next); } catch { /* private mode: for this page alone */ }
  applyTheme(next);
}

function switchMenu(event) {
  const isOpen = root.dataset.menu === "open";
  root.dataset.menu = isOpen ? "closed" : "open";
  event.currentTarget.setAttribute("aria-expanded", String(!isOpen));
}

// Live parts: each event has the id of an element and its new content, which the server has escaped.
// A page that nobody sees holds no stream: browsers open only six connections to one server.
function follow(holder) {
  let source = null, isOver = false;
  const open = () => {
    if (isOver || source || document.hidden) return;
    source = new EventSource(holder.dataset.live);
    source.onmessage = show;
    source.addEventListener("end", () => { isOver = true; close(); });
  };
  const close = () => { source?.close(); source = null; };
  document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else open(); });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  open();
}

function show(event) {
  const { id, html } = JSON.parse(event.data);
  const element = document.getElementById(id);
  if (!element || element.querySelector("input:focus, textarea:focus") || isSelected(element)) return;
  const focused = element.contains(document.activeElement) ? indexOfFocus(element) : -1;
  element.innerHTML = html;
  localTimes(element);
  if (focused >= 0) focusable(element)[focused]?.focus();
}

function focusable(element) { return element.querySelectorAll("a, button, summary, [tabindex]"); }
function indexOfFocus(element) { return Array.from(focusable(element)).indexOf(document.activeElement); }
function isSelected(element) {
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && element.contains(selection.anchorNode);
}

// A form that the server looks at while one types; the answer is HTML for the element that data-result names.
function checkWhileTyping(form) {
  let timer = 0, turn = 0;
  const look = async () => {
    const mine = ++turn;
    const answer = await fetch(form.dataset.check, { method: "POST", body: new URLSearchParams(new FormData(form)) }).catch(() => null);
    if (!answer || mine !== turn) return;
    const place = document.getElementById(form.dataset.result);
    if (place) place.innerHTML = await answer.text();
  };
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, 250); });
  look();
}

// Enable partitioning: sixteen fragments, each with the largest size that is chosen.
function showLargestSize(holder) {
  const form = holder.closest("form");
  const show = () => {
    const size = Number(form.elements.namedItem("max_size_mb")?.value || 1024);
    const isSplit = form.elements.namedItem("enable_partitioning")?.checked;
    holder.textContent = `Largest size: ${(size * (isSplit ? 16 : 1) / 1024).toLocaleString("en")} GB` + (isSplit ? " (16 fragments)" : "");
  };
  form.addEventListener("input", show);
  show();
}

async function copyTable(button) {
  const table = button.closest(".table").querySelector("table");
  const names = Array.from(table.tHead.rows[0].cells, (cell) => cell.textContent.trim());
  const rows = Array.from(table.tBodies[0].rows, (row) => Object.fromEntries(
    Array.from(row.cells, (cell, index) => [names[index] || String(index), valueOf(cell)])));
  const text = JSON.stringify(rows, null, 2);
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const said = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = said; }, 1500);
}

function valueOf(cell) {
  const raw = cell.dataset.value;
  if (raw === undefined) return cell.textContent.trim();
  if (raw === "") return null;
  return cell.classList.contains("number") ? Number(raw) : raw;
}

// Times are in UTC; the tip says the same in the reader's own zone.
function localTimes(element) {
  element.querySelectorAll("time[datetime]").forEach((each) => { each.title = new Date(each.dateTime).toLocaleString(); });
}
