// A value with its confidence interval on a common axis; the line in the middle is "no difference".
import type { Scale } from "./scale"

interface Props {
  scale: Scale
  value: number
  low: number | null
  high: number | null
  verdict: string | null
  /** In words. */
  label: string
  /** What counts as no difference, as two places of the axis. */
  margin?: readonly [number, number]
  bar?: boolean
}

const WIDTH = 200
const HEIGHT = 18

export function Interval({ scale, value, low, high, verdict, label, margin, bar }: Props) {
  const x = (number: number) => WIDTH * scale.at(number)
  const middle = WIDTH / 2
  return (
    <svg
      class={`interval ${verdict ?? "unsure"}`}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      {margin && <rect class="margin" x={x(margin[0])} width={x(margin[1]) - x(margin[0])} height={HEIGHT} />}
      <line class="middle" x1={middle} x2={middle} y1="0" y2={HEIGHT} />
      {bar && <rect class="bar" x={Math.min(middle, x(value))} width={Math.abs(x(value) - middle)} y="3" height="12" />}
      {low !== null && high !== null && <line class="reach" x1={x(low)} x2={x(high)} y1="9" y2="9" />}
      <line class="value" x1={x(value)} x2={x(value)} y1="3" y2="15" />
    </svg>
  )
}
