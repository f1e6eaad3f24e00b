// The two-weight example (section 5.5 of the paper), computed here for any learning rate.

const SLIDER = { min: -3, max: -0.3, step: 0.01 }; // powers of ten
const CONTOURS = [1, 0.5, 0.25, 0.1, 0.03, 0.005]; // of the loss at the start

/**
 * The weights after each step, from w = 0: w ← w − η·m·2(x·w − y)x for the examples drawn.
 * IPS-SGD multiplies by 1/p of the example, CounterSample by the mean of 1/p.
 */
function toyPath(toy, plan, drawn, rate) {
  const mean = toy.p.reduce((sum, p) => sum + 1 / p, 0) / toy.p.length;
  const path = [[0, 0]];
  for (const i of drawn) {
    const [w1, w2] = path[path.length - 1];
    const [x1, x2] = toy.x[i];
    const scale = plan === "ips" ? 1 / toy.p[i] : mean;
    const step = rate * scale * 2 * (x1 * w1 + x2 * w2 - toy.y[i]);
    path.push([w1 - step * x1, w2 - step * x2]);
  }
  return path;
}

/** The averages w̄ after 0, 1, 2, … steps: of the iterates before each step, as the algorithms return them. */
function toyAverages(path) {
  const sum = [0, 0];
  return path.map((_, step) => {
    if (step === 0) return path[0];
    sum[0] += path[step - 1][0];
    sum[1] += path[step - 1][1];
    return [sum[0] / step, sum[1] / step];
  });
}

function toyDistance(toy, [w1, w2]) {
  const distance = Math.hypot(w1 - toy.optimum[0], w2 - toy.optimum[1]);
  return Number.isFinite(distance) ? distance : Infinity;
}

/**
 * The lines of equal loss. Targets have no noise, so R(w) = (w − w*)ᵀH(w − w*) with H the mean of
 * xxᵀ/p. With H = LLᵀ a circle u of radius √c becomes the contour w* + L⁻ᵀu.
 */
function toyContours(toy) {
  let [a, b, c] = [0, 0, 0];
  toy.x.forEach(([x1, x2], i) => {
    const weight = 1 / (toy.p[i] * toy.x.length);
    a += weight * x1 * x1;
    b += weight * x1 * x2;
    c += weight * x2 * x2;
  });
  const l11 = Math.sqrt(a);
  const l21 = b / l11;
  const l22 = Math.sqrt(c - l21 * l21);
  const [o1, o2] = toy.optimum;
  const atStart = a * o1 * o1 + 2 * b * o1 * o2 + c * o2 * o2;
  return CONTOURS.map((share) => {
    const radius = Math.sqrt(share * atStart);
    return Array.from({ length: 91 }, (_, k) => {
      const angle = (2 * Math.PI * k) / 90;
      const d2 = (radius * Math.sin(angle)) / l22;
      const d1 = (radius * Math.cos(angle) - l21 * d2) / l11;
      return [o1 + d1, o2 + d2];
    });
  });
}

/** Build the example into `host`: a slider, the paths over the contours, the distance by step. */
function showToy(host, toy) {
  const state = { rate: toy.rate, draw: 0 };
  const map = html("div", {
    class: "map", role: "img", "aria-label": "Paths of both methods over the contours of the loss",
  });
  const says = html("output", { class: "says", "aria-live": "polite" });
  const view = { log: false, hidden: new Set() };
  const start = toyDistance(toy, [0, 0]);
  const distances = new Panel({
    title: "Distance to the optimum, by step", name: "Distance to the optimum", range: [1e-4, 100], logY: true,
    rules: [], xLabel: "steps", yLabel: "distance", ticks: null, text: distanceText,
    lines: toyLines(toy, state),
  }, view);
  const redraw = () => {
    distances.spec.lines = toyLines(toy, state);
    distances.draw();
    says.textContent = toyWords(toy, state, start);
    drawMap(map, toy, state);
  };
  host.append(
    html("div", { class: "controls" }, [rateSlider(state, redraw), ...newDraws(toy, state, redraw)]),
    html("div", { class: "panels columns-2" }, [
      html("figure", { class: "panel" }, [html("figcaption", {}, ["Paths of 50 steps from w = 0"]), map]),
      distances.element,
    ]),
    html("div", { class: "legend still" }, toy.methods.map((method) =>
      html("span", {}, [swatch(method.style), method.name])).concat(html("span", {}, [
      "Thick: the iterate after each step. Thin: the average of the iterates so far, which the algorithms return.",
    ]))),
    says,
  );
  onResize(host, redraw);
}

