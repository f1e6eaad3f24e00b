// The curves of a study: a legend and an axis switch over rows of panels.

/** Build the curves of one study into `host`. */
function showCurves(host, data) {
  const view = { log: false, hidden: new Set() };
  const panels = data.rows.flatMap((row) => row.panels.map((panel) =>
    new Panel({
      ...panel, lines: named(panel.lines, data.methods), range: row.range, rules: row.rules,
      name: `${row.title}, ${panel.title}`, xLabel: "clicks drawn", yLabel: "nDCG@10", ticks: null,
      text: (ndcg) => fixedNumber(ndcg, 4),
    }, view)));
  const all = [...panels];
  const redraw = () => all.forEach((panel) => panel.draw());
  host.append(
    html("div", { class: "controls" }, [legend(data.methods, view, redraw), axisSwitch(view, redraw)]),
  );
  let next = 0;
  for (const row of data.rows) {
    const own = panels.slice(next, (next += row.panels.length));
    host.append(html("h3", {}, [row.title]), panelGrid(own));
  }
  host.append(html("p", { class: "small" }, [
    "nDCG@10 on held-out queries, mean over runs; the band is its 95 % interval. w* was trained on all "
    + "labels. Runs that diverged count with nDCG 0 from there on.",
  ]));
  if (data.versus) all.push(...showVersus(host, data, view));
  if (data.lead) all.push(...showLead(host, data.lead, view));
  onResize(host, redraw);
}

/** The lead of one method over another, against clicks drawn: rows of panels as above, on the same axis. */
function showLead(host, lead, shared) {
  const view = {
    get log() {
      return shared.log;
    },
    hidden: new Set(), // it belongs to two methods: it is shown whichever are
  };
  host.append(html("h3", {}, [lead.title]));
  const made = [];
  for (const row of lead.rows) {
    const own = row.panels.map((panel) => new Panel({
      ...panel, title: `${row.title}, ${panel.title}`, lines: named(panel.lines, lead.methods), range: row.range,
      rules: [{ label: "no lead", y: 0 }], name: `${row.title}, ${panel.title}, lead`, xLabel: "clicks drawn",
      yLabel: "lead, regret × 100", ticks: null, text: (value) => fixedNumber(value, 2),
    }, view));
    host.append(panelGrid(own));
    made.push(...own);
  }
  host.append(html("p", { class: "small" }, [
    "The difference of both methods’ average regret up to there, mean over runs, with its 95 % interval, at the "
    + "learning rates that were chosen for whole runs. Below 0 the other method is ahead.",
  ]));
  return made;
}

/** Regret against a numeric setting, a panel a dataset; the methods' switches are those above. */
function showVersus(host, data, shared) {
  const { axis, log, ticks, panels } = data.versus;
  const view = { log, hidden: shared.hidden };
  const made = panels.map((panel) => new Panel({
    ...panel, lines: named(panel.lines, data.methods), rules: [], name: `${panel.title}, regret`,
    xLabel: axis, yLabel: "regret × 100", ticks,
    text: (regret) => fixedNumber(regret, 2),
  }, view));
  host.append(html("h3", {}, [`Regret by ${axis.charAt(0).toLowerCase()}${axis.slice(1)}`]), panelGrid(made));
  return made;
}

/** Lines come in the order of the methods. */
function named(lines, methods) {
  return lines.map((line, i) => ({ ...line, ...methods[i] }));
}

/** Rows of equal length look better than one panel left over. */
function panelGrid(panels) {
  const columns = panels.length <= 4 ? panels.length : Math.ceil(panels.length / 2);
  const grid = html("div", { class: `panels columns-${Math.min(columns, 4)}` });
  grid.append(...panels.map((panel) => panel.element));
  return grid;
}

function legend(methods, view, redraw) {
  const group = html("div", { class: "legend", role: "group", "aria-label": "Methods shown" });
  for (const method of methods) {
    const button = html("button", { type: "button", "aria-pressed": "true" }, [swatch(method.style), method.name]);
    button.addEventListener("click", () => {
      const shown = view.hidden.delete(method.name);
      if (!shown) view.hidden.add(method.name);
      button.setAttribute("aria-pressed", String(shown));
      redraw();
    });
    group.append(button);
  }
  return group;
}

function axisSwitch(view, redraw) {
  const group = html("div", { class: "switch", role: "group", "aria-label": "Horizontal axis" });
  for (const [label, log] of [["linear", false], ["log", true]]) {
    const button = html("button", { type: "button", "aria-pressed": String(view.log === log) }, [label]);
    button.addEventListener("click", () => {
      view.log = log;
      for (const other of group.children) other.setAttribute("aria-pressed", String(other === button));
      redraw();
    });
    group.append(button);
  }
  return group;
}

/** Call `redraw` once now and whenever the width of `element` changes. */
function onResize(element, redraw) {
  let width = null;
  new ResizeObserver(() => {
    if (element.clientWidth === width) return; // heights change with every drawing
    width = element.clientWidth;
    redraw();
  }).observe(element);
}
