// A panel: lines over one axis, with a cursor that reads the values of all of them.

let lastClip = 0; // clip paths need names of their own in the document

/** Make an SVG element; colours come from classes, so that light, dark and print need no redraw. */
function svg(name, attributes = {}, children = []) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function html(name, attributes = {}, children = []) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** The class of report.css that has a method's colour and dashes. */
function styleClass(style) {
  return `style-${style}`;
}

/** A short piece of a method's line, for legends and readings. */
function swatch(style) {
  const line = svg("line", { x1: 1, x2: 23, y1: 5, y2: 5, class: `line ${styleClass(style)}` });
  return svg("svg", { class: "swatch", viewBox: "0 0 24 10", "aria-hidden": "true" }, [line]);
}

/**
 * A panel in `spec`: {title, name, lines: [{name, style, x, mean, half, runs, note}], range,
 * rules: [{label, y}], ticks: [[x, label]] or null, xLabel, yLabel, logY, text: number → string}. With
 * ticks of its own it has a dot and a bar for each value, else lines and bands. `view` is {log, hidden: Set of names}.
 */
class Panel {
  constructor(spec, view) {
    this.spec = spec;
    this.view = view;
    this.cursor = null; // position in x of the value that is read
    this.plot = html("div", {
      class: "plot", tabindex: 0, role: "slider", "aria-orientation": "horizontal",
      "aria-label": `${spec.name}: move with the arrow keys to read values`,
    });
    this.reading = html("div", { class: "reading", hidden: "" });
    this.notes = html("p", { class: "diverged" });
    this.element = html("figure", { class: "panel" }, [
      html("figcaption", {}, [spec.title]), this.plot, this.reading, this.notes,
    ]);
    this.plot.addEventListener("pointermove", (event) => this.point(event));
    this.plot.addEventListener("pointerdown", (event) => this.point(event));
    this.plot.addEventListener("pointerleave", (event) => {
      if (event.pointerType !== "touch") this.read(null); // a lifted finger still wants to read
    });
    this.plot.addEventListener("focus", () => this.read(this.cursor ?? this.positions.length - 1));
    this.plot.addEventListener("blur", () => this.read(null));
    this.plot.addEventListener("keydown", (event) => this.key(event));
    this.describe();
  }

  get lines() {
    return this.spec.lines.filter((line) => !this.view.hidden.has(line.name));
  }

  get positions() {
    return this.spec.lines[0].x;
  }

  /** The ends of the horizontal axis: from 0, which a logarithmic one cannot have. */
  get ends() {
    const x = this.positions;
    const first = this.view.log ? x.find((value) => value > 0) : 0;
    return [this.spec.ticks ? x[0] : first, x[x.length - 1]];
  }

