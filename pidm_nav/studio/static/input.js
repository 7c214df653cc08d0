// Gamepad, keyboard and touch as two sticks and a list of commands.
const KEYS = { ArrowLeft: "left", a: "left", ArrowRight: "right", d: "right", ArrowUp: "up", w: "up", ArrowDown: "down", s: "down",
  j: "turn_left", l: "turn_right", i: "look_up", k: "look_down", Shift: "slow" };
const COMMANDS = { p: "pause", " ": "pause", r: "redo", Backspace: "redo", Enter: "finish", Escape: "quit" };
const BUTTONS = { 9: "pause", 1: "redo", 3: "finish", 8: "quit" }; // of the standard mapping: start, B, Y, back
const DEAD = .12;
const PRESS = 8, RELEASE = 16; // speed of a stick made of keys, as in the window

const approach = (value, target, seconds) => {
  const step = (Math.abs(target) < Math.abs(value) || target * value < 0 ? RELEASE : PRESS) * seconds;
  return Math.min(Math.max(target, value - step), value + step);
};
const within = ([x, y]) => { const length = Math.hypot(x, y); return length > 1 ? [x / length, y / length] : [x, y]; };
const live = ([x, y]) => {
  const length = Math.hypot(x, y);
  if (length < DEAD) return [0, 0];
  const wanted = Math.min((length - DEAD) / (1 - DEAD), 1);
  return [x / length * wanted, y / length * wanted];
};

export class Input {
  constructor(canvas, touchMark) {
    this.held = new Set();
    this.commands = [];
    this.keyStick = [0, 0, 0, 0];
    this.device = "keyboard";
    this.down = new Set();
    this.touched = {}; // by the number of the stick, 0 or 1: where a finger came down, and the stick since then
    this.turns = false; // whether the right half of the picture is the second stick
    this.unplugged = null;
    this.active = false;
    addEventListener("keydown", (event) => this.key(event, true));
    addEventListener("keyup", (event) => this.key(event, false));
    addEventListener("blur", () => this.held.clear());
    addEventListener("gamepaddisconnected", ({ gamepad }) => { if (this.device === gamepad.id) this.unplugged = gamepad.id; });
    canvas.addEventListener("pointerdown", (event) => {
      if (!this.active || event.pointerType === "mouse") return;
      const box = canvas.parentElement.getBoundingClientRect(), finger = event.pointerId;
      const stick = this.turns && event.clientX > box.left + box.width / 2 ? 1 : 0;
      canvas.setPointerCapture(finger);
      this.touched[stick] = { finger, x: event.clientX, y: event.clientY, stick: [0, 0] };
      if (stick) return;
      Object.assign(touchMark.style, { left: `${event.clientX - box.left}px`, top: `${event.clientY - box.top}px` });
      touchMark.firstElementChild.style.translate = "";
      touchMark.hidden = false;
    });
    canvas.addEventListener("pointermove", (event) => {
      for (const [number, touch] of Object.entries(this.touched)) {
        if (touch.finger !== event.pointerId) continue;
        touch.stick = within([(event.clientX - touch.x) / 50, (event.clientY - touch.y) / 50]);
        if (number === "0") touchMark.firstElementChild.style.translate = touch.stick.map((part) => `${part * 45}px`).join(" ");
        this.device = "touch";
      }
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => {
      for (const [number, touch] of Object.entries(this.touched)) if (touch.finger === event.pointerId) delete this.touched[number];
      touchMark.hidden = !this.touched[0];
    });
  }

  key(event, pressed) {
    if (!this.active || event.target.closest("input, select, textarea, [role=tab]")) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (KEYS[key]) {
      if (pressed) { this.held.add(KEYS[key]); this.device = "keyboard"; } else this.held.delete(KEYS[key]);
      event.preventDefault();
    } else if (COMMANDS[key] && !(event.target.closest("button") && ["Enter", " "].includes(key))) {
      if (pressed && !event.repeat) this.commands.push(COMMANDS[key]);
      event.preventDefault();
    }
  }

  // What the person does now; called once per picture.
  read(seconds) {
    const keys = this.readKeys(seconds);
    let sticks = [keys.slice(0, 2), keys.slice(2)];
    for (const [number, touch] of Object.entries(this.touched)) sticks[number] = touch.stick;
    for (const pad of navigator.getGamepads?.() ?? []) {
      if (!pad?.connected) continue;
      const both = [live(pad.axes.slice(0, 2)), live([pad.axes[2] ?? 0, pad.axes[3] ?? 0])];
      const cross = [14, 15, 12, 13].map((index) => (pad.buttons[index]?.pressed ? 1 : 0));
      if (cross.some(Boolean)) both[0] = within([cross[1] - cross[0], cross[3] - cross[2]]);
      if (Math.hypot(...both.flat()) > .3) this.device = pad.id || "gamepad";
      if (Math.hypot(...both.flat()) > 0) sticks = both;
      for (const [index, command] of Object.entries(BUTTONS)) {
        const name = `${pad.index}/${index}`, pressed = pad.buttons[index]?.pressed;
        if (pressed && !this.down.has(name)) this.commands.push(command);
        if (pressed) this.down.add(name); else this.down.delete(name);
      }
    }
    const { commands, unplugged, device } = this;
    [this.commands, this.unplugged] = [[], null];
    return { stick: sticks[0], camera: sticks[1], commands, device, unplugged };
  }

  readKeys(seconds) {
    const on = (name) => (this.held.has(name) ? 1 : 0);
    const target = [on("right") - on("left"), on("down") - on("up"), on("turn_right") - on("turn_left"), on("look_down") - on("look_up")];
    const most = on("slow") ? .5 : 1;
    for (const pair of [0, 2]) {
      const reach = most * (target[pair] && target[pair + 1] ? Math.SQRT1_2 : 1);
      for (const index of [pair, pair + 1]) this.keyStick[index] = approach(this.keyStick[index], target[index] * reach, seconds);
    }
    return [...within(this.keyStick.slice(0, 2)), ...within(this.keyStick.slice(2))];
  }
}
