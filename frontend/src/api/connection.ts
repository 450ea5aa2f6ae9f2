// Whether the server answers. When it does not, this asks again until it does, and then all that is shown is asked for anew.
import { signal } from "@preact/signals"
import { ask } from "./request"
import type { About } from "./types"

export type Connection =
  | { kind: "ok" }
  | { kind: "down"; since: number }
  | { kind: "token" } // it answers, but does not know us: it was started again with another token
  | { kind: "updated"; from: string; to: string } // another version of Sonde: this page is older than its server

export const connection = signal<Connection>({ kind: "ok" })
export const about = signal<About | null>(null)

const WAITS = [0, 1000, 2000, 3000, 5000] // ms before each try; the last one stays
const listeners = new Set<() => void>()
let probing = false

/** Calls a function whenever the server is back, or the browser was asleep. */
export function onBack(call: () => void): () => void {
  listeners.add(call)
  return () => listeners.delete(call)
}

/** Something went wrong with a request: look whether the server is there, until it is. */
export async function lost(): Promise<void> {
  if (probing) return
  probing = true
  for (let tries = 0; ; tries++) {
    await new Promise(done => setTimeout(done, WAITS[Math.min(tries, WAITS.length - 1)]))
    if (await look()) break
  }
  probing = false
  for (const call of listeners) call()
}

/** One look at the server: true if it answers us. */
export async function look(): Promise<boolean> {
  const answer = await ask("/api/about", null)
  if (answer.kind === "fresh") {
    const found = answer.data as About
    const before = about.value
    about.value = found
    connection.value =
      before && before.version !== found.version
        ? { kind: "updated", from: before.version, to: found.version }
        : { kind: "ok" }
    return true
  }
  const status = answer.kind === "failed" ? answer.problem.status : 0
  if (status === 401) connection.value = { kind: "token" }
  else if (connection.value.kind !== "down") connection.value = { kind: "down", since: Date.now() }
  return false
}

const BEAT = 5000 // ms
const ASLEEP = 3 * BEAT

/** Notices that the browser slept, or that its tab was hidden, and asks anew when one looks again. */
export function watchSleep(): void {
  let last = Date.now()
  setInterval(() => {
    const now = Date.now()
    if (now - last > ASLEEP) wake()
    last = now
  }, BEAT)
  window.addEventListener("online", wake)
  window.addEventListener("pageshow", event => event.persisted && wake())
  document.addEventListener("visibilitychange", () => !document.hidden && wake())
}

function wake(): void {
  if (connection.value.kind === "ok") for (const call of listeners) call()
}
