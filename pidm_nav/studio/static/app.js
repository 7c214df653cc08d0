// The page: tabs, the list of what the folder holds, errors, light and dark.
import { startPlay } from "./play.js";
import { startTrain } from "./train.js";
import { startWatch } from "./watch.js";

export const $ = (id) => document.getElementById(id);
const TABS = ["play", "train", "watch"];
let unreachable = false; // whether the alert says that the studio does not answer

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
  const text = await answer.text();
  if (answer.ok) return JSON.parse(text);
  throw new Error(text.startsWith("{") ? JSON.parse(text).error : text || answer.statusText);
}

// A conversation that is taken up again by itself when the connection is lost, until one side ends it.
export function socket(path, { first, hear, picture, lost, closed }) {
  let line, ended = false, watchdog;
  const open = () => {
    const own = line = new WebSocket(`${location.origin.replace("http", "ws")}${path}`);
    const end = (over) => {
      if (own !== line) return;
      clearTimeout(watchdog);
      line = null;
      own.close();
      if (over || ended) return closed();
      lost();
      refresh(); // tells what is wrong
      setTimeout(() => ended || open(), 1000);
    };
    own.onopen = () => {
      own.send(JSON.stringify(first()));
      if (unreachable) refresh();
    };
    own.onmessage = ({ data }) => {
      if (own !== line) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(end, 10000); // the studio is never silent: the network may be gone without a word
      if (typeof data !== "string") return picture(data);
      const told = JSON.parse(data);
      if (!told.error) return hear(told);
      ended = true;
      complain(told.error);
    };
    own.onclose = ({ code }) => end(code === 1000);
  };
  open();
  return {
    say: (content) => line?.readyState === 1 && line.send(JSON.stringify(content)),
    close: () => { const own = line; ended = true; line = null; own?.close(); },
  };
}

export function fill(select, entries, keep = select.value) {
  select.replaceChildren(...entries.map(([value, text]) => new Option(text, value)));
  if (entries.some(([value]) => value === keep)) select.value = keep;
}

const EXPERTS = { astar: "A* expert", "human-like": "Human-like player", scripted: "Scripted walker" };
export const experts = (task) => (task?.experts ?? []).map((name) => [name, EXPERTS[name] ?? name]);
export const rivals = (agents) => agents.map((agent) => [agent.name, `${agent.agent.toUpperCase()} from ${agent.demos} · ${agent.name}`]);

export function show(tab) {
  for (const name of TABS) {
    const chosen = name === tab;
    $(name).hidden = !chosen;
    $(`tab-${name}`).setAttribute("aria-selected", chosen);
    $(`tab-${name}`).tabIndex = chosen ? 0 : -1;
  }
  dispatchEvent(new CustomEvent("shown", { detail: tab }));
}

export async function refresh() {
  try {
    const overview = await ask("/api/overview");
    if (unreachable) complain("");
    unreachable = false;
    dispatchEvent(new CustomEvent("overview", { detail: overview }));
  } catch (error) { complain(error.message); unreachable = true; }
}

for (const [number, name] of TABS.entries()) {
  $(`tab-${name}`).onclick = () => { complain(""); show(name); refresh(); };
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
