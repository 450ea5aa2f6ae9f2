// A window on an axis: panned, zoomed, and kept inside the whole.

export type Range = readonly [number, number]

/** A range inside the whole, at least one unit wide, in whole units. Null: it is the whole. */
export function inside(range: Range, whole: Range): Range | null {
  const low = Math.round(Math.min(range[0], range[1]))
  const high = Math.round(Math.max(range[0], range[1]))
  const from = Math.max(whole[0], Math.min(low, whole[1] - 1))
  const to = Math.min(whole[1], Math.max(high, from + 1))
  return from <= whole[0] && to >= whole[1] ? null : [from, to]
}

/** Moved by a part of its width; it stops at the ends and keeps its width. */
export function panned(range: Range, whole: Range, part: number): Range | null {
  const width = range[1] - range[0]
  const by = Math.max(whole[0] - range[0], Math.min(whole[1] - range[1], width * part))
  return inside([range[0] + by, range[1] + by], whole)
}

/** `factor` below 1 looks closer, around a place. */
export function zoomed(range: Range, whole: Range, factor: number, around = (range[0] + range[1]) / 2): Range | null {
  return inside([around - (around - range[0]) * factor, around + (range[1] - around) * factor], whole)
}
