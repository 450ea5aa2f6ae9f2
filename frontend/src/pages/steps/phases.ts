// The phases of a row of the table `steps`.
import type { StepRow } from "../../api/types"
import { PHASE_ORDER } from "../../app/theme"

export function phasesOf(row: StepRow): Record<string, number | null> {
  return Object.fromEntries(PHASE_ORDER.map(phase => [phase, row[`${phase}_ns`] ?? null]))
}
