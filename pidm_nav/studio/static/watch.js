// Watch agents in the same episode, and see what they think.
import { $, complain, fill, refresh, socket } from "./app.js";
import { Board, readState } from "./draw.js";

const COLORS = ["pidm", "bc", "third"];
const EXPERTS = [["astar", "A* expert"], ["human-like", "Human-like player"]];

export function startWatch() {
  const form = $("watch-form"), canvas = $("watch-canvas"), board = new Board(canvas);
  let line = null, setup = null, now = null, agents = [], wanted = null, dragged = null, traces = [];

  globalThis.studioWatched = () => now; // for tests and the curious
  const choose = () => {
    const able = agents.filter((agent) => agent.task === form.task.value).map((agent) => [agent.name, `${agent.agent.toUpperCase()} from ${agent.demos} · ${agent.name}`]);
    fill(form.first, [...able, ...EXPERTS]);
    fill(form.second, [["", "nobody else"], ...able, ...EXPERTS]);
  };
  form.task.onchange = choose;
  addEventListener("overview", ({ detail }) => {
    agents = detail.agents;
    fill(form.task, detail.tasks.filter((task) => task.drawn).map((task) => [task.name, task.title]));
    if (wanted) form.task.value = wanted.task;
    choose();
    if (wanted && agents.some((agent) => agent.name === wanted.name)) {
      form.first.value = wanted.name;
      const other = agents.find((agent) => agent.task === wanted.task && agent.agent !== wanted.agent);
      if (other) form.second.value = other.name;
      wanted = null;
      form.requestSubmit();
    }
  });
  addEventListener("watch", ({ detail }) => { wanted = detail; refresh(); });

  form.onsubmit = (event) => {
    event.preventDefault();
    complain("");
    line?.close();
    setup = now = null;
    const players = [form.first.value, form.second.value].filter(Boolean);
    line = socket("/watch", {
      first: { world: { task: form.task.value }, players, seed: 0 },
      hear: (told) => (setup ? update(told) : begin(told)),
      closed: () => { line = null; $("watching").hidden = true; $("watch-overlay").hidden = false; },
    });
  };

  function begin(told) {
    setup = told;
    board.use(told.map);
    traces = told.players.map(() => []);
    $("watching").hidden = false; $("watch-overlay").hidden = true;
    $("reached").max = Math.max(told.map.goals.length - 1, 0);
    $("scores").replaceChildren(...told.players.map((name, index) => {
      const row = document.createElement("li");
      row.innerHTML = "<i></i><b></b><span></span>";
      row.firstElementChild.style.background = `var(--${COLORS[index]})`;
      row.querySelector("b").textContent = name;
      return row;
    }));
    if ($("show-field").checked) line.say({ field: true });
  }

  function update(told) {
    told.players.forEach((player, index) => {
      const trace = traces[index];
      if (now && player.steps < now.players[index].steps || player.steps === 0) trace.length = 0;
      if (!trace.length || player.steps !== now?.players[index].steps) trace.push(player.state.slice(0, 2));
      const score = $("scores").children[index].querySelector("span");
      score.textContent = `${player.goals} of ${player.of} goals, step ${player.steps}${player.done ? (player.goals === player.of ? " · done" : " · out of time") : ""}`;
    });
    now = told;
    $("toggle").textContent = told.playing ? "Pause" : "Play";
    if (document.activeElement !== $("reached")) { $("reached").value = told.players[0].goals; $("reached-shown").textContent = told.players[0].goals; }
    paint();
  }

  function paint() {
    if (!now) return;
    const on = (name) => $(`show-${name}`).checked;
    board.begin();
    board.goals(readState(now.players[0].state).goals);
    now.players.forEach((player, index) => {
      const kind = COLORS[index], at = readState(player.state);
      board.trace(traces[index], kind, { alpha: .45 });
      if (on("followed") && player.followed) board.trace([[at.x, at.y], ...player.followed], kind, { alpha: .6, dash: [2, 7], width: 3 });
      if (on("field") && player.field) for (const [dx, dy, ax, ay] of player.field) board.arrow(at.x + dx * 3, at.y + dy * 3, ax * 16, ay * 16, kind, 2);
    });
    now.players.forEach((player, index) => {
      const kind = COLORS[index], at = readState(player.state);
      board.agent(dragged && dragged.index === index ? dragged : at, kind, setup.players[index]);
      if (on("action") && player.action) board.arrow(at.x, at.y, player.action[0] * 44, player.action[1] * 44, kind, 4);
      if (on("future") && player.future) board.ring({ x: player.future[0], y: player.future[1] }, kind);
    });
  }

  $("toggle").onclick = () => line?.say({ do: now?.playing ? "pause" : "play" });
  $("step").onclick = () => line?.say({ do: "step" });
  $("restart").onclick = () => line?.say({ do: "restart" });
  $("next").onclick = () => line?.say({ seed: now.seed + 1 });
  $("speed").oninput = () => { const speed = 2 ** Number($("speed").value); $("speed-shown").textContent = `${speed}×`; line?.say({ speed }); };
  $("reached").oninput = () => { $("reached-shown").textContent = $("reached").value; line?.say({ do: "place", goals: Number($("reached").value) }); };
  $("show-field").onchange = () => { line?.say({ field: $("show-field").checked }); };
  for (const name of ["future", "action", "followed"]) $(`show-${name}`).onchange = paint;

  canvas.onpointerdown = (event) => {
    if (!now) return;
    const [x, y] = board.locate(event);
    const reach = now.players.map((player) => Math.hypot(player.state[0] - x, player.state[1] - y));
    const index = reach.indexOf(Math.min(...reach));
    if (reach[index] > 40) return;
    canvas.setPointerCapture(event.pointerId);
    line.say({ do: "pause" });
    dragged = { index, x, y };
  };
  canvas.onpointermove = (event) => {
    if (!dragged) return;
    [dragged.x, dragged.y] = board.locate(event);
    line.say({ do: "place", at: [dragged.x, dragged.y] });
  };
  canvas.onpointerup = canvas.onpointercancel = () => { dragged = null; };
  canvas.onkeydown = (event) => {
    const move = { ArrowLeft: [-10, 0], ArrowRight: [10, 0], ArrowUp: [0, -10], ArrowDown: [0, 10] }[event.key];
    if (!move || !now) return;
    event.preventDefault();
    const [x, y] = now.players[0].state;
    line.say({ do: "pause" });
    line.say({ do: "place", at: [x + move[0], y + move[1]] });
  };
  addEventListener("shown", ({ detail }) => { if (detail !== "watch" && now?.playing) line?.say({ do: "pause" }); });
  addEventListener("resize", paint);
}
