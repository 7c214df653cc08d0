// Record demonstrations, or race against an agent.
import { $, ask, complain, experts, fill, refresh, rivals, socket } from "./app.js";
import { Board, drawPicture, readState } from "./draw.js";
import { Input } from "./input.js";

const KEYS = { pause: "P", redo: "R", finish: "Enter", quit: "Esc" };
const WALK = "Move with a gamepad, the arrow keys or W A S D (Shift is slower), or with a finger on the map.";
const TURN = "Walk with W A S D or the arrow keys, turn with J and L, look up and down with I and K. On a gamepad the left stick walks and the right one turns; on a touch screen the left half of the picture walks and the right half turns.";
const EXAMPLE = ["####################", "#..................#", "#..A.......#.......#", "#..........#...1...#", "#..........#.......#", "#....#######.......#", "#..................#", "#..................#", "#....2.......#.....#", "#............#..3..#", "#............#.....#", "####################"].join("\n");

export function startPlay() {
  const form = $("play-form"), canvas = $("play-canvas");
  const board = new Board(canvas), input = new Input(canvas, $("touch"));
  let line = null, setup = null, now = null, trace = [], rivalTrace = [], before = performance.now(), agents = [], tasks = [], named = false, shown = "", wrong = false;

  const choose = () => {
    const racing = form.mode.value === "race", custom = form.task.value === "custom";
    $("file-field").hidden = $("success-field").hidden = racing;
    $("rival-field").hidden = !racing;
    $("map-editor").hidden = !custom;
    if (!named) form.file.value = `${form.task.value}-human.npz`;
    fill(form.rival, [...rivals(agents.filter((agent) => agent.world.task === form.task.value)), ...experts(tasks.find((task) => task.name === form.task.value))]);
    preview();
  };
  const world = () => ({ task: form.task.value, map: form.task.value === "custom" ? form.map.value : null });
  // The map that is chosen, before anything starts, or what is wrong with it.
  async function preview() {
    if (line || !form.task.value) return;
    const asked = JSON.stringify(world());
    if (asked === shown) return;
    shown = asked;
    try {
      const { map } = await ask("/api/world", world());
      if (line || asked !== shown) return;
      if (wrong) complain("");
      wrong = false;
      board.use(map);
      if (!map) board.clear();
      else { board.begin(); board.goals(map.goals.map(([x, y]) => ({ x, y, reached: false }))); board.agent({ x: map.starts[0][0], y: map.starts[0][1] }, "agent"); }
    } catch (error) { complain(error.message); wrong = true; }
  }
  form.map.value = localStorage.map ?? EXAMPLE;
  form.file.oninput = () => { named = true; };
  form.onchange = choose;
  form.map.oninput = preview;
  addEventListener("overview", ({ detail }) => {
    ({ agents, tasks } = detail);
    fill(form.task, tasks.map((task) => [task.name, task.title]));
    choose();
    if (!line && sessionStorage.session) connect();
  });

  form.onsubmit = (event) => {
    event.preventDefault();
    if (line) return;
    if (world().map) localStorage.map = world().map;
    const racing = form.mode.value === "race";
    sessionStorage.begin = JSON.stringify({ world: world(), file: racing ? null : form.file.value.trim(), rival: racing ? form.rival.value : null, only_success: !racing && form.only_success.checked });
    connect();
  };

  function connect() {
    complain("");
    setup = now = null;
    say("Getting ready…");
    line = socket("/play", {
      first: () => ({ ...JSON.parse(sessionStorage.begin), resume: sessionStorage.session ?? null }),
      hear: (told) => (told.session ? begin(told) : update(told)),
      picture: (blob) => drawPicture(canvas, blob),
      lost: () => {
        $("play-overlay").hidden = false;
        say("The connection is lost. Your episode is paused, what was kept is safe, and this page goes on by itself as soon as it can.");
      },
      closed: () => {
        const over = now?.phase === "over";
        line = null; input.active = false; shown = "";
        delete sessionStorage.session;
        $("session").hidden = true; form.hidden = false;
        $("play-overlay").hidden = false;
        $("device-hint").textContent = WALK;
        say(!over || !setup.file ? "Choose a task and press Start." : now.kept ? `${now.kept} ${now.kept === 1 ? "episode" : "episodes"} kept in ${setup.file}. Train on ${now.kept === 1 ? "it" : "them"} next.` : "Nothing was kept.");
        refresh();
      },
    });
  }

  function begin(told) {
    const first = !setup;
    [setup, now] = [told, null];
    sessionStorage.session = told.session;
    board.use(told.map);
    trace = told.trace.slice(0, -1); rivalTrace = [];
    form.hidden = true; $("session").hidden = false;
    $("device-hint").textContent = told.camera ? TURN : WALK;
    input.turns = told.camera;
    input.active = !$("play").hidden;
    canvas.focus({ preventScroll: true });
    canvas.scrollIntoView({ block: "nearest" });
    if (first) loop();
  }

  function update(told) {
    const again = now && told.person.steps < now.person.steps;
    if (again) { trace = []; rivalTrace = []; }
    const moved = !now || told.person.steps !== now.person.steps || again;
    now = told;
    if (setup.map && moved) {
      trace.push(told.person.state.slice(0, 2));
      if (told.rival) rivalTrace.push(told.rival.state.slice(0, 2));
    }
    paint();
    const { person, rival } = told;
    $("goals").textContent = person.of ? `${person.goals} of ${person.of} goals${rival ? ` · ${setup.rival}: ${rival.goals}` : ""}` : `return ${person.total.toFixed(1)}`;
    $("message").textContent = [told.message, told.problem].filter(Boolean).join(". ");
    $("next").textContent = person.next; $("next").hidden = $("next-name").hidden = !person.next;
    $("kept").textContent = told.total === null ? "not recorded" : `${told.kept} now, ${told.total} in ${setup.file}`;
    $("steps").textContent = person.steps;
    $("device").textContent = input.device;
    const words = JSON.stringify(told.meanings);
    if ($("commands").dataset.words !== words) showCommands(told.meanings, words);
    const message = told.message.replace(/\.$/, "");
    const begin = [message, "Move to begin."].filter(Boolean).join(". ");
    const paused = [message, "Paused. Press P or Start to go on."].filter(Boolean).join(". ");
    const waiting = { ready: begin, paused }[told.phase];
    $("play-overlay").hidden = !waiting;
    if (waiting) say(waiting);
  }

  const say = (text) => { $("play-overlay").firstElementChild.textContent = text; };

  function showCommands(meanings, words) {
    $("commands").dataset.words = words;
    $("commands").replaceChildren(...Object.entries(meanings).filter(([, text]) => text).map(([command, text]) => {
      const button = document.createElement("button");
      button.textContent = text[0].toUpperCase() + text.slice(1);
      button.append(Object.assign(document.createElement("kbd"), { textContent: KEYS[command] }));
      button.onclick = () => { input.commands.push(command); canvas.focus({ preventScroll: true }); };
      return button;
    }));
  }

  function paint() {
    if (!setup?.map || !now) return;
    board.begin();
    const seen = readState(now.person.state);
    board.goals(seen.goals);
    if (now.rival) {
      board.trace(rivalTrace, "bc", { alpha: .5 });
      board.agent(readState(now.rival.state), "bc", setup.rival);
    }
    board.trace(trace, "agent");
    board.agent(seen, "agent", now.rival ? "you" : "");
  }

  function loop(time = performance.now()) {
    if (!line) return;
    requestAnimationFrame(loop);
    const seconds = Math.min((time - before) / 1000, .1);
    before = time;
    line.say(input.read(seconds));
  }
  addEventListener("resize", paint);
  const pause = () => now?.phase === "running" && line?.say({ commands: ["pause"] });
  addEventListener("shown", ({ detail }) => {
    input.active = detail === "play" && !!line;
    if (detail !== "play") pause();
    else if (!line) { shown = ""; preview(); }
  });
  document.addEventListener("visibilitychange", () => document.hidden && pause());
}