  /** Draw everything anew for the width there is: text keeps its size on every screen. */
  draw() {
    const width = Math.max(this.plot.clientWidth, 160);
    const height = Math.round(Math.min(Math.max(width * 0.66, 150), 260));
    const [low, high] = this.spec.range;
    const [first, last] = this.ends;
    const inset = this.spec.ticks ? 14 : 0; // room for the first and the last dot
    const box = { left: 46, right: width - 12, top: 20, bottom: height - 38 };
    this.box = box;
    this.width = width;
    this.x = makeScale(first, last, box.left + inset, box.right - inset, this.view.log);
    this.y = makeScale(low, high, box.bottom, box.top, this.spec.logY);
    const clip = `clip-${(lastClip += 1)}`;
    const size = { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top };
    this.pointer = svg("g", { class: "cursor" });
    this.plot.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, [
      svg("clipPath", { id: clip }, [svg("rect", size)]),
      ...this.axes(),
      svg("g", { "clip-path": `url(#${clip})` }, [
        ...this.lines.map((line) => this.band(line)).filter(Boolean),
        ...this.rules(),
        ...this.lines.flatMap((line) => this.curve(line)),
      ]),
      ...this.ruleLabels(),
      this.pointer,
    ]));
    this.notes.textContent = this.lines
      .filter((line) => line.note).map((line) => `${line.name}: ${line.note}.`).join(" ");
    this.read(this.cursor);
  }

  axes() {
    const { left, right, top, bottom } = this.box;
    const [low, high] = this.spec.range;
    const [first, last] = this.ends;
    const count = Math.max(2, Math.floor((right - left) / 55));
    const round = this.view.log ? logTicks(first, last, count + 1) : linearTicks(first, last, count);
    const xTicks = this.spec.ticks ?? round.map((tick) => [tick, shortNumber(tick)]);
    const parts = [];
    for (const tick of this.spec.logY ? logTicks(low, high) : linearTicks(low, high, 5)) {
      parts.push(svg("line", { class: "grid", x1: left, x2: right, y1: this.y(tick), y2: this.y(tick) }));
      parts.push(svg("text", { class: "tick end", x: left - 6, y: this.y(tick) + 4 }, [trimmed(tick)]));
    }
    for (const [tick, label] of xTicks) {
      parts.push(svg("line", { class: "axis", x1: this.x(tick), x2: this.x(tick), y1: bottom, y2: bottom + 4 }));
      parts.push(svg("text", { class: "tick middle", x: this.x(tick), y: bottom + 17 }, [label]));
    }
    parts.push(svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
    parts.push(svg("text", { class: "label end", x: right, y: bottom + 33 }, [this.spec.xLabel]));
    parts.push(svg("text", { class: "label", x: 0, y: top - 10 }, [this.spec.yLabel]));
    return parts;
  }

  /** A line by its mean, and its single runs where some of them diverged. */
  curve(line) {
    const colour = styleClass(line.style);
    const drawn = [
      ...line.runs.map((run) => svg("polyline", { class: `run ${colour}`, points: this.points(line.x, run) })),
      svg("polyline", {
        class: `line ${line.thin ? "thin " : ""}${colour}`, points: this.points(line.x, line.mean), "data-method": line.name,
      }),
    ];
    if (!this.spec.ticks) return drawn;
    const bars = line.x.filter(() => line.half).map((x, i) => svg("line", {
      class: `error ${colour}`, x1: this.x(x), x2: this.x(x),
      y1: this.y(line.mean[i] - line.half[i]), y2: this.y(line.mean[i] + line.half[i]),
    }));
    const dots = line.x.map((x, i) => svg("circle", {
      class: `dot ${colour}`, cx: this.x(x), cy: this.y(line.mean[i]), r: 3.5,
    }));
    return [...drawn, ...bars, ...dots];
  }

  band(line) {
    if (!line.half || this.spec.ticks) return null;
    const edge = (sign) => line.mean.map((mean, i) => mean + sign * line.half[i]);
    const back = this.points(line.x, edge(-1)).split(" ").reverse().join(" ");
    return svg("polygon", {
      class: `band ${styleClass(line.style)}`, points: `${this.points(line.x, edge(1))} ${back}`,
    });
  }

  /** Pixels of a line. Values far outside are cut: SVG has no place for 1e300. */
  points(xs, values) {
    const [low, high] = this.spec.range;
    const room = 10 * (high - low);
    const seen = (value) => Math.min(Math.max(value, low - room), high + room);
    return xs.map((x, i) => `${this.x(x).toFixed(2)},${this.y(seen(values[i])).toFixed(2)}`).join(" ");
  }

  rules() {
    const { left, right } = this.box;
    return this.spec.rules.map((rule, i) => svg("line", {
      class: i ? "rule dotted" : "rule", x1: left, x2: right, y1: this.y(rule.y), y2: this.y(rule.y),
    }));
  }

  ruleLabels() {
    return this.spec.rules.map((rule) => svg("text", {
      class: "rule-label end", x: this.box.right - 2, y: this.y(rule.y) - 4,
    }, [rule.label]));
  }

  /** Read at the pointer. A finger covers the panel, so the reading stands below it. */
  point(event) {
    const frame = this.plot.getBoundingClientRect();
    const at = (event.clientX - frame.left) * (this.width / frame.width);
    const pixels = this.positions.map((x) => this.x(x));
    this.read(nearestIndex(pixels, at));
  }

  key(event) {
    const last = this.positions.length - 1;
    const at = this.cursor ?? last;
    const wide = Math.max(1, Math.round(last / 10));
    const moves = {
      ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1,
      PageDown: at - wide, PageUp: at + wide, Home: 0, End: last,
    };
    if (event.key === "Escape") this.read(null);
    if (!(event.key in moves)) return;
    event.preventDefault(); // the page must not scroll meanwhile
    this.read(Math.min(Math.max(moves[event.key], 0), last));
  }

  /** Show the values of all lines at a position, or nothing. */
  read(position) {
    this.cursor = position;
    this.pointer.replaceChildren();
    this.reading.hidden = position === null;
    this.describe();
    if (position === null) return;
    const x = this.positions[position];
    const { top, bottom } = this.box;
    const values = this.valuesAt(x);
    this.pointer.append(
      svg("line", { x1: this.x(x), x2: this.x(x), y1: top, y2: bottom }),
      ...values
        .filter(({ mean }) => mean >= this.spec.range[0] && mean <= this.spec.range[1])
        .map(({ line, mean }) => svg("circle", {
          class: `dot ${styleClass(line.style)}`, cx: this.x(x), cy: this.y(mean), r: 4,
        })),
    );
    this.reading.replaceChildren(
      html("strong", {}, [this.positionText(x)]),
      html("dl", {}, values.map(({ line, text }) => html("div", { "data-method": line.name }, [
        html("dt", {}, [swatch(line.style), line.name]), html("dd", {}, [text]),
      ]))),
    );
  }

  valuesAt(x) {
    const { text } = this.spec;
    return this.lines.map((line) => {
      const i = nearestIndex(line.x, x);
      const spread = line.half?.[i] ? ` ± ${text(line.half[i])}` : "";
      return { line, mean: line.mean[i], text: text(line.mean[i]) + spread };
    });
  }

  /** Where a value is read, in words. */
  positionText(x) {
    if (!this.spec.ticks) return `${longNumber(x)} ${this.spec.xLabel}`;
    const [, label] = this.spec.ticks.find(([tick]) => tick === x);
    return `${this.spec.xLabel}: ${label}`;
  }

  /** The same for a reader who listens. */
  describe() {
    const last = this.positions.length - 1;
    const at = this.cursor ?? last;
    const values = this.valuesAt(this.positions[at]).map(({ line, text }) => `${line.name} ${text}`);
    this.plot.setAttribute("aria-valuemin", 0);
    this.plot.setAttribute("aria-valuemax", last);
    this.plot.setAttribute("aria-valuenow", at);
    this.plot.setAttribute("aria-valuetext", `${this.positionText(this.positions[at])}: ${values.join(", ")}`);
  }
}