function toyPaths(toy, state) {
  const drawn = toy.draws[state.draw];
  return toy.methods.map((method) => ({
    ...method, path: toyPath(toy, method.plan, drawn[method.plan], state.rate),
  }));
}

function toyLines(toy, state) {
  const line = (name, style, path, more) => ({
    name, style, x: path.map((_, step) => step), mean: path.map((w) => toyDistance(toy, w)), half: null, runs: [],
    note: "", ...more,
  });
  return toyPaths(toy, state).flatMap(({ name, style, path }) => [
    line(`${name}, last`, style, path, {}),
    line(`${name}, average`, style, toyAverages(path), { thin: true }),
  ]);
}

function toyWords(toy, state, start) {
  const ends = toyPaths(toy, state).map(({ name, path }) => {
    const end = toyDistance(toy, path[path.length - 1]);
    if (end > start) return `${name} diverges: it ends farther from the optimum than it began`;
    const average = toyDistance(toy, toyAverages(path)[path.length - 1]);
    return `${name} ends at a distance of ${distanceText(end)} from the optimum, its average at ${distanceText(average)}`;
  });
  return `At learning rate ${rateText(state.rate)}, ${ends.join("; ")}.`;
}

function distanceText(distance) {
  if (distance > 1000) return "more than 1,000";
  return distance < 0.001 ? "less than 0.001" : fixedNumber(distance, 3);
}

function rateText(rate) {
  return String(Number(rate.toPrecision(2)));
}

function rateSlider(state, redraw) {
  const { min, max, step } = SLIDER;
  const input = html("input", { type: "range", min, max, step, value: Math.log10(state.rate) });
  const shown = html("span", { class: "rate" }, [rateText(state.rate)]);
  input.setAttribute("aria-valuetext", rateText(state.rate));
  input.addEventListener("input", () => {
    state.rate = 10 ** Number(input.value);
    shown.textContent = rateText(state.rate);
    input.setAttribute("aria-valuetext", shown.textContent);
    redraw();
  });
  return html("label", { class: "slider" }, ["Learning rate", input, shown]);
}

/** A button that goes round the given sets of draws; none where there is one set only. */
function newDraws(toy, state, redraw) {
  if (toy.draws.length < 2) return [];
  const title = () => `New draws (${state.draw + 1} of ${toy.draws.length})`;
  const button = html("button", { type: "button" }, [title()]);
  button.addEventListener("click", () => {
    state.draw = (state.draw + 1) % toy.draws.length;
    button.textContent = title();
    redraw();
  });
  return [button];
}

function drawMap(host, toy, state) {
  const width = Math.max(host.clientWidth, 160);
  const height = Math.round(Math.min(width * 0.8, 300));
  const [o1, o2] = toy.optimum;
  const half = 0.95 * Math.hypot(o1, o2); // start and optimum are both in view
  const unit = height / (2 * half); // the same on both axes: circles stay circles
  const x = (w) => width / 2 + (w - o1 / 2) * unit;
  const y = (w) => height / 2 - (w - o2 / 2) * unit;
  const far = 50 * half; // a path that explodes leaves the picture; SVG needs finite numbers
  const within = (w) => (Number.isFinite(w) ? Math.min(Math.max(w, -far), far) : far);
  const points = (path) => path.map(([a, b]) => `${x(within(a)).toFixed(2)},${y(within(b)).toFixed(2)}`);
  const parts = toyContours(toy).map((ring) => svg("polygon", { class: "contour", points: points(ring).join(" ") }));
  for (const { name, style, path } of toyPaths(toy, state)) {
    parts.push(svg("polyline", {
      class: `line path ${styleClass(style)}`, points: points(path).join(" "), "data-method": name,
    }));
    for (const [w1, w2] of path.slice(1)) {
      parts.push(svg("circle", { class: `dot step ${styleClass(style)}`, cx: x(within(w1)), cy: y(within(w2)), r: 2 }));
    }
    const [end1, end2] = path[path.length - 1];
    parts.push(svg("circle", { class: `dot ${styleClass(style)}`, cx: x(within(end1)), cy: y(within(end2)), r: 4.5 }));
  }
  parts.push(svg("circle", { class: "start", cx: x(0), cy: y(0), r: 3.5 }));
  parts.push(svg("text", { class: "rule-label end", x: x(0) - 7, y: y(0) + 4 }, ["start"]));
  parts.push(svg("path", { class: "optimum", d: `M${x(o1) - 6},${y(o2)}h12M${x(o1)},${y(o2) - 6}v12` }));
  parts.push(svg("text", { class: "rule-label", x: x(o1) + 9, y: y(o2) + 4 }, ["optimum"]));
  host.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, parts));
}
