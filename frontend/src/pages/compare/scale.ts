// Where a value stands on the axis of a small plot: shares of its width, as plain functions.

export interface Scale {
  /** From 0 to 1; what lies outside stands at the edge. */
  at: (value: number) => number
  ticks: number[]
}

const WIDEST = 8 // a ratio beyond this stands at the edge
const RATIOS = [0.125, 0.25, 0.5, 0.8, 0.9, 1, 1.1, 1.25, 2, 4, 8]
const CLOSE = 0.13 // of the width: labels nearer to each other cannot be read

/** A logarithmic axis of ratios: 1 in the middle, and as far as the intervals reach. */
export function ratios(values: (number | null)[]): Scale {
  const far = values.reduce<number>(
    (most, value) => (value === null || value <= 0 ? most : Math.max(most, Math.abs(Math.log(value)))),
    Math.log(1.06),
  )
  const reach = Math.min(far * 1.08, Math.log(WIDEST))
  const at = (value: number) => clamp(0.5 + Math.log(Math.max(value, 1e-9)) / (2 * reach))
  const inside = RATIOS.filter(one => Math.abs(Math.log(one)) <= reach)
  return { at, ticks: inside.filter(one => one === 1 || Math.abs(at(one) - 0.5) > CLOSE) }
}

/** A linear axis of differences: 0 in the middle. */
export function differences(values: (number | null)[]): Scale {
  const far = values.reduce<number>((most, value) => Math.max(most, Math.abs(value ?? 0)), 0) || 1
  return { at: value => clamp(0.5 + value / (2 * far * 1.05)), ticks: [0] }
}

const clamp = (share: number) => Math.min(Math.max(share, 0), 1)
