// The page: tabs, the list of what the folder holds, errors, light and dark.
import { startPlay } from "./play.js";
import { startTrain } from "./train.js";
import { startWatch } from "./watch.js";

export const $ = (id) => document.getElementById(id);
const TABS = ["play", "train", "watch"];

export function complain(text) {
  $("alert").textContent = text;
  $("alert").hidden = !text;
}

export async function ask(path, content) {
  const options = content === undefined ? {} : { method: "POST", body: content instanceof Blob ? content : JSON.stringify(content) };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("The studio does not answer: is pidm-nav studio still running?");
  }
  const told = await answer.json().catch(() => ({ error: answer.statusText }));
  if (!answer.ok) throw new Error(told.error);
  return told;
}

export function socket(path, { first, hear, picture, closed }) {
  const line = new WebSocket(`ws${location.protocol === "https:" ? "s" : ""}://${location.host}${path}`);
  line.binaryType = "blob";
  let refused = false;
  line.onopen = () => line.send(JSON.stringify(first));
  line.onmessage = ({ data }) => {
    if (typeof data !== "string") return picture?.(data);
    const told = JSON.parse(data);
    if (told.error) { refused = true; complain(told.error); }
    else hear(told);
  };
  line.onclose = () => closed(refused);
  return { say: (content) => line.readyState === 1 && line.send(JSON.stringify(content)), close: () => line.close() };
}

export function fill(select, entries, keep = select.value) {
  select.replaceChildren(...entries.map(([value, text]) => new Option(text, value)));
  if (entries.some(([value]) => value === keep)) select.value = keep;
}

export function show(tab) {
  for (const name of TABS) {
    const chosen = name === tab;
    $(name).hidden = !chosen;
    $(`tab-${name}`).setAttribute("aria-selected", chosen);
    $(`tab-${name}`).tabIndex = chosen ? 0 : -1;
  }
  complain("");
  dispatchEvent(new CustomEvent("shown", { detail: tab }));
}

export async function refresh() {
  try {
    dispatchEvent(new CustomEvent("overview", { detail: await ask("/api/overview") }));
  } catch (error) { complain(error.message); }
}

for (const [number, name] of TABS.entries()) {
  $(`tab-${name}`).onclick = () => { show(name); refresh(); };
  $(`tab-${name}`).onkeydown = (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    const next = TABS[(number + move + TABS.length) % TABS.length];
    show(next); $(`tab-${next}`).focus();
  };
}
const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = (choice) => document.documentElement.classList.toggle("dark", choice ? choice === "dark" : dark.matches);
paint(localStorage.theme);
dark.onchange = () => paint(localStorage.theme);
$("theme").onclick = () => {
  localStorage.theme = document.documentElement.classList.contains("dark") ? "light" : "dark";
  paint(localStorage.theme);
};
startPlay(); startTrain(); startWatch();
refresh();
