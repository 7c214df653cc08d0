// Watch agents in the same episode, and see what they are about to do.
import { $, ask, complain, experts, fill, make, refresh, rivals, write } from "./page.js";
import { Board, drawPicture, readState } from "./draw.js";
import { socket } from "./socket.js";

const COLORS = ["pidm", "bc", "third"];
const CHOOSE = "Choose who plays and press Watch.";
const place = (world) => world.map ?? world.task; // maps of one's own are told apart by what they look like

export function startWatch() {
  const form = $("watch-form"), canvas = $("watch-canvas"), board = new Board(canvas), players = [...form.querySelectorAll("[name=player]")];
  let line = null, setup = null, now = null, agents = [], tasks = [], wanted = null, newest = null, trained = null, dragged = null, traces = [], previewed = "";

  globalThis.studioWatched = () => now; // for tests and the curious
  const chosen = () => agents.find((agent) => place(agent.world) === form.task.value)?.world ?? { task: form.task.value };
  const choose = () => {
    const able = [...rivals(agents.filter((agent) => place(agent.world) === form.task.value)), ...experts(tasks.find((task) => task.name === chosen().task))];
    players.forEach((select, index) => fill(select, index ? [["", "nobody"], ...able] : able));
    preview();
  };
  form.task.onchange = () => { leave(); choose(); };

  addEventListener("overview", ({ detail }) => {
    tasks = detail.tasks;
    agents = detail.agents.filter((agent) => !agent.error);
    const own = new Map(agents.filter((agent) => agent.world.map).reverse().map((agent) => [agent.world.map, `Your map of ${agent.name}`]));
    const known = tasks.filter((task) => task.name !== "custom").map((task) => [task.name, task.title]);
    const others = [...new Set(agents.map((agent) => agent.world.task))].filter((task) => task !== "custom" && !tasks.some((each) => each.name === task));
    fill(form.task, [...known, ...own, ...others.map((task) => [task, task])]);
    const done = detail.trainings.filter((run) => run.status === "done")[0]?.name;
    if (done && done !== newest) newest = trained = done; // what was just trained is watched first
    select();
    if (!line) choose();
  });
  addEventListener("watch", ({ detail }) => { wanted = detail.name; refresh(); });
  addEventListener("shown", ({ detail }) => {
    if (detail === "watch") return select() || (line ? paint() : (previewed = "", preview()));
    return now?.playing && line?.say({ do: "pause" });
  });

  // Puts the wanted agent, and one of another kind that learned the same, into the form, and begins.
  function select() {
    const first = agents.find((agent) => agent.name === (wanted ?? trained));
    if (!first || $("watch").hidden) return false;
    wanted = trained = null;
    form.task.value = place(first.world);
    choose();
    const other = agents.find((agent) => place(agent.world) === place(first.world) && agent.agent !== first.agent);
    [first, other].forEach((agent, index) => { players[index].value = agent?.name ?? ""; });
    players[2].value = "";
    form.requestSubmit();
    return true;
  }

  // The map of the chosen task, so that it is seen before anybody plays.
  async function preview() {
    if (line || !form.task.value || $("watch").hidden || previewed === form.task.value) return;
    const asked = previewed = form.task.value;
    try {
      const { map } = await ask("/api/world", chosen());
      if (line || asked !== form.task.value) return;
      board.use(map);
      if (!map) return board.clear();
      board.begin();
      board.goals([{ goals: map.goals.map(([x, y]) => ({ x, y, reached: false })) }]);
    } catch (error) { complain(error.message); }
  }

  function leave() {
    line?.close();
    line = setup = now = null;
    previewed = "";
    $("watching").hidden = $("thoughts").hidden = true;
    $("watch-choice").open = true;
    say(CHOOSE);
  }

  form.onsubmit = (event) => {
    event.preventDefault();
    complain("");
    leave();
    const request = { world: chosen(), players: players.map((select) => select.value).filter(Boolean) };
    say("Getting ready…");
    line = socket("/watch", {
      first: () => ({ ...request, seed: now?.seed }),
      receive: (told) => (told.titles ? begin(told) : update(told)),
      picture: (blob) => drawPicture(canvas, blob),
      lost: () => say("The connection is lost. The page reconnects by itself."),
      closed: () => { leave(); preview(); },
    });
  };

  function say(text) {
    $("watch-overlay").hidden = !text;
    write($("watch-overlay").querySelector("p"), text);
  }

  function begin(told) {
    setup = told;
    board.use(told.map);
    traces = told.titles.map(() => []);
    say("");
    write($("toggle"), "Pause"); // they play from the start
    $("watching").hidden = false; $("thoughts").hidden = !told.map;
    $("watch-choice").open = false;
    if (told.map) $("reached").max = Math.max(told.map.goals.length - 1, 0);
    $("scores").replaceChildren(...told.titles.map((name, index) => {
      const mark = make("i");
      mark.style.background = `var(--${COLORS[index]})`;
      return make("li", {}, mark, make("b", { textContent: name }), make("span"));
    }));
    line.say({ field: $("show-field").checked, speed: speed() });
  }

  function update(told) {
    told.players.forEach((player, index) => {
      const trace = traces[index];
      if (now && player.steps < now.players[index].steps || player.steps === 0) trace.length = 0;
      if (player.state && (!trace.length || player.steps !== now?.players[index].steps)) trace.push(player.state.slice(0, 2));
      const score = player.of ? `${player.goals} of ${player.of} goals` : `return ${player.total.toFixed(1)}`;
      const end = !player.done ? "" : player.of && player.goals < player.of ? " · out of time" : " · done";
      write($("scores").children[index].querySelector("span"), `${score}, step ${player.steps}${end}`);
    });
    now = told;
    write($("toggle"), told.playing ? "Pause" : "Play");
    if (document.activeElement !== $("reached")) { $("reached").value = told.players[0].goals; write($("reached-shown"), told.players[0].goals); }
    paint();
  }

  function paint() {
    if (!now || !setup.map) return;
    const on = (name) => $(`show-${name}`).checked, places = [];
    board.begin();
    board.goals(now.players.map((player, index) => ({ goals: readState(player.state).goals, kind: COLORS[index] })));
    now.players.forEach((player, index) => {
      const kind = COLORS[index], at = readState(player.state);
      board.trace(traces[index], kind, { alpha: .45 });
      if (on("followed") && player.followed) board.trace([[at.x, at.y], ...player.followed], kind, { alpha: .6, dash: [2, 7], width: 3 });
      if (on("nearest") && player.nearest) board.cross(player.nearest, kind);
      if (on("field") && player.field) for (const [dx, dy, ax, ay] of player.field) board.arrow(at.x + dx * 3, at.y + dy * 3, ax * 16, ay * 16, kind, 2);
    });
    now.players.forEach((player, index) => {
      const kind = COLORS[index], at = readState(player.state);
      const shown = places[index] = dragged?.index === index ? dragged : at;
      board.agent(shown, kind);
      board.reserve(shown.x, shown.y);
      if (on("action") && player.action) {
        const [dx, dy] = player.action.map((part) => part * 44);
        board.arrow(at.x, at.y, dx, dy, kind, 4);
        for (const part of [.5, 1]) board.reserve(at.x + part * dx, at.y + part * dy, 8);
      }
      if (on("future") && player.future) { board.ring(player.future, kind); board.reserve(...player.future); }
    });
    places.forEach((at, index) => board.write(setup.titles[index], at, COLORS[index], 700));
  }

  const stop = () => line?.say({ do: "pause" });
  const speed = () => 2 ** Number($("speed").value);
  $("toggle").onclick = () => line?.say({ do: now?.playing === false ? "play" : "pause" });
  $("step").onclick = () => line?.say({ do: "step" });
  $("restart").onclick = () => line?.say({ do: "restart" });
  $("next-episode").onclick = () => now && line?.say({ seed: now.seed + 1, do: "play" });
  $("speed").oninput = () => { write($("speed-shown"), `${speed()}×`); line?.say({ speed: speed() }); };
  $("reached").oninput = () => { write($("reached-shown"), $("reached").value); stop(); line?.say({ do: "place", goals: Number($("reached").value) }); };
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
  addEventListener("resize", () => { if (now) paint(); else { previewed = ""; preview(); } });
}
