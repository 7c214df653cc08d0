// A training's curves: the loss on a logarithmic axis at the left, and what was scored at the right.
const [WIDE, HIGH, LEFT, RIGHT, TOP, LOW] = [600, 164, 76, 66, 30, 34];
export const METRICS = {
  goal_ratio: { name: "goals reached", text: (value) => `${Math.round(value * 100)}%` },
  success_rate: { name: "episodes solved", text: (value) => `${Math.round(value * 100)}%` },
  return: { name: "return", text: (value) => value.toFixed(Math.abs(value) < 100 ? 1 : 0) },
};

// A loss in at most six characters, which the axis has room for also on a phone: 0.24, 4.5e-5.
export const brief = (loss) => (loss >= .001 && loss < 100 ? loss.toPrecision(2) : loss.toExponential(1).replace("+", ""));

function draw(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

const path = (points) => points.map(([a, b], index) => `${index ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");

export function chart(run, label) {
  const color = run.agent === "bc" ? "bc" : "pidm", metric = METRICS[run.metric];
  const steps = Math.max(run.steps, ...run.loss.map(([step]) => step), 1);
  const x = (step) => LEFT + (WIDE - LEFT - RIGHT) * step / steps;
  const y = (part) => TOP + (HIGH - LOW - TOP) * (1 - part);
  const logs = run.loss.map(([, loss]) => Math.log10(Math.max(loss, 1e-9)));
  const floor = Math.min(...logs), top = Math.max(...logs, floor + .1);
  const losses = run.loss.map(([step], index) => [x(step), y((logs[index] - floor) / (top - floor))]);
  const scores = run.scores.map(([, value]) => value);
  const ratio = run.metric !== "return";
  const [least, most] = ratio || !scores.length ? [0, 1] : [Math.min(...scores), Math.max(...scores, Math.min(...scores) + 1)];
  const dots = run.scores.map(([step, value]) => [x(step), y((value - least) / (most - least))]);
  const svg = draw("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": label });
  svg.append(
    draw("path", { class: "axis", fill: "none", d: `M${LEFT} ${TOP}V${HIGH - LOW}H${WIDE - RIGHT}V${TOP}` }),
    draw("path", { fill: "none", stroke: `var(--${color})`, "stroke-width": 2, "stroke-linecap": "round", d: path(losses.length > 1 ? losses : [...losses, ...losses]) }),
    draw("text", { x: LEFT, y: 19, class: color }, "— loss (log scale)"),
    draw("text", { x: LEFT - 6, y: y(1) + 4, "text-anchor": "end" }, brief(10 ** top)),
    draw("text", { x: LEFT - 6, y: y(0) + 4, "text-anchor": "end" }, brief(10 ** floor)),
    draw("text", { x: LEFT, y: HIGH - 16, "text-anchor": "middle" }, "0"),
    draw("text", { x: WIDE - RIGHT, y: HIGH - 16, "text-anchor": "end" }, steps.toLocaleString("en")),
    draw("text", { x: (WIDE + LEFT - RIGHT) / 2, y: HIGH - 4, "text-anchor": "middle" }, "training steps"),
  );
  if (metric && dots.length) svg.append(
    draw("path", { fill: "none", stroke: "var(--reached)", "stroke-width": 2.5, d: path(dots) }),
    ...dots.map(([cx, cy]) => draw("circle", { cx, cy, r: 4, fill: "var(--reached)" })),
    draw("text", { x: WIDE - RIGHT, y: 19, "text-anchor": "end", class: "scored" }, `—●— ${metric.name}`),
    draw("text", { x: WIDE - RIGHT + 6, y: y(1) + 4 }, metric.text(most)),
    draw("text", { x: WIDE - RIGHT + 6, y: y(0) + 4 }, metric.text(least)),
  );
  return svg;
}
