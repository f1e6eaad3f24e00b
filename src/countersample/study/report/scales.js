"use strict";

// Scales, ticks and numbers: no part of this file touches the page.

/** A map from [low, high] to pixels [from, to]; a logarithmic one has all values up to low at from. */
function makeScale(low, high, from, to, log = false) {
  const forward = log ? (value) => Math.log10(Math.max(value, low)) : (value) => value;
  const start = forward(low);
  const span = forward(high) - start || 1; // one value alone: everything lands on `from`
  return (value) => from + ((forward(value) - start) / span) * (to - from);
}

/** At most about `count` round values (steps of 1, 2, 2.5 or 5 times a power of ten) within [low, high]. */
function linearTicks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const ticks = [];
  // Counting in whole steps keeps 0.1 + 0.2 out of the labels.
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n += 1) {
    ticks.push(Number((n * step).toPrecision(12)));
  }
  return ticks;
}

/**
 * At most `most` round values within [low, high]: 1, 2 and 5 times powers of ten, 1 and 3 times, powers of ten, or
 * every second, third … of them; evenly spaced ones where the axis is too short for two of these.
 */
function logTicks(low, high, most = 5) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const rows = [[[1, 2, 5], 1], [[1, 3], 1]];
  for (let every = 1; every <= last - first + 1; every += 1) rows.push([[1], every]);
  for (const [factors, every] of rows) {
    const ticks = [];
    for (let power = Math.floor(first / every) * every; power <= last; power += every) {
      for (const factor of factors) {
        const tick = Number((factor * 10 ** power).toPrecision(12));
        if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) ticks.push(tick);
      }
    }
    if (ticks.length < 2) break;
    if (ticks.length <= most) return ticks;
  }
  return linearTicks(low, high, most - 1);
}

/** A short number for an axis: 5M, 20k, 0.75. */
function shortNumber(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${trimmed(value / 1e6)}M`;
  if (size >= 1e3) return `${trimmed(value / 1e3)}k`;
  return trimmed(value);
}

function trimmed(value) {
  return withMinus(String(Number(value.toPrecision(6))));
}

/** A whole number as it is read: 1,250,000; others as they are. */
function longNumber(value) {
  return withMinus(value.toLocaleString("en-US", { maximumFractionDigits: 6 }));
}

/** A number with so many decimals. */
function fixedNumber(value, digits) {
  return withMinus(value.toFixed(digits));
}

function withMinus(text) {
  return text.replace("-", "−");
}

/** The position of the value of a sorted list that is nearest to `wanted`. */
function nearestIndex(sorted, wanted) {
  let low = 0;
  let high = sorted.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= wanted) low = middle;
    else high = middle;
  }
  return wanted - sorted[low] <= sorted[high] - wanted ? low : high;
}
