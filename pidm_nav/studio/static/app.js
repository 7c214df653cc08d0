// The page's entry: tabs, light and dark.
import { $, complain, refresh } from "./page.js";
import { startPlay } from "./play.js";
import { startReview } from "./review.js";
import { startTrain } from "./train.js";
import { startWatch } from "./watch.js";

const TABS = ["play", "review", "train", "watch"];

function show(tab) {
  for (const name of TABS) {
    const chosen = name === tab;
    $(name).hidden = !chosen;
    $(`tab-${name}`).setAttribute("aria-selected", chosen);
    $(`tab-${name}`).tabIndex = chosen ? 0 : -1;
  }
  dispatchEvent(new CustomEvent("shown", { detail: tab }));
}

addEventListener("show", ({ detail }) => show(detail));
for (const [number, name] of TABS.entries()) {
  $(`tab-${name}`).onclick = () => { complain(""); show(name); refresh(); };
  $(`tab-${name}`).onkeydown = (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    const next = TABS[(number + move + TABS.length) % TABS.length];
    show(next);
    $(`tab-${next}`).focus();
  };
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = (choice) => {
  document.documentElement.classList.toggle("dark", choice ? choice === "dark" : dark.matches);
  dispatchEvent(new Event("resize")); // the maps are drawn again
};
$("theme").onclick = () => {
  localStorage.theme = document.documentElement.classList.contains("dark") ? "light" : "dark";
  paint(localStorage.theme);
};
dark.onchange = () => paint(localStorage.theme);
paint(localStorage.theme);
startPlay();
startReview();
startTrain();
startWatch();
refresh();
