// Record demonstrations, or race against an agent.
import { $, ask, complain, experts, fill, make, refresh, rivals, show, touchScreen, write } from "./page.js";
import { Board, drawPicture, readState } from "./draw.js";
import { Input } from "./input.js";
import { socket } from "./socket.js";

const KEYS = { pause: "P", redo: "R", finish: "Enter", quit: "Esc" };
const WALK = touchScreen
  ? "Put a finger on the map: it becomes a stick."
  : "Move with a gamepad, the arrow keys or W A S D (Shift is slower).";
const TURN = touchScreen
  ? "The left half of the picture walks, the right half turns."
  : "Walk with W A S D or the arrow keys, turn with J and L, look up and down with I and K. On a gamepad the left stick walks and the right one turns.";
const RESUME = touchScreen ? "Paused. Tap Resume." : "Paused. Press P or Start to resume.";
const CHOOSE = "Choose a task and press Start.";
const EXAMPLE = ["####################", "#..................#", "#..A.......#.......#", "#..........#...1...#", "#..........#.......#", "#....#######.......#", "#..................#", "#..................#", "#....2.......#.....#", "#............#..3..#", "#............#.....#", "####################"].join("\n");

export function startPlay() {
  const form = $("play-form"), canvas = $("play-canvas");
  const board = new Board(canvas), input = new Input(canvas, $("touch"));
  let line = null, setup = null, now = null, trace = [], rivalTrace = [], agents = [], tasks = [], named = false, shown = "", wrong = false;

  const say = (text, next = false) => {
    $("play-overlay").hidden = !text;
    write($("play-overlay").querySelector("p"), text);
    $("train-next").hidden = !next;
  };
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
      paintPreview();
    } catch (error) {
      if (line || asked !== shown) return;
      complain(error.message);
      wrong = true;
    }
  }
  function paintPreview() {
    if (!board.map) return board.clear();
    board.begin();
    board.goals([{ goals: board.map.goals.map(([x, y]) => ({ x, y, reached: false })) }]);
    board.agent({ x: board.map.starts[0][0], y: board.map.starts[0][1] }, "agent");
  }

  form.map.value = localStorage.map ?? EXAMPLE;
  form.file.oninput = () => { named = true; };
  form.onchange = () => { say(CHOOSE); choose(); };
  form.map.oninput = preview;
  write($("device-hint"), WALK);
  addEventListener("overview", ({ detail }) => {
    tasks = detail.tasks;
    agents = detail.agents.filter((agent) => !agent.error);
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
    wrong = false; // or the next preview would take the reason of a failed start for that of a map
    setup = now = null;
    say("Getting ready…");
    line = socket("/play", {
      first: () => ({ ...JSON.parse(sessionStorage.begin), resume: sessionStorage.session ?? null }),
      receive: (told) => (told.session ? begin(told) : update(told)),
      picture: (blob) => drawPicture(canvas, blob),
      lost: () => say("The connection is lost. The episode is paused, and kept episodes are saved. The page reconnects by itself."),
      closed: finish,
    });
  }

  function finish() {
    const over = now?.phase === "over", kept = now?.kept ?? 0;
    line = null; input.active = false; shown = "";
    delete sessionStorage.session;
    $("session").hidden = true; form.hidden = false;
    write($("device-hint"), WALK);
    if (!over || !setup.file) say(CHOOSE);
    else if (!kept) say("Nothing was kept.");
    else {
      say(`${kept} ${kept === 1 ? "episode" : "episodes"} kept in ${setup.file}.`, true);
      write($("train-next"), kept === 1 ? "Train on it" : "Train on them");
      dispatchEvent(new CustomEvent("recorded", { detail: setup.file }));
    }
    refresh();
  }
  $("train-next").onclick = () => { say(CHOOSE); show("train"); refresh(); };

  function begin(told) {
    const first = !setup;
    [setup, now] = [told, null];
    sessionStorage.session = told.session;
    board.use(told.map);
    trace = told.trace.slice(0, -1); rivalTrace = [];
    form.hidden = true; $("session").hidden = false;
    write($("device-hint"), told.camera ? TURN : WALK);
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
    const goals = `${person.goals} of ${person.of} goals${rival ? ` · ${setup.rival}: ${rival.goals}` : ""}`;
    write($("goals"), person.of ? goals : `return ${person.total.toFixed(1)}`);
    write($("message"), [told.message, told.problem].filter(Boolean).join(". "));
    write($("milestone"), person.next);
    $("milestone").hidden = $("milestone-name").hidden = !person.next;
    write($("kept"), told.total === null ? "not recorded" : told.saving && !told.problem ? "saving…" : `${told.kept} now, ${told.total} in ${setup.file}`);
    write($("steps"), person.steps);
    write($("device"), input.device);
    showCommands(told.meanings);
    const message = told.message.replace(/\.$/, "");
    const waiting = { ready: "Move to begin.", paused: RESUME }[told.phase];
    say(waiting ? [message, waiting].filter(Boolean).join(". ") : "");
  }

  function showCommands(meanings) {
    const words = JSON.stringify(meanings);
    if ($("commands").dataset.words === words) return;
    $("commands").dataset.words = words;
    $("commands").replaceChildren(...Object.entries(meanings).filter(([, text]) => text).map(([command, text]) => {
      const button = make("button", {}, text[0].toUpperCase() + text.slice(1), make("kbd", { textContent: KEYS[command] }));
      button.onclick = () => { input.press(command); canvas.focus({ preventScroll: true }); };
      return button;
    }));
  }

  function paint() {
    if (!line) return form.hidden || paintPreview();
    if (!setup?.map || !now) return;
    board.begin();
    const seen = readState(now.person.state), players = [{ goals: seen.goals, kind: "agent" }];
    if (now.rival) players.push({ goals: readState(now.rival.state).goals, kind: "bc" });
    board.goals(players);
    if (now.rival) {
      board.trace(rivalTrace, "bc", { alpha: .5 });
      board.agent(readState(now.rival.state), "bc", setup.rival);
    }
    board.trace(trace, "agent");
    board.agent(seen, "agent", now.rival ? "you" : "");
  }

  function loop() {
    if (!line) return;
    requestAnimationFrame(loop);
    line.say(input.read());
  }
  addEventListener("resize", paint);
  const pause = () => now?.phase === "running" && line?.say({ pressed: ["pause"] });
  addEventListener("shown", ({ detail }) => {
    input.active = detail === "play" && !!line;
    if (detail !== "play") pause();
    else if (!line) { shown = ""; preview(); }
  });
  document.addEventListener("visibilitychange", () => document.hidden && pause());
}
