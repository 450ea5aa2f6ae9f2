// The findings of a report in groups: a cause, with what it explains.
import type { Finding } from "../../api/types"

export interface Group {
  cause: Finding
  effects: Finding[]
}

/** Each finding stands once: below the finding that explains it, or as the head of its own group. */
export function grouped(findings: Finding[]): Group[] {
  const heads = findings.filter(one => one.because === null || !findings.some(other => other.kind === one.because))
  const groups = heads.map(cause => ({ cause, effects: [] as Finding[] }))
  for (const one of findings) {
    if (heads.includes(one)) continue
    const home = groups.find(
      group => group.cause.kind === one.because || group.effects.some(other => other.kind === one.because),
    )
    if (home) home.effects.push(one)
    else groups.push({ cause: one, effects: [] })
  }
  return groups
}

export interface Fact {
  name: string
  value: unknown
  query: string | null
}

const HIDDEN = new Set(["numbers", "queries", "score", "failure"])

/** What a finding rests on: its numbers, each with the query it comes from, and what else it names. */
export function facts(evidence: Record<string, unknown>): Fact[] {
  const numbers = object(evidence.numbers)
  const queries = object(evidence.queries)
  const others = Object.entries(evidence).filter(([name, value]) => !HIDDEN.has(name) && !empty(value))
  return [...Object.entries(numbers), ...others].map(([name, value]) => {
    const query = queries[name]
    return { name, value, query: typeof query === "string" ? query : null }
  })
}

function object(value: unknown): Record<string, unknown> {
  return value !== null && typeof value === "object" && !Array.isArray(value) ? (value as Record<string, unknown>) : {}
}

function empty(value: unknown): boolean {
  return value === null || value === "" || (Array.isArray(value) && value.every(one => one === null))
}

/** The name of a fact without its unit: `median item ns` is `median item`. */
export function plain(name: string): string {
  return name.replaceAll("_", " ").replace(/ (ns|bytes)$/, "")
}

/** The layers that a finding names. */
export function layersOf(finding: Finding): string[] {
  const found = finding.evidence.layers
  return Array.isArray(found) ? found.filter((one): one is string => typeof one === "string").map(layerName) : []
}

/** A layer of a finding without its model: `encoder.0` of `Net/encoder.0`. */
export const layerName = (one: string) => one.slice(one.indexOf("/") + 1)
