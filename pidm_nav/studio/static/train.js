// Train agents on demonstrations, watch their curves grow, and keep order among the runs.
import { $, ask, complain, fill, make, refresh, show, write } from "./page.js";
import { METRICS, brief, chart } from "./chart.js";

const USUAL = ["bc", "pidm"]; // what is compared unless somebody chooses otherwise
const STATES = { running: "training…", done: "ready", stopped: "stopped", failed: "failed", earlier: "ready" };
const FEW = 5; // demonstrations that are suggested of those that come with the package

export function startTrain() {
  const form = $("train-form"), cards = new Map();
  let recordings = [], agents = [], timer = null, picked = "";

  const choice = ({ name, title, about }) => make("label", { className: "row", title: about },
    make("input", { type: "checkbox", name: "agents", value: name, checked: USUAL.includes(name) }), make("span", { textContent: title }));
  ask("/api/agents").then((all) => {
    for (const [id, main] of [["main-agents", true], ["other-agents", false]]) $(id).replaceChildren(...all.filter((each) => each.main === main).map(choice));
    form.querySelector(".primary").disabled = false;
  }, (error) => complain(error.message));

  const chosen = () => recordings.find((each) => each.name === form.demos.value);
  const limit = () => {
    const demos = chosen();
    if (!demos) return;
    form.num_demos.max = demos.episodes; form.num_demos.value = Math.min(form.num_demos.value, demos.episodes);
    $("failed-demos").hidden = !demos.failed;
    const some = `${demos.failed} of ${demos.episodes} failed: PIDM leaves them out, and BC learns from them up to the last goal they reach. Drop or trim them under Review.`;
    write($("failed-demos"), demos.failed < demos.episodes ? some : "None of these reaches all goals, so they are used as they are. Record some that do.");
  };
  // Own recordings are used whole.
  const pick = (name) => {
    picked = form.demos.value = name;
    if (chosen()) form.num_demos.value = name.endsWith(".npz") ? chosen().episodes : Math.min(FEW, chosen().episodes);
    limit();
  };
  form.demos.onchange = () => pick(form.demos.value);
  addEventListener("overview", ({ detail }) => {
    recordings = detail.recordings.filter((each) => !each.error);
    agents = detail.agents.filter((agent) => !agent.error);
    fill(form.demos, detail.recordings.map((each) => [each.name, each.error ? `${each.name} (cannot be read)` : `${each.name} (${each.episodes} of ${each.task})`]), picked);
    for (const option of form.demos.options) option.disabled = !recordings.some((each) => each.name === option.value);
    if (recordings.length && form.demos.value !== picked) pick(recordings[0].name); // the newest
    limit();
    const skipped = [...detail.recordings, ...detail.agents].filter((each) => each.error);
    $("skipped").hidden = !skipped.length;
    write($("skipped"), `Not read: ${skipped.slice(0, 5).map((each) => `${each.name} (${each.error})`).join("; ")}${skipped.length > 5 ? ` and ${skipped.length - 5} more` : ""}`);
    paint(detail.trainings);
  });
  addEventListener("recorded", async ({ detail }) => {
    picked = detail;
    await refresh();
    pick(detail);
  });

  form.onsubmit = async (event) => {
    event.preventDefault();
    complain("");
    const number = (field) => (field.value === "" ? null : Number(field.value));
    const wanted = [...form.querySelectorAll("[name=agents]:checked")].map((box) => box.value);
    try {
      await ask("/api/trainings", { agents: wanted, demos: form.demos.value, num_demos: number(form.num_demos), play: form.play.checked, steps: number(form.steps), seed: number(form.seed) ?? 0 });
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

  // Cards stay the same elements while their content changes, so that a button keeps its focus.
  function paint(runs) {
    const earlier = agents.filter((agent) => agent.name.startsWith("runs/") && !runs.some((run) => run.name === agent.name))
      .map((agent) => ({ name: agent.name, agent: agent.agent, title: agent.title, status: "earlier", loss: [], scores: [] }));
    const all = [...runs, ...earlier];
    if (!all.length) return;
    const shown = all.map((run) => {
      if (!cards.has(run.name)) cards.set(run.name, new Card(run.name));
      cards.get(run.name).update(run);
      return cards.get(run.name).box;
    });
    const same = shown.length === $("runs").children.length && shown.every((box, index) => $("runs").children[index] === box);
    if (!same) $("runs").replaceChildren(...shown);
  }

  class Card {
    constructor(name) {
      const title = make("h2"), state = make("span", { className: "state" }), figures = make("span", { className: "figures" });
      const picture = make("div"), main = make("button"), rename = make("button", { textContent: "Rename…" }), remove = make("button", { textContent: "Delete…" });
      this.parts = { title, state, figures, picture, main, rename, remove };
      const code = make("code", { textContent: name }), buttons = make("div", { className: "buttons" }, main, rename, remove);
      this.box = make("article", { className: "run" }, make("header", {}, title, state, code, figures), picture, buttons);
      rename.onclick = () => this.change(prompt("New name of this run:", name.replace("runs/", "")), "rename");
      remove.onclick = () => this.change(confirm(`Delete ${name} and its agent? This cannot be undone.`), "delete");
      main.onclick = () => {
        if (this.run.status === "running") return ask(`/api/trainings/${name}/stop`, {}).then(follow, (error) => complain(error.message));
        show("watch");
        return dispatchEvent(new CustomEvent("watch", { detail: this.run }));
      };
      this.name = name;
    }

    async change(answer, what) {
      if (!answer) return;
      try {
        await ask(`/api/trainings/${this.name}/${what}`, what === "rename" ? `runs/${answer}` : {});
        cards.delete(this.name);
        if (what === "delete" && cards.size === 0) $("runs").replaceChildren();
        await refresh();
      } catch (error) { complain(error.message); }
    }

    update(run) {
      if (JSON.stringify(run) === this.last) return;
      this.last = JSON.stringify(run);
      const { title, state, figures, picture, main, rename, remove } = this.parts, name = run.title;
      if (this.run?.status === "running" && run.status !== "running") {
        write($("run-status"), `${name} ${STATES[run.status]}`);
        if ($("alert").textContent.includes("training runs are active")) complain(""); // there is room for another
      }
      this.run = run;
      this.box.dataset.status = run.status === "earlier" ? "done" : run.status;
      title.className = run.agent === "bc" ? "bc" : "pidm";
      write(title, name);
      write(state, STATES[run.status]);
      const text = describe(run);
      write(figures, text);
      if (run.error) write(picture, run.error);
      else if (run.loss.length) picture.replaceChildren(chart(run, text));
      write(main, run.status === "running" ? "Stop" : "Watch it");
      main.disabled = !["running", "done", "earlier"].includes(run.status);
      rename.hidden = remove.hidden = run.status === "running";
    }
  }

  function describe(run) {
    if (run.status === "earlier") return "";
    if (!run.loss.length && run.status === "running") return "starting…";
    const loss = run.loss.at(-1), score = run.scores.at(-1), left = run.seconds_left;
    return [
      run.status === "running" && `step ${run.step.toLocaleString("en")} of ${run.steps.toLocaleString("en")}`,
      left !== null && (left < 90 ? `${Math.ceil(left)} s left` : `${Math.ceil(left / 60)} min left`),
      loss && `loss ${brief(loss[1])}`,
      score && `${METRICS[run.metric].name} ${METRICS[run.metric].text(score[1])}`,
    ].filter(Boolean).join(" · ");
  }

  const upload = async (file) => {
    if (!file) return;
    complain("");
    try {
      const { name } = await ask(`/api/demos/${encodeURIComponent(file.name)}`, file);
      await refresh();
      pick(name);
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
