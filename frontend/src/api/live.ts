// A run that grows: the server says so, at most once a second, and what is shown of the run is asked for again.
import { type Signal, signal } from "@preact/signals"
import { useEffect } from "preact/hooks"
import { lost, onBack } from "./connection"
import { refresh } from "./data"
import { appended } from "./recent"
import type { Grown, Recent, WatchView } from "./types"

export interface LiveState {
  connected: boolean
  step: number | null
  view: WatchView | null
  /** The steps that came since this page is open, for all ranks and for each. */
  recent: Record<string, Recent>
  over: "ended" | "gone" | null
}

const AGAIN = 2000 // ms
const SELDOM = 3000 // ms between two questions for the rest, which the server answers anew when it can
const NONE: LiveState = { connected: false, step: null, view: null, recent: {}, over: null }

class Stream {
  readonly state: Signal<LiveState> = signal(NONE)
  private users = 0
  private source: EventSource | null = null
  private refreshed = 0
  private timer: ReturnType<typeof setTimeout> | null = null
  private unlisten: (() => void) | null = null

  constructor(readonly run: string) {}

  use(): () => void {
    this.users++
    if (this.users === 1) {
      this.unlisten = onBack(() => this.open())
      document.addEventListener("visibilitychange", this.visible)
      this.open()
    }
    return () => {
      this.users--
      if (this.users === 0) {
        this.unlisten?.()
        document.removeEventListener("visibilitychange", this.visible)
        this.close()
      }
    }
  }

  /** A hidden tab asks for nothing: browsers open only six connections to one server. */
  private readonly visible = () => (document.hidden ? this.close() : this.open())

  private open(): void {
    if (this.source || document.hidden || this.state.value.over) return
    const source = new EventSource(`/api/runs/${encodeURIComponent(this.run)}/live`)
    this.source = source
    source.addEventListener("grown", event => {
      const found = JSON.parse(event.data) as Grown
      const recent = appended(this.state.value.recent, found.recent)
      this.state.value = { connected: true, step: found.as_of_step, view: found.view, recent, over: null }
      if (Date.now() - this.refreshed > SELDOM) {
        this.refreshed = Date.now()
        refresh(this.run)
      }
    })
    source.addEventListener("ended", () => this.finish("ended"))
    source.addEventListener("gone", () => this.finish("gone"))
    source.addEventListener("error", () => {
      this.close()
      void lost() // opened again when the server is back
      this.timer = setTimeout(() => this.open(), AGAIN)
    })
  }

  private finish(over: "ended" | "gone"): void {
    this.close()
    this.state.value = { ...this.state.value, connected: false, over }
    refresh(this.run)
  }

  private close(): void {
    this.source?.close()
    this.source = null
    if (this.timer) clearTimeout(this.timer)
    this.timer = null
    if (this.state.value.connected) this.state.value = { ...this.state.value, connected: false }
  }
}

const streams = new Map<string, Stream>()

/** Follows a run while it is recorded and the component is shown. */
export function useLive(run: string, wanted: boolean): LiveState {
  let found = streams.get(run)
  if (!found) {
    found = new Stream(run)
    streams.set(run, found)
  }
  const stream = found
  useEffect(() => (wanted ? stream.use() : undefined), [stream, wanted])
  return stream.state.value
}
