// Numbers as people read them, in the same words as `src/sonde/units.py`.
import type { Num } from "../api/types"

export const MISSING = "n/a"
const MINUTE = 60e9
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 })

/** `1.24 ms`, `41.3 s`, `2 min 03 s`, `1 h 02 min`, `3 d 04 h`. */
export function duration(ns: number | null | undefined): string {
  if (ns === null || ns === undefined || Number.isNaN(ns)) return MISSING
  if (ns < 0) return `-${duration(-ns)}`
  if (Math.round(ns / 1e9) >= 120) return long(ns)
  for (const [factor, unit] of [
    [1e9, "s"],
    [1e6, "ms"],
    [1e3, "µs"],
  ] as const) // what would round to 1000 of the smaller unit
    if (ns / factor >= 0.9995) return `${digits(ns / factor)} ${unit}`
  return `${ns.toFixed(0)} ns`
}

function long(ns: number): string {
  const two = (value: number) => String(Math.floor(value)).padStart(2, "0")
  let whole = Math.round(ns / 1e9) * 1e9
  if (whole < 2 * HOUR) return `${Math.floor(whole / MINUTE)} min ${two((whole % MINUTE) / 1e9)} s`
  whole = Math.round(ns / MINUTE) * MINUTE
  if (whole < 2 * DAY) return `${Math.floor(whole / HOUR)} h ${two((whole % HOUR) / MINUTE)} min`
  whole = Math.round(ns / HOUR) * HOUR
  return `${grouped.format(Math.floor(whole / DAY))} d ${two((whole % DAY) / HOUR)} h`
}

/** `812 B`, `4.1 kB`, `1.25 GB`: powers of 1000. */
export function size(bytes: number | null | undefined): string {
  return missing(bytes) ? MISSING : scaled(bytes as number, ["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/** `9,999`, and from a million on `1.25 M`. */
export function count(number: number | null | undefined): string {
  if (missing(number)) return MISSING
  const value = number as number
  return Math.abs(value) < 1e6 ? grouped.format(value) : scaled(value, ["", "k", "M", "G", "T", "P", "E"])
}

/** `29 %`, `4.1 %`; a share above zero that would round to it is `<0.1 %`. */
export function share(part: number | null | undefined): string {
  if (missing(part)) return MISSING
  const value = part as number
  if (value > 0 && value < 0.0005) return "<0.1 %"
  return value > 0 && value < 0.0995 ? `${(value * 100).toFixed(1)} %` : `${grouped.format(value * 100)} %`
}

/** `1.5x`, `12x`. */
export function times(ratio: number | null | undefined): string {
  if (missing(ratio)) return MISSING
  const value = ratio as number
  return value >= 9.95 ? `${grouped.format(value)}x` : `${value.toFixed(1)}x`
}

/** A measured number in four digits: `0.5`, `-12.25`, `3.4e38`, `NaN`, `-infinity`. */
export function brief(value: Num | null | undefined): string {
  if (value === null || value === undefined) return MISSING
  const known = numeric(value)
  if (!Number.isFinite(known)) return Number.isNaN(known) ? "NaN" : known > 0 ? "infinity" : "-infinity"
  const text = known.toPrecision(4)
  const [mantissa = "", power] = text.split("e")
  const short = mantissa.includes(".") ? mantissa.replace(/\.?0+$/, "") : mantissa
  if (power === undefined && Math.abs(known) < 1e-4 && known !== 0) {
    const [small = "", exponent = "0"] = known.toExponential(3).split("e")
    return `${small.replace(/\.?0+$/, "")}e${Number(exponent)}`
  }
  return power === undefined ? short : `${short}e${Number(power)}`
}

/** A rate in three digits: `1,240`, `38.2`. */
export function rate(value: number | null | undefined): string {
  if (missing(value)) return MISSING
  return (value as number) >= 99.95 ? grouped.format(value as number) : String(Number((value as number).toPrecision(3)))
}

/** `1 step`, `3 steps`. */
export function plural(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`
}

/** A number of the server as a number: NaN and infinities come as text. */
export function numeric(value: Num): number {
  return typeof value === "number" ? value : Number(value)
}

/** `2026-11-18 11:12:06`, in the time of whoever reads. */
export function moment(utc: string | null | undefined): string {
  const date = new Date(utc ?? "")
  if (Number.isNaN(date.getTime())) return MISSING
  const two = (value: number) => String(value).padStart(2, "0")
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`
}

/** `2 min ago`, `yesterday`-like distances in the largest unit. */
export function ago(utc: string | null | undefined, now = Date.now()): string {
  const then = new Date(utc ?? "").getTime()
  if (Number.isNaN(then)) return MISSING
  const seconds = Math.max(0, Math.round((now - then) / 1000))
  if (seconds < 60) return "just now"
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`
  return `${Math.floor(seconds / 86400)} d ago`
}

const PHASES: Record<string, string> = { input_wait: "input wait", h2d: "host to device", residual: "untracked" }

/** A phase in words. */
export function phaseName(phase: string): string {
  return PHASES[phase] ?? phase
}

function missing(value: number | null | undefined): boolean {
  return value === null || value === undefined || Number.isNaN(value)
}

function scaled(number: number, units: string[]): string {
  let value = number
  let place = 0
  while (Math.abs(value) >= 999.5 && place < units.length - 1) {
    value /= 1000
    place++
  }
  return `${place === 0 ? value.toFixed(0) : digits(value)} ${units[place]}`.trimEnd()
}

function digits(value: number): string {
  if (value >= 99.95) return grouped.format(value)
  return value >= 9.995 ? value.toFixed(1) : value.toFixed(2)
}
