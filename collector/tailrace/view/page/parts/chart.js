// Rates as lines: uPlot in our colours and type.

import uPlot from "../vendor/uplot.js";
import { colours, font, lineColour, onChange } from "./theme.js";
import { short } from "./text.js";

/**
 * A chart of series in an element. `set(x, ys)` shows values; null leaves a hole. `last` is how many seconds it shows at
 * least; without it, it shows all.
 */
export class Lines {
  constructor(element, { labels, title, seconds = true, legend = labels.length > 1, last = 0 }) {
    this._element = element;
    this._labels = labels;
    this._title = title;
    this._seconds = seconds;
    this._legend = legend;
    this._last = last;
    this._data = [[], ...labels.map(() => [])];
    this._size = new ResizeObserver(() => this._resize());
    this._size.observe(element);
    this._stop = onChange(() => this._draw());
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", title);
    this._draw();
  }

  set(x, ys) {
    this._data = [x, ...ys];
    this._plot?.setData(this._data);
  }

  close() {
    this._stop();
    this._size.disconnect();
    this._plot?.destroy();
  }

  _draw() {
    this._plot?.destroy();
    const { soft, line } = colours();
    const axis = { stroke: soft, font: font(11.5), grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 } };
    this._plot = new uPlot({
      ...this._room(),
      legend: { show: this._legend },
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      cursor: { points: { size: 6 } },
      scales: { x: { time: this._seconds, range: (_, low, high) => [this._last ? high - this._last : low, high] }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.1 : 1] } },
      axes: [{ ...axis, space: 76, ...(this._seconds ? { values: timesOfDay } : {}) }, { ...axis, size: 58, values: (_, values) => values.map(short) }],
      series: [{ label: "time" }, ...this._labels.map((label, index) => ({
        label,
        stroke: colours()[lineColour(index)],
        width: 1.75,
        points: { show: false },
        value: (_, value) => (value === null ? "–" : `${short(value)}`),
      }))],
    }, this._data, this._element);
  }

  _room() {
    const legend = this._legend ? 34 : 0;
    return { width: Math.max(120, this._element.clientWidth - 16), height: Math.max(90, this._element.clientHeight - legend - 12) };
  }

  _resize() {
    const { width, height } = this._room();
    if (this._plot && (this._plot.width !== width || this._plot.height !== height)) this._plot.setSize({ width, height });
  }
}

/** Return labels of Unix seconds: times of day, or dates where these are further apart. */
function timesOfDay(_, seconds) {
  const apart = seconds.length > 1 ? seconds[1] - seconds[0] : 1;
  return seconds.map((each) => {
    const text = new Date(each * 1000).toISOString();
    if (apart >= 86_400) return text.slice(0, 10);
    return apart >= 1 ? text.slice(11, 19) : text.slice(17, 23);
  });
}

/** Draw a small line of values on a canvas: its height is the largest of them. */
export function spark(canvas, values, colour = "accent") {
  const ratio = devicePixelRatio;
  const width = canvas.clientWidth || 120;
  const height = canvas.clientHeight || 28;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const most = Math.max(...values, 0);
  const step = width / Math.max(1, values.length - 1);
  const y = (value) => height - 2 - (most > 0 ? (value / most) * (height - 5) : 0);
  pen.beginPath();
  values.forEach((value, index) => pen.lineTo(index * step, y(value)));
  pen.strokeStyle = colours()[colour];
  pen.lineWidth = 1.5;
  pen.stroke();
  pen.lineTo(width, height);
  pen.lineTo(0, height);
  pen.fillStyle = colours()[colour];
  pen.globalAlpha = 0.12;
  pen.fill();
}
