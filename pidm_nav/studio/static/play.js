// Record demonstrations, or race against an agent.
import { $, ask, complain, fill, refresh, socket } from "./app.js";
import { Board, drawPicture, readState } from "./draw.js";
import { Input } from "./input.js";

const KEYS = { pause: "P", redo: "R", finish: "Enter", quit: "Esc" };
const EXAMPLE = ["####################", "#..................#", "#..A.......#.......#", "#..........#...1...#", "#..........#.......#", "#....#######.......#", "#..................#", "#..................#", "#....2.......#.....#", "#............#..3..#", "#............#.....#", "####################"].join("\n");

export function startPlay() {
  const form = $("play-form"), canvas = $("play-canvas");
  const board = new Board(canvas), input = new Input(canvas, $("touch"));
  let line = null, setup = null, now = null, trace = [], rivalTrace = [], before = performance.now(), agents = [], named = false, shown = "";
  const delays = []; // milliseconds from an input to the picture that shows it, for tests and the curious
  globalThis.studioDelays = delays;

  const choose = () => {
    const racing = form.mode.value === "race", custom = form.task.value === "custom";
    $("file-field").hidden = $("success-field").hidden = racing;
    $("rival-field").hidden = !racing;
    $("map-editor").hidden = !custom;
    if (!named) form.file.value = `${form.task.value}-human.npz`;
    const able = agents.filter((agent) => agent.task === form.task.value).map((agent) => [agent.name, `${agent.agent.toUpperCase()} · ${agent.name}`]);
    const experts = form.task.value.endsWith("-3d") ? [["scripted", "Scripted walker"]] : [["astar", "A* expert"], ["human-like", "Human-like player"]];
    fill(form.rival, [...able, ...experts]);
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
      complain("");
      board.use(map);
      if (map) { board.begin(); board.goals(map.goals.map(([x, y]) => ({ x, y, reached: false }))); board.agent({ x: map.starts[0][0], y: map.starts[0][1] }, "agent"); }
    } catch (error) { complain(error.message); }
  }
  form.map.value = localStorage.map ?? EXAMPLE;
  form.file.oninput = () => { named = true; };
  form.onchange = choose;
  form.map.oninput = preview;
  addEventListener("overview", ({ detail }) => {
    agents = detail.agents;
    fill(form.task, [...detail.tasks.map((task) => [task.name, task.title]), ["custom", "A map of your own"]]);
    choose();
    if (!line && sessionStorage.session) connect({ resume: sessionStorage.session });
  });

  form.onsubmit = (event) => {
    event.preventDefault();
    if (world().map) localStorage.map = world().map;
    const racing = form.mode.value === "race";
    connect({ world: world(), file: racing ? null : form.file.value.trim(), rival: racing ? form.rival.value : null, only_success: !racing && form.only_success.checked });
  };

  function connect(first) {
    complain("");
    setup = now = null;
    line = socket("/play", {
      first,
      hear: (told) => (setup ? update(told) : begin(told)),
      picture: (blob) => drawPicture(canvas, blob),
      closed: (refused) => {
        line = null; input.active = false; shown = "";
        const over = now?.phase === "over";
        if (over || refused) delete sessionStorage.session;
        $("session").hidden = true; form.hidden = false;
        $("play-overlay").hidden = false;
        if (!over && !refused && setup) {
          say("The connection was lost. Your episode is paused, and what was kept is safe.");
          setTimeout(() => !line && sessionStorage.session && connect({ resume: sessionStorage.session }), 1500);
        } else say(over ? `${now.kept ? `${now.kept} ${now.kept === 1 ? "episode" : "episodes"} kept in ${setup.file}. Train on them next.` : "Nothing was kept."}` : "Choose a task and press Start.");
        refresh();
      },
    });
  }

  function begin(told) {
    setup = told;
    sessionStorage.session = told.session;
    board.use(told.map);
    trace = told.trace.slice(0, -1); rivalTrace = [];
    form.hidden = true; $("session").hidden = false;
    input.active = true;
    canvas.focus({ preventScroll: true });
    loop();
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
    if (told.sent) { delays.push(performance.now() - told.sent); if (delays.length > 500) delays.shift(); }
    paint();
    const { person, rival } = told;
    $("goals").textContent = person.of ? `${person.goals} of ${person.of} goals${rival ? ` · ${setup.rival}: ${rival.goals}` : ""}` : `return ${person.total.toFixed(1)}`;
    $("message").textContent = told.message;
    $("kept").textContent = told.total === null ? "not recorded" : `${told.kept} now, ${told.total} in ${setup.file}`;
    $("steps").textContent = person.steps;
    $("device").textContent = input.device;
    const words = JSON.stringify(told.meanings);
    if ($("commands").dataset.words !== words) showCommands(told.meanings, words);
    const waiting = { ready: told.message ? `${told.message}. Move to begin.` : person.of ? "Touch the red goals in order. Move to begin." : "Move to begin.", paused: "Paused. Press P or Start to go on." }[told.phase];
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
    const seconds = Math.min((time - before) / 1000, .1);
    before = time;
    line.say({ ...input.read(seconds), sent: performance.now() });
    requestAnimationFrame(loop);
  }
  addEventListener("resize", paint);
  addEventListener("shown", ({ detail }) => {
    input.active = detail === "play" && !!line;
    if (detail !== "play" && now?.phase === "running") line?.say({ commands: ["pause"] });
  });
}
