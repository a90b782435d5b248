// Shows any part of a timeline and names what is pointed at. Without it the page has the picture of the whole.
"use strict";
for (const figure of document.querySelectorAll("figure.timeline")) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const lanes = data.lanes.map((lane) => {
    const count = lane.stretches.length / 5, from = new Float64Array(count), to = new Float64Array(count);
    let at = data.from;
    for (let i = 0; i < count; i++) {
      from[i] = at + lane.stretches[5 * i];
      at = to[i] = from[i] + lane.stretches[5 * i + 1];
    }
    return { label: lane.label, count, from, to, of: (i, what) => lane.stretches[5 * i + what] };
  });
  const [BOX, HATCHED, CROSSED] = [0, 1, 2], LANE = 22, AXIS = 24;
  const element = (name, text) => {
    const made = document.createElement(name);
    if (text) made.textContent = text;
    return made;
  };
  const tools = element("div"), canvas = element("canvas"), told = element("output");
  tools.className = "tools";
  told.textContent = "Point at a stretch, or tap it, to read what it is.";
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", figure.querySelector("figcaption").textContent + ". The keys + and - zoom, the arrows move.");
  figure.append(tools, canvas, told);
  figure.classList.add("live");
  let from = data.from, to = Math.max(data.to, data.from + 1), picked = null;

  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const time = (ns, span) => {
    const [size, unit] = units.find(([size]) => span >= size) || units[3];
    const digits = Math.max(0, Math.min(6, 3 - Math.floor(Math.log10(span / size))));
    return (ns / size).toFixed(size === 1 ? 0 : digits) + " " + unit;
  };
  const length = (ns) => time(ns, Math.max(ns, 1));

  const pattern = (crossed) => {
    const tile = element("canvas");
    tile.width = tile.height = 6;
    const pen = tile.getContext("2d");
    pen.strokeStyle = crossed ? "#000" : "#444";
    pen.beginPath();
    pen.moveTo(0, 6); pen.lineTo(6, 0);
    if (crossed) { pen.moveTo(0, 0); pen.lineTo(6, 6); }
    pen.stroke();
    return pen.createPattern(tile, "repeat");
  };
  const hatched = pattern(false), crossed = pattern(true);
  const labels = () => Math.min(130, canvas.clientWidth / 4);
  const place = (ns, wide) => labels() + (ns - from) / (to - from) * (wide - labels());

  // The first stretch of a lane that ends behind a time.
  const behind = (lane, ns) => {
    let low = 0, high = lane.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (lane.to[middle] > ns) high = middle; else low = middle + 1;
    }
    return low;
  };

  const draw = () => {
    const wide = figure.clientWidth, high = lanes.length * LANE + AXIS, dots = window.devicePixelRatio || 1;
    canvas.style.width = wide + "px";
    canvas.style.height = high + "px";
    canvas.width = Math.round(wide * dots);
    canvas.height = Math.round(high * dots);
    const pen = canvas.getContext("2d");
    pen.scale(dots, dots);
    pen.font = "11px system-ui, sans-serif";
    lanes.forEach((lane, nr) => {
      const top = nr * LANE;
      pen.strokeStyle = "#ddd";
      pen.beginPath(); pen.moveTo(labels(), top + LANE - 0.5); pen.lineTo(wide, top + LANE - 0.5); pen.stroke();
      let drawn = -1;
      for (let i = behind(lane, from); i < lane.count && lane.from[i] < to; i++) {
        const left = Math.max(place(lane.from[i], wide), labels()), right = Math.min(place(lane.to[i], wide), wide);
        // Of several on one dot the first.
        if (right - left < 0.5 && left < drawn) continue;
        drawn = Math.max(right, left + 0.5);
        const mark = data.kinds[lane.of(i, 2)][0], width = Math.max(right - left, 0.5);
        if (mark === BOX) pen.fillStyle = `hsl(${lane.of(i, 3) * 137 % 360} 60% 78%)`;
        else if (mark === HATCHED) pen.fillStyle = hatched;
        else if (mark === CROSSED) pen.fillStyle = crossed;
        if (mark <= CROSSED) pen.fillRect(left, top + 2, width, LANE - 4);
        else { pen.fillStyle = "#888"; pen.fillRect(left, top + LANE / 2 - 0.5, width, 1); }
        if (mark === HATCHED || picked && picked[0] === nr && picked[1] === i) {
          pen.strokeStyle = picked && picked[0] === nr && picked[1] === i ? "#000" : "#444";
          pen.strokeRect(left + 0.5, top + 2.5, Math.max(width - 1, 0.5), LANE - 5);
        }
        const fits = Math.floor(width / 6.6);
        if (mark === BOX && fits >= 3 && !lane.of(i, 4)) {
          const name = data.names[lane.of(i, 3)];
          pen.fillStyle = "#000";
          pen.fillText(name.length < fits ? name : name.slice(0, fits - 2) + "…", left + 2, top + LANE - 7);
        }
      }
      pen.fillStyle = "#000";
      pen.fillText(lane.label, 0, top + LANE - 7, labels() - 4);
    });
    const ticks = Math.max(2, Math.floor((wide - labels()) / 130)), bottom = lanes.length * LANE;
    pen.fillStyle = "#000";
    for (let tick = 0; tick <= ticks; tick++) {
      const at = labels() + tick / ticks * (wide - labels());
      pen.textAlign = tick === 0 ? "left" : tick === ticks ? "right" : "center";
      pen.fillRect(Math.min(at, wide - 1), bottom, 1, 5);
      pen.fillText(time(from + tick / ticks * (to - from), to - from), at, bottom + 17);
    }
    pen.textAlign = "left";
  };

  const show = (first, last) => {
    const least = 100, all = data.to - data.from;
    let span = Math.min(Math.max(last - first, Math.min(least, all)), all);
    from = Math.min(Math.max(first, data.from), data.to - span);
    to = from + span;
    draw();
  };
  const zoom = (factor, around) => {
    const at = around === undefined ? (from + to) / 2 : around;
    show(at - (at - from) * factor, at + (to - at) * factor);
  };
  const move = (part) => show(from + part * (to - from), to + part * (to - from));
  const actions = [["Zoom in", () => zoom(0.5)], ["Zoom out", () => zoom(2)], ["Earlier", () => move(-0.5)],
    ["Later", () => move(0.5)], ["All", () => show(data.from, data.to)]];
  for (const [name, action] of actions) {
    const button = element("button", name);
    button.type = "button";
    button.addEventListener("click", action);
    tools.append(button);
  }
  canvas.addEventListener("keydown", (event) => {
    const keys = { "+": 0, "=": 0, "-": 1, ArrowLeft: 2, ArrowRight: 3, "0": 4 };
    if (event.key in keys) { actions[keys[event.key]][1](); event.preventDefault(); }
  });
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [from + (event.clientX - box.left - labels()) / (box.width - labels()) * (to - from),
      Math.floor((event.clientY - box.top) / LANE)];
  };
  // Together with a key, so that the page scrolls as elsewhere.
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey) return;
    zoom((event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8, at(event)[0]);
    event.preventDefault();
  }, { passive: false });
  const point = (event) => {
    const [ns, nr] = at(event), lane = lanes[nr], slack = (to - from) / canvas.clientWidth;
    if (!lane || ns < from) return;
    const i = behind(lane, ns - slack);
    if (i >= lane.count || lane.from[i] > ns + slack) {
      told.textContent = `${lane.label}, ${time(ns, to - from)}: nothing.`;
      picked = null;
    } else {
      const [, words] = data.kinds[lane.of(i, 2)], more = lane.of(i, 4);
      told.textContent = `${lane.label}, ${time(lane.from[i], data.to - data.from)}, for ${length(lane.to[i] - lane.from[i])}: `
        + `${words} ${data.names[lane.of(i, 3)]}`.trim() + (more ? ` for the most part; ${more} shorter ones are merged with it.` : ".");
      picked = [nr, i];
    }
    draw();
  };
  let dragged = null;
  canvas.addEventListener("pointerdown", (event) => { dragged = [event.clientX, from, to]; point(event); });
  canvas.addEventListener("pointermove", (event) => {
    if (dragged && event.buttons && event.pointerType === "mouse") {
      const by = (event.clientX - dragged[0]) / (canvas.clientWidth - labels()) * (dragged[2] - dragged[1]);
      show(dragged[1] - by, dragged[2] - by);
    } else if (event.pointerType === "mouse") point(event);
  });
  canvas.addEventListener("pointerup", () => { dragged = null; });
  window.addEventListener("resize", draw);
  draw();
}
