// Train agents on demonstrations, and watch their curves grow.
import { $, ask, complain, fill, refresh, show } from "./app.js";

const TITLES = { bc: "BC", pidm: "PIDM", "retrieval-bc": "Retrieval BC" };
const STATES = { running: "training…", done: "ready", stopped: "stopped", failed: "failed" };

export function startTrain() {
  const form = $("train-form");
  let recordings = [], timer = null, last = "", picked = "";

  const chosen = () => recordings.find((each) => each.name === form.demos.value);
  const limit = () => { if (chosen()) { form.num_demos.max = chosen().episodes; form.num_demos.value = Math.min(form.num_demos.value, chosen().episodes); } };
  form.demos.onchange = () => { picked = form.demos.value; limit(); };
  addEventListener("overview", ({ detail }) => {
    recordings = detail.recordings.filter((each) => !each.error);
    fill(form.demos, detail.recordings.map((each) => [each.name, each.error ? `${each.name} (cannot be read)` : `${each.name} (${each.episodes} of ${each.task})`]), picked); // or the newest
    for (const option of form.demos.options) option.disabled = !recordings.some((each) => each.name === option.value);
    limit();
    paint(detail.trainings);
  });

  form.onsubmit = async (event) => {
    event.preventDefault();
    complain("");
    const agents = [...form.querySelectorAll("[name=agents]:checked")].map((box) => box.value);
    const number = (field) => (field.value === "" ? null : Number(field.value));
    try {
      await ask("/api/trainings", { agents, demos: form.demos.value, task: chosen().task, num_demos: number(form.num_demos), play: form.play.checked, steps: number(form.steps), seed: number(form.seed) ?? 0 });
      follow();
    } catch (error) { complain(error.message); }
  };

  async function follow() {
    clearTimeout(timer);
    try {
      const runs = await ask("/api/trainings");
      paint(runs);
      if (runs.some((run) => run.status === "running")) timer = setTimeout(follow, 500);
      else refresh();
    } catch (error) { complain(error.message); timer = setTimeout(follow, 2000); }
  }
  addEventListener("shown", ({ detail }) => detail === "train" && follow());

  function paint(runs) {
    const words = JSON.stringify(runs);
    if (words === last || !runs.length) return;
    last = words;
    $("runs").replaceChildren(...runs.map(card));
  }

  function card(run) {
    const box = document.createElement("article");
    box.className = "run";
    box.dataset.status = run.status;
    box.innerHTML = `<header><h2 class="${run.agent}"></h2><span class="state"></span><code></code><span class="figures"></span></header><div class="chart"></div><div class="buttons"></div>`;
    box.querySelector("h2").textContent = TITLES[run.agent] ?? run.agent;
    box.querySelector(".state").textContent = STATES[run.status];
    box.querySelector("code").textContent = run.name;
    const loss = run.loss.at(-1), ratio = run.goal_ratio.at(-1);
    const figures = [loss && `loss ${loss[1].toPrecision(2)}`, ratio && `${Math.round(ratio[1] * 100)}% of the goals`].filter(Boolean).join(" · ");
    box.querySelector(".figures").textContent = figures || (run.status === "running" ? "starting…" : "");
    if (run.error) box.querySelector(".chart").textContent = run.error;
    else if (loss) box.querySelector(".chart").append(chart(run, figures));
    const button = document.createElement("button");
    if (run.status === "running") { button.textContent = "Stop"; button.onclick = () => ask(`/api/trainings/${run.name}/stop`, {}).then(follow); }
    else { button.textContent = "Watch it"; button.disabled = run.status !== "done"; button.onclick = () => { show("watch"); dispatchEvent(new CustomEvent("watch", { detail: run })); }; }
    box.querySelector(".buttons").append(button);
    return box;
  }

  // The loss on a logarithmic axis, and the goal ratio from 0 to 1 where it was measured.
  function chart(run, text) {
    const [wide, high, left, low] = [600, 150, 42, 20];
    const steps = Math.max(...run.loss.map(([step]) => step), 1);
    const logs = run.loss.map(([, loss]) => Math.log10(Math.max(loss, 1e-6)));
    const [floor, top] = logs.length ? [Math.min(...logs), Math.max(...logs, Math.min(...logs) + .1)] : [0, 1];
    const x = (step) => left + (wide - left - 8) * step / steps;
    const y = (part) => 8 + (high - low - 8) * (1 - part);
    const path = (points) => points.map(([a, b], index) => `${index ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
    const loss = path(run.loss.map(([step], index) => [x(step), y((logs[index] - floor) / (top - floor))]));
    const ratio = path(run.goal_ratio.map(([step, value]) => [x(step), y(value)]));
    const dots = run.goal_ratio.map(([step, value]) => `<circle cx="${x(step)}" cy="${y(value)}" r="4" fill="var(--reached)"/>`).join("");
    const holder = document.createElement("div");
    holder.innerHTML = `<svg viewBox="0 0 ${wide} ${high}" role="img" aria-label="${text}"><path class="axis" fill="none" d="M${left} 8V${high - low}H${wide - 8}"/>
      <path fill="none" stroke="var(--${run.agent === "bc" ? "bc" : "pidm"})" stroke-width="2" d="${loss}"/>
      <path fill="none" stroke="var(--reached)" stroke-width="2.5" d="${ratio}"/>
      ${dots}<text x="${left}" y="${high - 3}">0</text><text x="${wide - 8}" y="${high - 3}" text-anchor="end">${steps} steps</text></svg>`;
    return holder.firstElementChild;
  }

  const upload = async (file) => {
    if (!file) return;
    complain("");
    try {
      const { name } = await ask(`/api/demos/${encodeURIComponent(file.name)}`, file);
      await refresh();
      picked = form.demos.value = name;
      limit();
    } catch (error) { complain(error.message); }
  };
  const drop = $("drop");
  drop.querySelector("input").onchange = (event) => upload(event.target.files[0]);
  for (const name of ["dragover", "dragleave", "drop"]) addEventListener(name, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault(); // or the browser would open the file instead of this page
    drop.classList.toggle("over", name === "dragover");
    if (name === "dragover") show("train");
    if (name === "drop") upload(event.dataTransfer.files[0]);
  });
}
