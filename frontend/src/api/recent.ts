// Steps of a growing run that came after the last answer: kept, and put behind the lines of `/series`.
import type { Line, Recent } from "./types"

const MOST = 5000 // steps that are kept; the server's next answer has the older ones

/** What is known, and what is new, for each rank. */
export function appended(known: Record<string, Recent>, fresh: Record<string, Recent>): Record<string, Recent> {
  const found = { ...known }
  for (const [rank, one] of Object.entries(fresh)) {
    const before = found[rank]
    found[rank] = before ? joined(before, one) : one
  }
  return found
}

function joined(a: Recent, b: Recent): Recent {
  const first = b.step[0] ?? 0
  const last = a.step.at(-1) ?? -1
  if (first <= last) return b // the stream began anew
  const phases = Object.fromEntries(
    [...new Set([...Object.keys(a.phases), ...Object.keys(b.phases)])].map(phase => [
      phase,
      tail(a.phases[phase] ?? a.step.map(() => null), b.phases[phase] ?? b.step.map(() => null)),
    ]),
  )
  return {
    step: tail(a.step, b.step),
    time_ns: tail(a.time_ns, b.time_ns),
    dur_ns: tail(a.dur_ns, b.dur_ns),
    min_ns: tail(a.min_ns, b.min_ns),
    max_ns: tail(a.max_ns, b.max_ns),
    slowest: tail(a.slowest, b.slowest),
    samples: tail(a.samples, b.samples),
    phases,
    loss: b.loss,
  }
}

function tail<T>(a: T[], b: T[]): T[] {
  return [...a, ...b].slice(-MOST)
}

/** The lines of steps with the recent steps behind them, where these reach further. */
export function extended(lines: Line[], recent: Recent | undefined, axis: "step" | "time"): Line[] {
  const x = recent && (axis === "step" ? recent.step : recent.time_ns)
  if (!recent || !x) return lines
  return lines.map(line => {
    const end = line.x.at(-1) ?? -1
    const from = x.findIndex(value => value > end)
    const more = from < 0 ? null : values(line, recent)
    if (!more) return line
    return {
      ...line,
      x: [...line.x, ...x.slice(from)],
      y: [...line.y, ...more.y.slice(from)],
      min: [...line.min, ...more.low.slice(from)],
      max: [...line.max, ...more.high.slice(from)],
      slowest: line.slowest && [
        ...line.slowest,
        ...recent.step.map((step, at) => [step, recent.slowest[at] ?? null] as [number, number | null]).slice(from),
      ],
    }
  })
}

type Values = (number | null)[]

function values(line: Line, recent: Recent): { y: Values; low: Values; high: Values } | null {
  if (line.name === "step") return { y: recent.dur_ns, low: recent.min_ns, high: recent.max_ns }
  if (line.name === "throughput")
    return alike(recent.samples.map((one, at) => (one === null ? null : (1e9 * one) / (recent.dur_ns[at] || 1))))
  if (line.name === "communication") return alike(recent.phases.communication ?? recent.step.map(() => null))
  if (line.name === "loss")
    return alike(
      recent.step.map((_, at) =>
        at === recent.step.length - 1 && typeof recent.loss === "number" ? recent.loss : null,
      ),
    )
  if (!line.name.startsWith("phase:")) return null
  return alike(recent.phases[line.name.slice("phase:".length)] ?? recent.step.map(() => null))
}

const alike = (y: Values) => ({ y, low: y, high: y })
