// What pages show: each address of the API is one resource, asked for once, kept while it is used, and asked for again when its run grows.
import { type Signal, signal } from "@preact/signals"
import { useEffect, useMemo } from "preact/hooks"
import { lost, onBack } from "./connection"
import { ask, type Problem, UNREACHABLE } from "./request"

export interface Loaded<T> {
  data: T | undefined
  problem: Problem | null // the newest answer was a failure; `data` is then what was known before
  busy: boolean
}

const MOST_KEPT = 60 // answers that nothing shows any more, for the way back
const AGAIN = [500, 1500, 4000] // ms before a question is asked again that may be answered then
const PASSING = new Set([409, 502, 503]) // the run changed while it was read; out of time
const PATIENCE = 3 // times what an answer took: no resource is asked for more often

class Resource {
  readonly state: Signal<Loaded<unknown>> = signal({ data: undefined, problem: null, busy: false })
  private users = 0
  private etag: string | null = null
  private stop: AbortController | null = null
  private timer: ReturnType<typeof setTimeout> | null = null
  private tries = 0
  private asked = 0
  private took = 0

  constructor(readonly path: string) {}

  use(): () => void {
    this.users++
    if (this.users === 1) this.load()
    return () => {
      this.users--
      if (this.users === 0) this.rest()
    }
  }

  get used(): boolean {
    return this.users > 0
  }

  /** Ask again, unless an answer is on its way; soon, if the last one took long. */
  refresh(): void {
    if (!this.used || this.stop || this.timer) return
    const wait = this.asked + this.took * (1 + PATIENCE) - Date.now()
    if (wait > 0) this.later(wait)
    else this.load()
  }

  /** Ask now, as somebody wants it. */
  load(): void {
    if (this.stop) return
    if (this.timer) clearTimeout(this.timer)
    this.timer = null
    void this.run()
  }

  private later(wait: number): void {
    this.timer = setTimeout(() => {
      this.timer = null
      this.load()
    }, wait)
  }

  private async run(): Promise<void> {
    const stop = new AbortController()
    this.stop = stop
    this.asked = Date.now()
    this.state.value = { ...this.state.value, busy: true }
    const answer = await ask(this.path, this.etag, stop.signal)
    if (this.stop !== stop) return
    this.stop = null
    this.took = Date.now() - this.asked
    if (answer.kind === "failed") this.failed(answer.problem)
    else {
      this.tries = 0
      if (answer.kind === "fresh") this.etag = answer.etag
      const data = answer.kind === "fresh" ? answer.data : this.state.value.data
      this.state.value = { data, problem: null, busy: false }
    }
  }

  private failed(problem: Problem): void {
    if (problem.status === UNREACHABLE || problem.status === 401) void lost() // asked again when it is back
    const wait = PASSING.has(problem.status) ? AGAIN[this.tries++] : undefined
    if (wait !== undefined && this.used) {
      this.later(wait)
      return
    }
    this.tries = 0
    this.state.value = { data: this.state.value.data, problem, busy: false }
  }

  private rest(): void {
    this.stop?.abort()
    this.stop = null
    if (this.timer) clearTimeout(this.timer)
    this.timer = null
    if (this.state.value.busy) this.state.value = { ...this.state.value, busy: false }
  }
}

const resources = new Map<string, Resource>()

function resource(path: string): Resource {
  const found = resources.get(path) ?? new Resource(path)
  resources.delete(path)
  resources.set(path, found) // the newest stand last
  for (const [name, one] of resources) {
    if (resources.size <= MOST_KEPT) break
    if (!one.used) resources.delete(name)
  }
  return found
}

const NOTHING: Loaded<never> = { data: undefined, problem: null, busy: false }

/** What the server says at an address; null asks for nothing. It is kept up to date while the component is shown. */
export function useData<T>(path: string | null): Loaded<T> {
  const found = useMemo(() => (path === null ? null : resource(path)), [path])
  useEffect(() => found?.use(), [found])
  return (found ? found.state.value : NOTHING) as Loaded<T>
}

/** As `useData`, but shows what was there before until the answer for a new address is here: for zooming and paging. */
export function useSteadyData<T>(path: string | null): Loaded<T> {
  const now = useData<T>(path)
  const kept = useMemo<{ data: T | undefined }>(() => ({ data: undefined }), [])
  if (now.data !== undefined) kept.data = now.data
  return now.data === undefined && !now.problem ? { ...now, data: kept.data, busy: true } : now
}

/** Ask again for all that is shown, or for all of it that is about one run. */
export function refresh(run?: string): void {
  const prefix = run === undefined ? "" : `/api/runs/${encodeURIComponent(run)}`
  for (const one of resources.values())
    if (run === undefined || one.path === prefix || one.path.startsWith(`${prefix}/`)) one.refresh()
}

/** Ask again for one address: what the button "Try again" does. */
export function retry(path: string): void {
  resources.get(path)?.load()
}

onBack(() => refresh())
