// The cells of a strip: neighbours of one colour are one cell, and what is not late is left out.
import type { Heat } from "../../api/types"

export const LEVELS = 8

export interface Cell {
  at: number
  width: number
  /** From 1; 0 is not drawn. */
  level: number
  /** The latest in it, and its slowest rank. */
  late: number
  rank: number | null
}

export function cells(host: Heat["hosts"][number], high: number): Cell[] {
  const found: Cell[] = []
  host.late_ns.forEach((late, at) => {
    const level = late === null || late <= 0 ? 0 : Math.min(LEVELS, Math.floor((late / high) * LEVELS))
    const rank = host.rank[at] ?? null
    const before = found.at(-1)
    if (before && before.level === level && before.at + before.width === at) {
      before.width += 1
      if ((late ?? 0) > before.late) Object.assign(before, { late, rank })
    } else found.push({ at, width: 1, level, late: late ?? 0, rank })
  })
  return found.filter(one => one.level > 0)
}
