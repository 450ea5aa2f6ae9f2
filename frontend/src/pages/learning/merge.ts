// Lines that were measured at different times, on one axis.
import type { Drawing } from "../../api/types"

/** All times, and for each line its values there; null where it has none. */
export function merged(lines: Drawing["lines"]): { x: number[]; y: (number | null)[][] } {
  const x = [...new Set(lines.flatMap(one => one.x))].sort((a, b) => a - b)
  const places = new Map(x.map((time, at) => [time, at]))
  const y = lines.map(one => {
    const values: (number | null)[] = x.map(() => null)
    one.x.forEach((time, at) => {
      values[places.get(time) as number] = one.y[at] ?? null
    })
    return values
  })
  return { x, y }
}
