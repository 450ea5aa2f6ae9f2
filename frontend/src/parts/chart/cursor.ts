// Where charts that belong together are pointed at: one place on the axis that they share.
import { type Signal, signal } from "@preact/signals"
import { createContext } from "preact"

export interface Shared {
  /** What the mouse or the keyboard points at, in the unit of the axis. */
  at: Signal<number | null>
}

export const shared = (): Shared => ({ at: signal(null) })
export const Together = createContext<Shared>(shared())
