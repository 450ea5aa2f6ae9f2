// Rows that come as lists, as objects with the names of their columns.
import type { Rows } from "./types"

export function records<Row>(found: Rows): Row[] {
  return found.rows.map(row => Object.fromEntries(found.columns.map((name, at) => [name, row[at]])) as Row)
}
