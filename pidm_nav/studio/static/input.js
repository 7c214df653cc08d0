// Keyboard, gamepad and touch. What keys and buttons mean comes from the studio, which also turns those that are held
// into sticks, so that a recording does not depend on where it was made.
import { ask } from "./page.js";

const FINGER = 50; // pixels of a finger's way that deflect a stick fully

export class Input {
  constructor(canvas, touchMark) {
    this.controls = { keys: {}, buttons: {}, axes: [0, 1, 2, 3], commands: [] };
    this.keys = new Set(); // the actions whose keys are down
    this.pads = new Map(); // the same for the buttons of each gamepad
    this.pressed = [];
    this.device = "keyboard";
    this.touched = {}; // by the number of the stick, 0 or 1: where a finger came down, and the stick since then
    this.turns = false; // whether the right half of the picture is the second stick
    this.unplugged = null;
    this.active = false;
    ask("/api/controls").then((controls) => { this.controls = controls; }, () => {});
    addEventListener("keydown", (event) => this.key(event, true));
    addEventListener("keyup", (event) => this.key(event, false));
    addEventListener("blur", () => this.keys.clear()); // the releases will go to another window
    addEventListener("gamepaddisconnected", ({ gamepad }) => { if (this.device === gamepad.id) this.unplugged = gamepad.id; });
    canvas.addEventListener("pointerdown", (event) => this.touch(event, canvas, touchMark));
    canvas.addEventListener("pointermove", (event) => this.moveFinger(event, touchMark));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.lift(event, touchMark));
  }

  press(action) { this.pressed.push(action); }

  key(event, down) {
    if (!this.active || event.target.closest("input, select, textarea, summary, [role=tab]")) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key, action = this.controls.keys[key];
    if (!action || (event.target.closest("button") && ["Enter", " "].includes(key))) return;
    event.preventDefault();
    if (!down) return this.keys.delete(action);
    this.keys.add(action);
    this.device = "keyboard";
    if (!event.repeat) this.press(action);
  }

  touch(event, canvas, mark) {
    if (!this.active || event.pointerType === "mouse") return;
    const box = canvas.parentElement.getBoundingClientRect();
    const stick = this.turns && event.clientX > box.left + box.width / 2 ? 1 : 0;
    canvas.setPointerCapture(event.pointerId);
    this.touched[stick] = { finger: event.pointerId, x: event.clientX, y: event.clientY, stick: [0, 0] };
    if (stick) return;
    Object.assign(mark.style, { left: `${event.clientX - box.left}px`, top: `${event.clientY - box.top}px` });
    mark.firstElementChild.style.translate = "";
    mark.hidden = false;
  }

  moveFinger(event, mark) {
    for (const [number, touch] of Object.entries(this.touched)) {
      if (touch.finger !== event.pointerId) continue;
      const [x, y] = [(event.clientX - touch.x) / FINGER, (event.clientY - touch.y) / FINGER], far = Math.max(Math.hypot(x, y), 1);
      touch.stick = [x / far, y / far];
      if (number === "0") mark.firstElementChild.style.translate = touch.stick.map((part) => `${part * 45}px`).join(" ");
      this.device = "touch";
    }
  }

  lift(event, mark) {
    for (const [number, touch] of Object.entries(this.touched)) if (touch.finger === event.pointerId) delete this.touched[number];
    mark.hidden = !this.touched[0];
  }

  // What the person does now; called once per picture.
  read() {
    if (!this.active) return { device: this.device };
    let axes = [0, 0, 0, 0];
    for (const pad of navigator.getGamepads?.() ?? []) if (pad?.connected) axes = this.readPad(pad) ?? axes;
    for (const [number, { stick }] of Object.entries(this.touched)) axes.splice(2 * Number(number), 2, ...stick);
    const held = [...new Set([...this.keys, ...[...this.pads.values()].flatMap((down) => [...down])])];
    const { pressed, unplugged, device } = this;
    [this.pressed, this.unplugged] = [[], null];
    return { held, pressed: pressed.slice(-16), stick: axes.slice(0, 2), camera: axes.slice(2), device, unplugged };
  }

  // The axes of a gamepad, if it is used; its buttons are noted.
  readPad(pad) {
    const before = this.pads.get(pad.index) ?? new Set();
    const down = new Set(Object.entries(this.controls.buttons).filter(([number]) => pad.buttons[number]?.pressed).map(([, action]) => action));
    for (const action of down) if (!before.has(action)) this.press(action);
    this.pads.set(pad.index, down);
    const axes = this.controls.axes.map((number) => Math.min(Math.max(pad.axes[number] ?? 0, -1), 1));
    if (down.size || Math.max(...axes.map(Math.abs)) > .3) this.device = pad.id || "gamepad";
    return this.device === (pad.id || "gamepad") ? axes : null;
  }
}
