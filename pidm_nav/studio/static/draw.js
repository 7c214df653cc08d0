// Draws a map, goals and agents on a canvas, in room pixels, with the colors of the page.
const BOX = 20;
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// The state vector: x, y, then x, y, reached of every goal.
export function readState(state) {
  const goals = [];
  for (let i = 2; i < state.length; i += 3) goals.push({ x: state[i], y: state[i + 1], reached: state[i + 2] > 0.5 });
  return { x: state[0], y: state[1], goals };
}

export class Board {
  constructor(canvas) {
    this.canvas = canvas;
    this.map = null;
  }

  use(map) {
    this.map = map;
    this.canvas.style.setProperty("--ratio", map ? map.room[0] / map.room[1] : 4 / 3);
    this.backdrop = null;
  }

  clear() {
    this.canvas.width = this.canvas.height = 0;
  }

  // Where the pointer is in the room.
  locate(event) {
    const box = this.canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width * this.map.room[0], (event.clientY - box.top) / box.height * this.map.room[1]];
  }

  begin() {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight].map((side) => Math.max(Math.round(side * ratio), 1)); // 0 where it is hidden
    const dark = document.documentElement.classList.contains("dark");
    if (this.canvas.width !== width || this.canvas.height !== height || this.dark !== dark) this.backdrop = null;
    if (!this.backdrop) {
      this.dark = dark;
      [this.canvas.width, this.canvas.height] = [width, height];
      this.scale = width / this.map.room[0];
      this.backdrop = this.drawWalls(width, height);
    }
    const pen = this.pen = this.canvas.getContext("2d");
    this.texts = []; // where texts, and marks that they avoid, are: left, top, right, bottom
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.drawImage(this.backdrop, 0, 0);
    pen.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    pen.lineCap = pen.lineJoin = "round";
    return pen;
  }

  drawWalls(width, height) {
    const sheet = new OffscreenCanvas(width, height), pen = sheet.getContext("2d");
    pen.fillStyle = color("floor");
    pen.fillRect(0, 0, width, height);
    pen.scale(this.scale, this.scale);
    const walls = new Path2D();
    for (const [x, y, wide, high] of this.map.walls) walls.rect(x - .3, y - .3, wide + .6, high + .6);
    pen.shadowColor = color("shadow");
    pen.shadowBlur = 10 * this.scale;
    pen.shadowOffsetX = pen.shadowOffsetY = 3 * this.scale;
    pen.fillStyle = color("wall");
    pen.fill(walls);
    pen.shadowColor = "transparent";
    pen.fill(walls);
    return sheet;
  }

  // The goals of one player, or of several, each with a color: a dot per player shows who has reached a goal.
  goals(players) {
    const [{ goals }] = players;
    for (const { x, y } of goals) this.texts.push([x - 13, y - 10, x + 13, y + 22]);
    goals.forEach((goal, index) => {
      const reached = players.every((player) => player.goals[index].reached);
      const waiting = players.filter((player) => player.goals.findIndex((each) => !each.reached) === index);
      const kind = reached ? "reached" : waiting.length ? "current" : "later";
      if (kind === "current") { this.pen.globalAlpha = .22; this.square(goal, BOX + 14, kind, 10); this.pen.globalAlpha = 1; }
      this.square(goal, BOX, kind, 5);
      if (players.length > 1) players.forEach((player, place) => {
        this.dot(goal.x + 10 * (place - (players.length - 1) / 2), goal.y + 18, player.kind, player.goals[index].reached);
      });
      this.write(reached ? "✓" : String(index + 1), goal, kind, 600);
    });
  }

  square({ x, y }, side, kind, radius) {
    this.pen.fillStyle = color(kind);
    this.pen.beginPath();
    this.pen.roundRect(x - side / 2, y - side / 2, side, side, radius);
    this.pen.fill();
  }

  trace(points, kind, { alpha = .7, dash = [], width = 3 } = {}) {
    if (points.length < 2) return;
    const pen = this.pen;
    pen.save();
    pen.globalAlpha = alpha; pen.strokeStyle = color(kind); pen.lineWidth = width; pen.setLineDash(dash);
    pen.beginPath();
    points.forEach(([x, y], index) => (index ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    pen.stroke();
    pen.restore();
  }

  dot(x, y, kind, full) {
    this.pen.beginPath(); this.pen.arc(x, y, 3.5, 0, 7);
    this.pen.fillStyle = color(full ? kind : "floor"); this.pen.fill();
    this.pen.lineWidth = 1.5; this.pen.strokeStyle = color(kind); this.pen.stroke();
  }

  agent({ x, y }, kind, label = "") {
    const pen = this.pen;
    pen.fillStyle = color(kind);
    pen.beginPath(); pen.arc(x, y, BOX / 2 + 1, 0, 7); pen.fill();
    pen.lineWidth = 2.5; pen.strokeStyle = color("floor"); pen.stroke();
    if (label) this.write(label, { x, y }, kind, 700);
  }

  // Keeps texts away from what is drawn around a place.
  reserve(x, y, half = 12) { this.texts.push([x - half, y - half, x + half, y + half]); }

  // A text beside a place: within the room, and where neither another text nor a mark is.
  write(text, { x, y }, kind, weight) {
    const pen = this.pen, [wide, high] = this.map.room;
    const height = Math.max(18, 13 * wide / this.canvas.clientWidth); // to be read on a phone too
    pen.font = `${weight} ${height * .92}px system-ui, sans-serif`;
    const width = pen.measureText(text).width;
    const places = [0, 1, 2, 3].flatMap((line) => [y - 2 - height * (line + 1), y + 6 + height * line].flatMap((top) => [[x + 13, top], [x - 13 - width, top]]));
    const free = places.find(([left, top]) => left >= 0 && left + width <= wide && top >= 0 && top + height <= high
      && !this.texts.some(([a, b, c, d]) => left < c && left + width > a && top < d && top + height > b)) ?? places[0];
    const [left, top] = [Math.min(Math.max(free[0], 2), wide - width - 2), Math.min(Math.max(free[1], 2), high - height - 2)];
    this.texts.push([left, top, left + width, top + height]);
    pen.lineWidth = 4; pen.strokeStyle = color("floor"); pen.fillStyle = color(kind);
    for (const stroke of ["strokeText", "fillText"]) pen[stroke](text, left, top + .82 * height);
  }

  arrow(x, y, dx, dy, kind, width = 4) {
    const pen = this.pen, length = Math.hypot(dx, dy);
    if (length < 1) return;
    const head = Math.min(length, 3 * width), [ux, uy] = [dx / length, dy / length];
    pen.strokeStyle = pen.fillStyle = color(kind); pen.lineWidth = width;
    pen.beginPath(); pen.moveTo(x, y); pen.lineTo(x + dx - ux * head, y + dy - uy * head); pen.stroke();
    pen.beginPath(); pen.moveTo(x + dx, y + dy);
    pen.lineTo(x + dx - ux * head - uy * head * .6, y + dy - uy * head + ux * head * .6);
    pen.lineTo(x + dx - ux * head + uy * head * .6, y + dy - uy * head - ux * head * .6);
    pen.fill();
  }

  cross([x, y], kind) {
    this.pen.strokeStyle = color(kind); this.pen.lineWidth = 3;
    this.pen.beginPath(); this.pen.moveTo(x - 6, y - 6); this.pen.lineTo(x + 6, y + 6); this.pen.moveTo(x - 6, y + 6); this.pen.lineTo(x + 6, y - 6); this.pen.stroke();
  }

  ring([x, y], kind) {
    this.pen.strokeStyle = color(kind); this.pen.lineWidth = 3.5;
    this.pen.beginPath(); this.pen.arc(x, y, BOX / 2 + 2, 0, 7); this.pen.stroke();
    this.pen.beginPath(); this.pen.arc(x, y, 2.5, 0, 7); this.pen.fillStyle = color(kind); this.pen.fill();
  }
}

export async function drawPicture(canvas, blob) {
  canvas.newest = blob;
  const image = await createImageBitmap(blob);
  if (canvas.newest !== blob) return; // a newer one has come meanwhile
  if (canvas.width !== image.width || canvas.height !== image.height) {
    [canvas.width, canvas.height] = [image.width, image.height];
    canvas.style.setProperty("--ratio", image.width / image.height);
  }
  canvas.getContext("2d").drawImage(image, 0, 0);
}
