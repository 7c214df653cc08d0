// Watch agents in the same episode, and see what they think.
import { $, complain, experts, fill, refresh, rivals, socket } from "./app.js";
import { Board, drawPicture, readState } from "./draw.js";

const COLORS = ["pidm", "bc", "third"];
const place = (world) => world.map ?? world.task; // maps of one's own are told apart by what they look like

export function startWatch() {
  const form = $("watch-form"), canvas = $("watch-canvas"), board = new Board(canvas), players = [...form.querySelectorAll("[name=player]")];
  let line = null, setup = null, now = null, agents = [], tasks = [], wanted = null, dragged = null, traces = [];

  globalThis.studioWatched = () => now; // for tests and the curious
  const chosen = () => agents.find((agent) => place(agent.world) === form.task.value)?.world ?? { task: form.task.value };
  const choose = () => {
    const able = [...rivals(agents.filter((agent) => place(agent.world) === form.task.value)), ...experts(tasks.find((task) => task.name === chosen().task))];
    players.forEach((select, index) => fill(select, index ? [["", "nobody else"], ...able] : able));
  };
  form.task.onchange = choose;
  addEventListener("overview", ({ detail }) => {
    ({ agents, tasks } = detail);
    const own = new Map(agents.filter((agent) => agent.world.map).reverse().map((agent) => [agent.world.map, `Your map of ${agent.name}`]));
    fill(form.task, [...tasks.filter((task) => task.name !== "custom").map((task) => [task.name, task.title]), ...own]);
    const first = agents.find((agent) => agent.name === wanted);
    if (first) form.task.value = place(first.world);
    choose();
    if (!first) return;
    const other = agents.find((agent) => place(agent.world) === place(first.world) && agent.agent !== first.agent);
    [first, other].forEach((agent, index) => { players[index].value = agent?.name ?? ""; });
    wanted = null;
    form.requestSubmit();
  });
  addEventListener("watch", ({ detail }) => { wanted = detail.name; refresh(); });

  form.onsubmit = (event) => {
    event.preventDefault();
    complain("");
    line?.close();
    setup = now = null;
    const ask = { world: chosen(), players: players.map((select) => select.value).filter(Boolean) };
    say("Getting ready…");
    line = socket("/watch", {
      first: () => ({ ...ask, seed: now?.seed }),
      hear: (told) => (told.titles ? begin(told) : update(told)),
      picture: (blob) => drawPicture(canvas, blob),
      lost: () => say("The connection is lost. This page goes on by itself as soon as it can."),
      closed: () => { line = now = null; $("watching").hidden = true; say("Choose who plays and press Watch."); },
    });
  };

  function say(text) {
    $("watch-overlay").hidden = !text;
    $("watch-overlay").firstElementChild.textContent = text;
  }

  function begin(told) {
    setup = told;
    board.use(told.map);
    traces = told.titles.map(() => []);
    say("");
    $("watching").hidden = false; $("thoughts").hidden = !told.map;
    if (told.map) $("reached").max = Math.max(told.map.goals.length - 1, 0);
    $("scores").replaceChildren(...told.titles.map((name, index) => {
      const row = document.createElement("li");
      row.innerHTML = "<i></i><b></b><span></span>";
      row.firstElementChild.style.background = `var(--${COLORS[index]})`;
      row.querySelector("b").textContent = name;
      return row;
    }));
    line.say({ field: $("show-field").checked, speed: speed() });
  }

  function update(told) {
    told.players.forEach((player, index) => {
      const trace = traces[index];
      if (now && player.steps < now.players[index].steps || player.steps === 0) trace.length = 0;
      if (player.state && (!trace.length || player.steps !== now?.players[index].steps)) trace.push(player.state.slice(0, 2));
      const score = $("scores").children[index].querySelector("span");
      score.textContent = `${player.goals} of ${player.of} goals, step ${player.steps}${player.done ? (player.goals === player.of ? " · done" : " · out of time") : ""}`;
    });
    now = told;
    $("toggle").textContent = told.playing ? "Pause" : "Play";
    if (document.activeElement !== $("reached")) { $("reached").value = told.players[0].goals; $("reached-shown").textContent = told.players[0].goals; }
    paint();
  }

  function paint() {
    if (!now || !setup.map) return;
    const on = (name) => $(`show-${name}`).checked;
    board.begin();
    board.goals(readState(now.players[0].state).goals);
    now.players.forEach((player, index) => {
      const kind = COLORS[index], at = readState(player.state);
      board.trace(traces[index], kind, { alpha: .45 });
      if (on("followed") && player.followed) board.trace([[at.x, at.y], ...player.followed], kind, { alpha: .6, dash: [2, 7], width: 3 });
      if (on("nearest") && player.nearest) board.cross(player.nearest, kind);
      if (on("field") && player.field) for (const [dx, dy, ax, ay] of player.field) board.arrow(at.x + dx * 3, at.y + dy * 3, ax * 16, ay * 16, kind, 2);
    });
    now.players.forEach((player, index) => {
      const kind = COLORS[index], at = readState(player.state);
      board.agent(dragged && dragged.index === index ? dragged : at, kind, setup.titles[index], index);
      if (on("action") && player.action) board.arrow(at.x, at.y, player.action[0] * 44, player.action[1] * 44, kind, 4);
      if (on("future") && player.future) board.ring(player.future, kind);
    });
  }

  const stop = () => line?.say({ do: "pause" });
  $("toggle").onclick = () => line?.say({ do: now?.playing ? "pause" : "play" });
  $("step").onclick = () => line?.say({ do: "step" });
  $("restart").onclick = () => line?.say({ do: "restart" });
  $("next").onclick = () => line?.say({ seed: now.seed + 1 });
  const speed = () => 2 ** Number($("speed").value);
  $("speed").oninput = () => { $("speed-shown").textContent = `${speed()}×`; line?.say({ speed: speed() }); };
  $("reached").oninput = () => { $("reached-shown").textContent = $("reached").value; stop(); line?.say({ do: "place", goals: Number($("reached").value) }); };
  $("show-field").onchange = () => { line?.say({ field: $("show-field").checked }); };
  for (const name of ["future", "action", "followed", "nearest"]) $(`show-${name}`).onchange = paint;

  canvas.onpointerdown = (event) => {
    if (!now || !setup.map) return;
    const [x, y] = board.locate(event);
    const reach = now.players.map((player) => Math.hypot(player.state[0] - x, player.state[1] - y));
    const index = reach.indexOf(Math.min(...reach));
    if (reach[index] > 40) return;
    canvas.setPointerCapture(event.pointerId);
    stop();
    dragged = { index, x, y };
  };
  canvas.onpointermove = (event) => {
    if (!dragged) return;
    [dragged.x, dragged.y] = board.locate(event);
    line?.say({ do: "place", at: [dragged.x, dragged.y] });
  };
  canvas.onpointerup = canvas.onpointercancel = () => { dragged = null; };
  canvas.onkeydown = (event) => {
    const move = { ArrowLeft: [-10, 0], ArrowRight: [10, 0], ArrowUp: [0, -10], ArrowDown: [0, 10] }[event.key];
    if (!move || !now || !setup.map) return;
    event.preventDefault();
    const [x, y] = now.players[0].state;
    stop();
    line?.say({ do: "place", at: [x + move[0], y + move[1]] });
  };
  addEventListener("shown", ({ detail }) => { if (detail !== "watch" && now?.playing) stop(); });
  addEventListener("resize", paint);
}
