// Small things that many pages show: states, severities, facts, bars of phases, text to copy.
import type { ComponentChildren } from "preact"
import { useState } from "preact/hooks"
import { PHASE_ORDER } from "../app/theme"
import { duration, phaseName, share } from "../app/units"

/** How a run is, or how it ended: `running`, `finished`, `crashed (ValueError)`. */
export function State({ state, ended }: { state: string; ended: string }) {
  const word = state === "recording" ? "running" : ended || state
  const kind = word === "running" ? "live" : word.startsWith("finished") ? "good" : bad(word) ? "bad" : "unsure"
  return (
    <span class={`state ${kind}`}>
      <i aria-hidden="true" />
      {word}
    </span>
  )
}

function bad(word: string): boolean {
  return /^(crashed|killed|broken|died)/.test(word)
}

/** The kind of a finding, in the colour of its severity. */
export function Kind({ kind, severity }: { kind: string | null; severity: string | null }) {
  if (kind === null) return <span class="soft">n/a</span>
  return <span class={`kind ${known(severity)}`}>{kind}</span>
}

export function known(severity: string | null): string {
  return severity === "warn" || severity === "critical" ? severity : "info"
}

/** Numbers with their names, in a row. What is null is left out. */
export function Facts({ of }: { of: Record<string, ComponentChildren | null> }) {
  return (
    <dl class="facts">
      {Object.entries(of).map(
        ([name, value]) =>
          value !== null && (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ),
      )}
    </dl>
  )
}

/** The phases of a step beside each other. `of`: what the whole width stands for. */
export function PhaseBar({ phases, of, label }: { phases: Record<string, number | null>; of: number; label?: string }) {
  const parts = PHASE_ORDER.map(phase => ({ phase, ns: phases[phase] ?? 0 })).filter(one => one.ns > 0)
  const text = parts.map(one => `${phaseName(one.phase)} ${duration(one.ns)}`).join(", ")
  return (
    <span class="phasebar" role="img" aria-label={label ?? text}>
      {parts.map(one => (
        <i
          key={one.phase}
          class={`fill-${one.phase}`}
          style={{ width: `${(100 * one.ns) / (of || 1)}%` }}
          title={`${phaseName(one.phase)}: ${duration(one.ns)}, ${share(one.ns / (of || 1))}`}
        />
      ))}
    </span>
  )
}

export function Swatch({ phase }: { phase: string }) {
  return <i class={`swatch fill-${phase}`} aria-hidden="true" />
}

/** What the colours of phases mean. */
export function PhaseKey({ phases }: { phases: string[] }) {
  return (
    <span class="key">
      {phases.map(phase => (
        <span key={phase}>
          <Swatch phase={phase} />
          {phaseName(phase)}
        </span>
      ))}
    </span>
  )
}

/** A share as a short bar. */
export function Meter({ part }: { part: number | null }) {
  return (
    <span class="meter" aria-hidden="true">
      <i style={{ width: `${100 * Math.min(Math.max(part ?? 0, 0), 1)}%` }} />
    </span>
  )
}

/** A command or a text, with a button that copies it. */
export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState<"" | "Copied" | "Select and copy it yourself">("")
  const copy = async () => {
    setDone((await copied(text)) ? "Copied" : "Select and copy it yourself")
    setTimeout(() => setDone(""), 2000)
  }
  return (
    <span class="copy">
      <code>{text}</code>
      <button type="button" onClick={copy} aria-label={`${label}: ${text}`}>
        {done || label}
      </button>
      <span class="hidden" role="status">
        {done}
      </span>
    </span>
  )
}

async function copied(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    return false // no permission, or an address that browsers do not trust
  }
}

/** Buttons of which one is chosen. */
export function Choice<T extends string>(props: {
  label: string
  options: readonly (readonly [T, string])[]
  value: T
  onChoose: (value: T) => void
}) {
  return (
    <fieldset class="choice">
      <legend class="hidden">{props.label}</legend>
      {props.options.map(([value, text]) => (
        <button key={value} type="button" aria-pressed={value === props.value} onClick={() => props.onChoose(value)}>
          {text}
        </button>
      ))}
    </fieldset>
  )
}
