/** Effects as pictures: an interval on an axis, and a curve with its band. */

import { svg } from "../dom";
import { short } from "./parts";
import type { Driver, Effect } from "./api";

/** Round numbers between two ends, for an axis. */
export function ticks(low: number, high: number, most = 6): number[] {
  const span = high - low || Math.abs(high) || 1;
  const rough = span / Math.max(most - 1, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) ?? 10 * power;
  const found: number[] = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return found;
}

/** The mean and its 90 % interval beside zero. */
export function interval(effect: Effect): SVGElement {
  const [mean, low, high] = [effect.mean ?? 0, effect.low ?? 0, effect.high ?? 0];
  const margin = 0.08 * (Math.max(high, 0) - Math.min(low, 0) || 1);
  const [from, to] = [Math.min(low, 0) - margin, Math.max(high, 0) + margin];
  const [width, height] = [560, 84];
  const x = (value: number): number => 20 + ((value - from) / (to - from)) * (width - 40);
  const unit = effect.unit ? ` ${effect.unit}` : "";
  const words = `${short(mean)}${unit}, 90 % interval ${short(low)} to ${short(high)}`;
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": words },
    svg("line", { x1: x(from), x2: x(to), y1: 50, y2: 50, class: "axis" }),
    ticks(from, to).map((at) => [
      svg("line", { x1: x(at), x2: x(at), y1: 46, y2: 54, class: "axis" }),
      svg("text", { x: x(at), y: 68, "text-anchor": "middle" }, short(at)),
    ]).flat(),
    svg("line", { x1: x(0), x2: x(0), y1: 8, y2: 50, class: "zero" }),
    svg("line", { x1: x(low), x2: x(high), y1: 24, y2: 24, class: "range" }),
    svg("circle", { cx: x(mean), cy: 24, r: 5, class: "mean" }),
    svg("text", { x: width - 20, y: 82, "text-anchor": "end", class: "axis-name" }, `change of ${clip(effect.measure ?? effect.outcome)}${effect.unit ? `, ${effect.unit}` : ""}`),
  );
}

/** The effects of several causes on one axis, the largest first. */
export function forest(drivers: Driver[], target: string): SVGElement {
  const ends = drivers.flatMap((one) => [one.low ?? 0, one.high ?? 0]);
  // A ratio of one is no change, where others have zero.
  const still = drivers[0]?.unit === "times" ? 1 : 0;
  const margin = 0.06 * (Math.max(...ends, still) - Math.min(...ends, still) || 1);
  const [from, to] = [Math.min(...ends, still) - margin, Math.max(...ends, still) + margin];
  const [width, step, left] = [640, 26, 190];
  const height = step * drivers.length + 44;
  const x = (value: number): number => left + ((value - from) / (to - from)) * (width - left - 20);
  const base = step * drivers.length + 8;
  const unit = drivers[0]?.unit ? `, ${drivers[0].unit}` : "";
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": `Effects on ${target} with 90 % intervals; the table below has the same numbers` },
    svg("line", { x1: x(still), x2: x(still), y1: 0, y2: base, class: "zero" }),
    drivers
      .map((one, k) => {
        const y = step * (k + 0.6);
        return [
          svg("text", { x: left - 10, y: y + 4, "text-anchor": "end", class: "axis-name" }, clip(one.driver, 24)),
          svg("line", { x1: x(one.low ?? 0), x2: x(one.high ?? 0), y1: y, y2: y, class: "range" }),
          svg("circle", { cx: x(one.effect ?? 0), cy: y, r: 5, class: "mean" }),
        ];
      })
      .flat(),
    svg("line", { x1: left, x2: width - 20, y1: base, y2: base, class: "axis" }),
    ticks(from, to).map((at) => svg("text", { x: x(at), y: base + 16, "text-anchor": "middle" }, short(at))),
    svg("text", { x: width - 20, y: base + 32, "text-anchor": "end", class: "axis-name" }, `change of ${clip(drivers[0]?.measure ?? target)}${unit}`),
  );
}

/** The expected outcome when the cause is set to x; or how much it changes so many steps later. */
export function curve(effect: Effect): SVGElement {
  const points = effect.curve ?? [];
  const [width, height, left, bottom] = [560, 300, 62, 46];
  const { later } = effect;
  const ys = points.flatMap((point) => [point.low, point.high]).concat(later ? [0] : []);
  const [x0, x1, y0, y1] = [points[0]!.x, points[points.length - 1]!.x, Math.min(...ys), Math.max(...ys)];
  const x = (value: number): number => left + ((value - x0) / (x1 - x0 || 1)) * (width - left - 14);
  const y = (value: number): number => height - bottom - ((value - y0) / (y1 - y0 || 1)) * (height - bottom - 14);
  const line = (pairs: [number, number][]): string => pairs.map(([a, b], k) => `${k ? "L" : "M"}${x(a).toFixed(1)},${y(b).toFixed(1)}`).join("");
  const band = line([...points.map((p): [number, number] => [p.x, p.low]), ...points.toReversed().map((p): [number, number] => [p.x, p.high])]);
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": later ? `Change of ${effect.outcome} ${short(x0)} to ${short(x1)} ${later} after ${effect.cause} was one unit higher` : `Expected ${effect.outcome} when ${effect.cause} is set to values from ${short(x0)} to ${short(x1)}` },
    later && svg("line", { x1: left, x2: width - 14, y1: y(0), y2: y(0), class: "zero" }),
    svg("path", { d: `${band}Z`, class: "band" }),
    svg("path", { d: line(points.map((p): [number, number] => [p.x, p.mean])), class: "curve" }),
    svg("line", { x1: left, x2: width - 14, y1: height - bottom, y2: height - bottom, class: "axis" }),
    svg("line", { x1: left, x2: left, y1: 14, y2: height - bottom, class: "axis" }),
    ticks(x0, x1).map((at) => svg("text", { x: x(at), y: height - bottom + 16, "text-anchor": "middle" }, short(at))),
    ticks(y0, y1).map((at) => svg("text", { x: left - 6, y: y(at) + 4, "text-anchor": "end" }, short(at))),
    svg("text", { x: (width + left) / 2, y: height - 8, "text-anchor": "middle", class: "axis-name" }, later ? `${later} after ${clip(effect.cause)} was one unit higher` : `${clip(effect.cause)} is set to`),
    svg("text", { x: left, y: 10, "text-anchor": "start", class: "axis-name" }, `${later ? "change of" : "expected"} ${clip(effect.outcome)}`),
  );
}

function clip(name: string, most = 46): string {
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}
