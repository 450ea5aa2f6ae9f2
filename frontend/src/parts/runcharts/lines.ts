// Which charts a run has, made from the lines that the server sent.
import type { Line } from "../../api/types"
import { brief, duration, phaseName, rate, size } from "../../app/units"
import { joined, stacked, type Values } from "../../parts/chart/shape"

export type Axis = "step" | "time"

export const OF_STEPS = "step,phases,communication,loss,throughput"
export const OF_SAMPLES = "rss,device,cpu,host_cpu,gpu,disk"

export interface Picture {
  key: string
  title: string
  x: number[]
  lines: { name: string; values: Values }[]
  format: (value: number) => string
  fromZero: boolean
  /** Values that are not finite, and so are not drawn. */
  clipped: number
}

/** The picture of one line with its extremes: three lines, of which the outer two are drawn as a band. */
export function banded(
  line: Line | undefined,
  key: string,
  title: string,
  format: Picture["format"],
  fromZero: boolean,
): Picture | null {
  if (!line?.x.length) return null
  const wide = line.y.some((value, at) => value !== line.max[at] || value !== line.min[at])
  const lines = [{ name: "", values: line.y }]
  if (wide) lines.push({ name: "least", values: line.min }, { name: "most", values: line.max })
  return { key, title, x: line.x, lines, format, fromZero, clipped: line.clipped }
}

/** Several lines in one picture, those that reach highest first. */
export function several(
  lines: Line[],
  key: string,
  title: string,
  format: Picture["format"],
  most = 8,
): Picture | null {
  const peak = (line: Line) => line.max.reduce<number>((high, value) => Math.max(high, value ?? 0), 0)
  const shown = [...lines].sort((a, b) => peak(b) - peak(a)).slice(0, most)
  if (!shown.length) return null
  const { x, values } = joined(shown)
  const named = shown.map((line, at) => ({
    name: line.name.slice(line.name.indexOf(":") + 1),
    values: values[at] as Values,
  }))
  return {
    key,
    title: lines.length > most ? `${title} (${most} of ${lines.length})` : title,
    x,
    lines: named,
    format,
    fromZero: true,
    clipped: 0,
  }
}

const percent = (value: number) => `${Math.round(value)} %`

export interface Stack {
  x: number[]
  phases: { phase: string; name: string; values: Values; top: Values }[]
  /** The longest step of each point, if points are several steps. */
  longest: Values | null
  step: Line | undefined
}

/** Step time by phase, each on top of those before it. */
export function stack(lines: Line[]): Stack | null {
  const phases = lines.filter(line => line.name.startsWith("phase:"))
  const step = lines.find(line => line.name === "step")
  const first = phases[0]
  if (!first) return null
  const tops = stacked(phases.map(line => line.y))
  const highest = tops.at(-1) as Values
  const same = step?.x.length === first.x.length
  const binned = same && step.max.some((value, at) => (value ?? 0) > 1.001 * (highest[at] ?? 0))
  return {
    x: first.x,
    phases: phases.map((line, at) => {
      const phase = line.name.slice("phase:".length)
      return { phase, name: phaseName(phase), values: line.y, top: tops[at] as Values }
    }),
    longest: binned ? step.max : null,
    step,
  }
}

/** All pictures below the stack. */
export function pictures(steps: Line[], samples: Line[]): Picture[] {
  const one = (name: string) => steps.find(line => line.name === name)
  const of = (name: string) => samples.filter(line => line.name.startsWith(`${name}:`) || line.name === name)
  return [
    banded(one("loss"), "loss", "Loss", brief, false),
    banded(one("throughput"), "throughput", "Throughput, samples/s", rate, true),
    banded(one("communication"), "communication", "Communication", duration, true),
    several(of("rss"), "rss", "Memory", size),
    several(of("device"), "device", "Device memory", size),
    several(of("cpu"), "cpu", "CPU of processes (100 % is one core)", percent),
    several(of("host_cpu"), "host_cpu", "CPU of hosts (100 % is all cores)", percent),
    several(of("gpu"), "gpu", "GPU", percent),
    several(of("disk"), "disk", "Disk, bytes/s", value => `${size(value)}/s`),
  ].filter((found): found is Picture => found !== null)
}
