// The places of calls in a flame graph: each above what it called, as wide as its time.
import type { Call } from "../../api/types"

export interface Box {
  call: Call
  /** Places of the calls that lead to it, from the whole: `0.2`. */
  path: string
  phase: string
  /** Shares of the whole width. */
  left: number
  width: number
  level: number
}

/** A call by its path, and those that lead to it, the whole first; the whole alone if it is not there. */
export function way(whole: Call, path: string | undefined): Call[] {
  const found = [whole]
  for (const place of path ? path.split(".") : []) {
    const next = (found.at(-1) as Call).calls[Number(place)]
    if (!next) return [whole]
    found.push(next)
  }
  return found
}

const NARROW = 0.0008 // of the width: what is narrower cannot be seen

/** A call and all that it called, from the top; calls beside each other by their time. */
export function boxes(whole: Call, path: string | undefined): Box[] {
  const calls = way(whole, path)
  const root = calls.at(-1) as Call
  const found: Box[] = []
  const add = (call: Call, at: string, phase: string, left: number, level: number) => {
    const width = call.dur_ns / (root.dur_ns || 1)
    if (width < NARROW) return
    if (at) found.push({ call, path: at, phase, left, width, level })
    const inside = call.calls.map((one, place) => ({ one, place })).sort((a, b) => b.one.dur_ns - a.one.dur_ns)
    let next = left
    for (const { one, place } of inside) {
      add(one, at ? `${at}.${place}` : String(place), at ? phase : one.name, next, at ? level + 1 : level)
      next += one.dur_ns / (root.dur_ns || 1)
    }
  }
  const start = calls.length > 1 ? (path as string) : ""
  add(root, start, calls[1]?.name ?? "", 0, 0)
  return found
}
