// Look into a recording: its episodes, one of them replayed, and dropped or trimmed.
import { $, ask, complain, fill, make, refresh, write } from "./page.js";
import { Board, readState } from "./draw.js";

export function startReview() {
  const select = $("review-demos"), board = new Board($("review-canvas")), rows = $("episodes").tBodies[0];
  let listed = null, chosen = null, states = [], playing = false, picked = "";

  const say = (text) => { $("review-overlay").hidden = !text; write($("review-overlay").querySelector("p"), text); };
  const own = () => select.value.endsWith(".npz");
  addEventListener("overview", ({ detail }) => {
    const readable = detail.recordings.filter((each) => !each.error);
    fill(select, readable.map((each) => [each.name, `${each.name} (${each.episodes} of ${each.task})`]), picked);
    if (!$("review").hidden && select.value !== listed?.name) load();
  });
  addEventListener("recorded", ({ detail }) => { picked = detail; listed = null; });
  addEventListener("shown", ({ detail }) => { playing &&= detail === "review"; if (detail === "review" && select.value) load(); });
  select.onchange = () => { picked = select.value; load(); };

  async function load(told = null) {
    complain("");
    chosen = null; states = [];
    $("replay").hidden = true;
    try {
      const name = select.value;
      listed = told ?? await ask(`/api/episodes/${name}`);
      if (name !== select.value) return;
    } catch (error) { rows.replaceChildren(); return complain(error.message); }
    board.use(listed.map);
    if (listed.map) paint(); else board.clear();
    say(listed.map ? "Choose an episode." : `Episodes of ${listed.task} are not drawn here. The command pidm-nav demos replay makes a video of one.`);
    rows.replaceChildren(...listed.episodes.map((episode, number) => {
      const button = make("button", { textContent: number, className: "link" });
      button.setAttribute("aria-label", `Show episode ${number}`);
      const outcome = episode.success === null ? `return ${episode.total.toFixed(1)}` : episode.success ? "all goals" : "not all goals";
      const row = make("tr", {}, make("td", {}, button), make("td", { textContent: outcome, className: episode.success === false ? "failed" : "" }), make("td", { textContent: episode.steps }));
      row.onclick = () => open(number);
      return row;
    }));
  }

  async function open(number) {
    complain("");
    chosen = number;
    for (const [index, row] of [...rows.rows].entries()) row.classList.toggle("chosen", index === number);
    const steps = listed.episodes[number].steps;
    $("replay").hidden = false;
    $("drop-episode").hidden = $("trim-episode").hidden = !own();
    for (const [id, value, least] of [["replay-step", 0, 0], ["trim-first", 0, 0], ["trim-end", steps, 1]]) {
      Object.assign($(id), { min: least, max: steps });
      setStep(id, value);
      $(id).parentElement.hidden = id === "replay-step" ? !listed.map : !own();
    }
    $("replay-toggle").hidden = !listed.map;
    if (!listed.map) return;
    try {
      states = await ask(`/api/states/${listed.name}/${number}`);
      say("");
      play(true);
    } catch (error) { complain(error.message); }
  }

  function setStep(id, value) { $(id).value = value; write($(`${id}-shown`), value); }
  function play(on) {
    const started = on && !playing;
    playing = on;
    write($("replay-toggle"), playing ? "Pause" : "Play");
    if (started) setTimeout(advance, 33);
  }
  function advance() {
    if (!playing || $("review").hidden) return;
    const step = Number($("replay-step").value) + 1;
    if (step > states.length - 1) return play(false);
    setStep("replay-step", step);
    paint();
    setTimeout(advance, 33);
  }
  function paint() {
    if (!listed?.map || $("review").hidden) return;
    board.begin();
    if (!states.length) return board.goals([{ goals: listed.map.goals.map(([x, y]) => ({ x, y, reached: false })) }]);
    const step = Number($("replay-step").value), now = readState(states[step]);
    board.goals([now]);
    board.trace(states.map((state) => state.slice(0, 2)), "later", { alpha: .4 });
    board.trace(states.slice(Number($("trim-first").value), Number($("trim-end").value) + 1).map((state) => state.slice(0, 2)), "agent", { alpha: .35 });
    board.trace(states.slice(0, step + 1).map((state) => state.slice(0, 2)), "agent");
    board.agent(now, "agent");
  }
  $("replay-toggle").onclick = () => {
    if (!playing && Number($("replay-step").value) >= states.length - 1) setStep("replay-step", 0);
    play(!playing);
  };
  for (const id of ["replay-step", "trim-first", "trim-end"]) $(id).oninput = () => { play(false); setStep(id, $(id).value); paint(); };

  async function edit(question, content) {
    if (!confirm(question)) return;
    try {
      await load(await ask(`/api/demos/${encodeURIComponent(listed.name)}/edit`, content));
      refresh();
    } catch (error) { complain(error.message); }
  }
  $("drop-episode").onclick = () => edit(`Drop episode ${chosen} of ${listed.name}? This cannot be undone.`, { episode: chosen });
  $("trim-episode").onclick = () => {
    const trim = [Number($("trim-first").value), Number($("trim-end").value)];
    edit(`Keep only steps ${trim[0]} to ${trim[1]} of episode ${chosen}? This cannot be undone.`, { episode: chosen, trim });
  };
  addEventListener("resize", paint);
}
