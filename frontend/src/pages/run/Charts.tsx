// The charts of a run: one axis, one window on it, one place that is pointed at, for all of them.
import type { ComponentChildren } from "preact"
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks"
import { useSteadyData } from "../../api/data"
import type { LiveState } from "../../api/live"
import { extended } from "../../api/recent"
import type { Head, Line, Series } from "../../api/types"
import { to } from "../../app/address"
import { place, setQuery } from "../../app/router"
import { shared, Together } from "../../parts/chart/cursor"
import type { Range } from "../../parts/chart/window"
import { Go } from "../../parts/Go"
import { about } from "../../parts/RunPage"
import { OF_SAMPLES, OF_STEPS } from "../../parts/runcharts/lines"
import { RunCharts, Surroundings, viewOf } from "../../parts/runcharts/RunCharts"
import { Failure } from "../../parts/States"

const STRIDE = 100 // widths are rounded to this many px, so that a small change asks for nothing

export function Charts({ head, live }: { head: Head; live: LiveState }) {
  const view = viewOf(place.value.query)
  const box = useRef<HTMLElement>(null)
  const [width, setWidth] = useState<number | null>(null)
  useLayoutEffect(() => {
    const measure = () => setWidth(Math.max(200, Math.ceil((box.current?.clientWidth ?? 1200) / STRIDE) * STRIDE))
    measure()
    window.addEventListener("resize", measure)
    return () => window.removeEventListener("resize", measure)
  }, [])
  const together = useMemo(shared, [])
  const around = useMemo(() => ({ change: setQuery, Step: stepLink(head.id) }), [head.id])
  const ranks = head.ranks.map(one => one.rank).filter((rank): rank is number => rank !== null)
  useEffect(() => {
    together.at.value = view.at
  }, [view.at, together])

  const asked = { axis: view.axis, rank: view.rank, from: view.range?.[0], to: view.range?.[1] }
  const points = Math.round((width ?? 0) / 2)
  const path = (name: string) => about(head.id, "/series", { name, points, ...asked })
  const steps = useSteadyData<Series>(width === null ? null : path(OF_STEPS))
  const samples = useSteadyData<Series>(width === null ? null : path(OF_SAMPLES))
  const outline = useSteadyData<Series>(
    view.range ? about(head.id, "/series", { name: "step", points: 300, axis: view.axis, rank: view.rank }) : null,
  )
  const zoomed = view.range !== null
  const recent = live.recent[view.rank === null ? "all" : String(view.rank)]
  const answered = steps.data?.series
  const lines = useMemo(
    () => (head.live && !zoomed ? extended(answered ?? [], recent, view.axis) : (answered ?? [])),
    [answered, recent, head.live, zoomed, view.axis],
  )
  const whole = wholeOf(zoomed ? outline.data : steps.data, zoomed ? [] : lines)
  if (steps.problem && !steps.data) return <Failure problem={steps.problem} path={path(OF_STEPS)} />
  if (!whole || (!steps.data?.series.length && !samples.data?.series.length))
    return <section ref={box} class="charts" />
  return (
    <section ref={box} class="charts" aria-label="Charts" aria-busy={steps.busy || samples.busy}>
      <Together.Provider value={together}>
        <Surroundings.Provider value={around}>
          <RunCharts
            ranks={ranks}
            view={view}
            whole={whole}
            steps={lines}
            samples={samples.data?.series ?? []}
            outline={(view.range ? (outline.data?.series ?? []) : lines).find(line => line.name === "step")}
            together={together}
          />
        </Surroundings.Provider>
      </Together.Provider>
    </section>
  )
}

type StepProps = { step: number; rank: number | null; children: ComponentChildren }

const stepLink = (run: string) => (props: StepProps) => (
  <Go to={to.step(run, props.rank, props.step)}>{props.children}</Go>
)

/** From where to where the run reaches. */
function wholeOf(answer: Series | undefined, lines: Line[]): Range | null {
  if (!answer || answer.from === null || answer.to === null) return null
  return [answer.from, lines.reduce((end, line) => Math.max(end, line.x.at(-1) ?? 0), answer.to)]
}
