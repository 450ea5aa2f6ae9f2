// Which runs are listed, and in which order: plain functions over what the server says.
import type { RunRow } from "../../api/types"
import { numeric } from "../../app/units"

export type SortKey =
  | "started"
  | "name"
  | "verdict"
  | "ended"
  | "steps"
  | "median_step_ns"
  | "steps_per_s"
  | "last_loss"
  | "duration_ns"
  | "size"

const WEIGHT: Record<string, number> = { critical: 3, warn: 2, info: 1 }

/** The runs that have every word that is asked for, in their name, id, verdict, end, commit or tags. */
export function filtered(runs: RunRow[], text: string): RunRow[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  if (!words.length) return runs
  return runs.filter(run => {
    const all = [run.name, run.id, run.verdict ?? "", run.state, run.ended, run.commit ?? "", ...run.tags]
      .join(" ")
      .toLowerCase()
    return words.every(word => all.includes(word))
  })
}

/** The runs in an order. What is not known stands last, whatever the direction. */
export function sorted(runs: RunRow[], by: SortKey, order: "asc" | "desc"): RunRow[] {
  const sign = order === "asc" ? 1 : -1
  return [...runs].sort((a, b) => {
    const [left, right] = [value(a, by), value(b, by)]
    if (left === null || right === null) return left === right ? 0 : left === null ? 1 : -1
    return left < right ? -sign : left > right ? sign : 0
  })
}

function value(run: RunRow, by: SortKey): number | string | null {
  if (by === "verdict") return run.severity === null ? null : (WEIGHT[run.severity] ?? 0)
  if (by === "last_loss") return run.last_loss === null ? null : numeric(run.last_loss)
  if (by === "name") return run.name.toLowerCase()
  return run[by]
}

/** Two runs at most are chosen; a third takes the place of the older choice. */
export function toggled(chosen: string[], id: string): string[] {
  return chosen.includes(id) ? chosen.filter(one => one !== id) : [...chosen, id].slice(-2)
}
