// What an answer of SQL is drawn as: plain functions over its columns and rows.
import type { SqlAnswer, SqlColumn } from "../../api/types"
import { brief, count, duration, numeric, share, size } from "../../app/units"

const NUMBERS = /^(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DOUBLE|FLOAT|REAL|DECIMAL.*)$/

export const isNumber = (column: SqlColumn): boolean => NUMBERS.test(column.type)

/** A value as its column says what it is. */
export function written(column: SqlColumn, value: unknown): string {
  if (value === null || value === undefined) return "null"
  if (typeof value === "object") return JSON.stringify(value)
  if (!isNumber(column)) return String(value)
  const known = numeric(value as number)
  if (/(^|_)ns$/.test(column.name)) return duration(known)
  if (/(^|_)bytes$/.test(column.name)) return size(known)
  if (/(^|_)share$/.test(column.name)) return share(known)
  return Number.isInteger(known) && Math.abs(known) < 1e6 ? plain(column, known) : brief(known)
}

/** Steps, indices and ids as one writes them; what is counted, in groups of three. */
function plain(column: SqlColumn, value: number): string {
  return /count|calls|loads|samples/.test(column.name) ? count(value) : String(value)
}

export interface Drawn {
  kind: "lines" | "bars"
  x: SqlColumn
  y: SqlColumn[]
}

const MOST_LINES = 8

/** How an answer is drawn: along its first column, or along the one that is chosen. Null: it has nothing to draw. */
export function drawn(columns: SqlColumn[], alongName: string | undefined, shown: string[]): Drawn | null {
  const x = columns.find(one => one.name === alongName) ?? columns[0]
  const others = columns.filter(one => one !== x && isNumber(one))
  const y = others.filter(one => shown.includes(one.name))
  if (!x || !others.length) return null
  const kind = isNumber(x) ? "lines" : "bars"
  if (y.length) return { kind, x, y: kind === "bars" ? y.slice(0, 1) : y.slice(0, MOST_LINES) }
  const like = others.filter(one => unit(one) === unit(others[0] as SqlColumn)) // one axis has one unit
  return { kind, x, y: kind === "bars" ? others.slice(0, 1) : like.slice(0, MOST_LINES) }
}

export const unit = (column: SqlColumn): string => /(^|_)(ns|bytes|share)$/.exec(column.name)?.[2] ?? ""

/** The numbers of a column by their place on the axis, in its order. What is not finite is not drawn. */
export function lines(answer: SqlAnswer, of: Drawn): { x: number[]; y: (number | null)[][] } {
  const at = answer.columns.indexOf(of.x)
  const places = of.y.map(one => answer.columns.indexOf(one))
  const rows = answer.rows
    .filter(row => finite(row[at]) !== null)
    .sort((a, b) => (finite(a[at]) as number) - (finite(b[at]) as number))
  return { x: rows.map(row => finite(row[at]) as number), y: places.map(place => rows.map(row => finite(row[place]))) }
}

export function finite(value: unknown): number | null {
  const known = value === null || value === undefined ? Number.NaN : Number(value)
  return Number.isFinite(known) ? known : null
}

/** The answer as text for a spreadsheet: the values as they are, not as they are shown. */
export function csv(answer: SqlAnswer): string {
  const cell = (value: unknown) => {
    const text = value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : value
    return /[",\n\r]/.test(String(text)) ? `"${String(text).replaceAll('"', '""')}"` : String(text)
  }
  const all = [answer.columns.map(one => one.name), ...answer.rows]
  return `${all.map(row => row.map(cell).join(",")).join("\n")}\n`
}
