// What all parts of the page use: elements, errors, requests and lists.
export const $ = (id) => document.getElementById(id);
export const touchScreen = matchMedia("(pointer: coarse)").matches;
let unreachable = false; // whether the alert says that the studio does not answer

// An element with properties and children; text stays text.
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// Only a change is written, so that screen readers read a text once.
export function write(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

export function complain(text) {
  write($("alert"), text.charAt(0).toUpperCase() + text.slice(1));
  $("alert").hidden = !text;
}

export async function ask(path, content) {
  const body = content instanceof Blob ? content : JSON.stringify(content);
  let answer;
  try {
    answer = await fetch(path, content === undefined ? {} : { method: "POST", body });
  } catch {
    throw new Error("The studio does not answer: is pidm-nav studio still running?");
  }
  const text = await answer.text();
  if (answer.ok) return JSON.parse(text);
  throw new Error(text.startsWith("{") ? JSON.parse(text).error : text || answer.statusText);
}

export const show = (tab) => dispatchEvent(new CustomEvent("show", { detail: tab }));

// Asks for what the folder holds; every part of the page hears of it.
export async function refresh() {
  try {
    const overview = await ask("/api/overview");
    if (unreachable) complain("");
    unreachable = false;
    dispatchEvent(new CustomEvent("overview", { detail: overview }));
  } catch (error) {
    complain(error.message);
    unreachable = true;
  }
}

export const refreshIfLost = () => unreachable && refresh();

export function fill(select, entries, keep = select.value) {
  const now = [...select.options].map((option) => [option.value, option.text]);
  if (JSON.stringify(now) !== JSON.stringify(entries)) select.replaceChildren(...entries.map(([value, text]) => new Option(text, value)));
  if (entries.some(([value]) => value === keep)) select.value = keep;
}

const EXPERTS = { astar: "A* expert", "human-like": "Human-like player", scripted: "Scripted walker" };
export const experts = (task) => (task?.experts ?? []).map((name) => [name, EXPERTS[name] ?? name]);
export const rivals = (agents) => agents.map((agent) => [agent.name, `${agent.title} · ${agent.name}`]);
