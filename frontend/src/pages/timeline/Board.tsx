// The lanes on a canvas: draws them, and follows wheel, drag, touch and keys.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks"
import { askArray } from "../../api/array"
import { onBack } from "../../api/connection"
import { byLane, type LaneHead, type Slices, type SlicesHead, type Stop } from "../../api/timeline"
import { place, setQuery } from "../../app/router"
import { PHASE_ORDER, theme } from "../../app/theme"
import { panned, type Range, zoomed } from "../../parts/chart/window"
import { about } from "../../parts/RunPage"
import { PhaseKey } from "../../parts/Small"
import { phaseOf } from "../step/bars"
import { draw, RULER } from "./draw"
import { asked, BAR, clock, covers, hit, layout, neighbour, type Row, sliceText, visible } from "./layout"
import { type Picked, summed } from "./state"

interface Props {
  run: string
  lanes: LaneHead[]
  whole: Range
  range: Range
  picked: Picked | null
  links: Stop[]
  sought: string
  /** Changes when the run has grown. */
  version: string
  onRange: (range: Range | null) => void
}

const CLICK = 4 // px: less is a click
const PAUSE = 90 // ms without a move before slices are asked for
const MANY = 30 // lanes: of more only those that are seen are asked for

interface Tip {
  text: string
  x: number
  y: number
  left: boolean
}

/** The phases whose colours are drawn. */
function phasesIn(slices: Slices | null): string[] {
  const found = new Set(slices?.names.map((name, at) => phaseOf({ name, cat: slices.cats[at] ?? "" })))
  return PHASE_ORDER.filter(phase => phase !== "residual" && found.has(phase))
}

interface Have {
  slices: Slices
  from: number
  to: number
  pixels: number
  lanes: string
  version: string
}

/** The slices of a window. What is there stays until more is. */
function useSlices(props: Props, width: number, rows: Row[], all: boolean): { have: Have | null; problem: string } {
  const [have, setHave] = useState<Have | null>(null)
  const [problem, setProblem] = useState("")
  const [again, setAgain] = useState(0)
  const { run, range, whole, version } = props
  const lanes = all ? "" : rows.flatMap(row => (row.lane ? [row.lane.id] : [])).join(",")
  const enough =
    have !== null && have.version === version && have.lanes === lanes && covers(have, range, width) && again === 0
  const [from, to] = range
  const [first, last] = whole
  useEffect(() => onBack(() => setAgain(count => count + 1)), [])
  useEffect(() => {
    if (enough || width === 0) return
    const stop = new AbortController()
    const timer = setTimeout(async () => {
      const wanted = asked([from, to], [first, last], width)
      const path = about(run, "/timeline", { ...wanted, lanes, format: "bin" })
      const found = await askArray<SlicesHead>(path, stop.signal)
      if (stop.signal.aborted) return
      if ("values" in found) setHave({ slices: byLane(found), ...wanted, lanes, version })
      setProblem("values" in found ? "" : found.message)
      setAgain(0)
    }, PAUSE)
    return () => {
      clearTimeout(timer)
      stop.abort()
    }
  }, [enough, run, from, to, first, last, width, lanes, version])
  return { have, problem }
}

export function Board(props: Props) {
  const { lanes, whole, range, picked, links, sought, onRange } = props
  const scroller = useRef<HTMLDivElement>(null)
  const canvas = useRef<HTMLCanvasElement>(null)
  const [size, setSize] = useState<[number, number]>([0, 0])
  const [top, setTop] = useState(0)
  const { rows, height } = useMemo(() => layout(lanes), [lanes])
  const seen = visible(rows, top, size[1])
  const { have, problem } = useSlices(props, size[0], seen, lanes.length <= MANY)
  const [tip, setTip] = useState<Tip | null>(null)
  const [marked, setMarked] = useState<Range | null>(null)
  const sum = marked ?? summed(place.value.query)
  const look = theme.value

  useEffect(() => {
    const box = canvas.current as HTMLCanvasElement
    const watch = new ResizeObserver(() => setSize([box.clientWidth, box.clientHeight]))
    watch.observe(box)
    return () => watch.disconnect()
  }, [])

  // biome-ignore lint/correctness/useExhaustiveDependencies: the theme changes every colour
  useLayoutEffect(() => {
    const box = canvas.current as HTMLCanvasElement
    const context = box.getContext("2d")
    if (!context || !size[0]) return
    const dense = window.devicePixelRatio || 1
    box.width = size[0] * dense
    box.height = size[1] * dense
    context.setTransform(dense, 0, 0, dense, 0, 0)
    const slices = have?.slices ?? null
    draw(context, { width: size[0], height: size[1], top, range, rows: seen, slices, sum, picked, links, sought })
  }, [size, top, range, rows, have, sum, picked, links, sought, look])

  // The lane of what is picked comes into view.
  const chosenLane = picked?.lane
  useEffect(() => {
    const row = rows.find(one => one.key === chosenLane)
    const box = scroller.current
    if (!row || !box) return
    if (row.top < box.scrollTop || row.top + row.height > box.scrollTop + box.clientHeight - RULER)
      box.scrollTop = Math.max(0, row.top - box.clientHeight / 3)
  }, [chosenLane, rows])

  const px = (range[1] - range[0]) / Math.max(size[0], 1)
  const timeAt = (event: { clientX: number }) => {
    const box = (canvas.current as HTMLCanvasElement).getBoundingClientRect()
    return range[0] + (event.clientX - box.left) * px
  }
  const choose = (lane: string, at: number) => {
    const own = have?.slices.lanes.get(lane)
    if (!own) return
    const seq = own.seq[at] as number
    const start = own.start[at] as number
    if (Number.isNaN(seq)) onRange(zoomed(range, whole, 0.2, start + (own.dur[at] as number) / 2) ?? whole)
    else setQuery({ lane, seq, at: start }, { replace: true })
  }
  const under = (event: PointerEvent | MouseEvent): { lane: string; at: number } | null => {
    const box = (canvas.current as HTMLCanvasElement).getBoundingClientRect()
    const y = event.clientY - box.top - RULER + top
    const row = rows.find(one => one.lane && y >= one.top && y < one.top + one.height)
    const own = row?.lane && have?.slices.lanes.get(row.lane.id)
    if (!row?.lane || !own) return null
    const at = hit(own, Math.floor((y - row.top - 3) / BAR), timeAt(event), px)
    return at === null ? null : { lane: row.lane.id, at }
  }

  /** What the mouse is over, beside it; on the left of it where there is no room on the right. */
  const tipOf = (event: PointerEvent): Tip | null => {
    const found = under(event)
    const slices = have?.slices
    const own = found && slices?.lanes.get(found.lane)
    if (!own || !slices) return null
    const box = (canvas.current as HTMLCanvasElement).getBoundingClientRect()
    const x = event.clientX - box.left
    return { text: sliceText(slices, own, found.at), x, y: event.clientY - box.top, left: x > box.width * 0.6 }
  }

  // Wheel: a listener of our own, since those of the framework may not stop the page from scrolling.
  const wheel = useRef((_: WheelEvent) => {})
  wheel.current = event => {
    event.preventDefault()
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = event.deltaX || event.deltaY
      onRange(panned(range, whole, by / Math.max(size[0], 1)))
    } else onRange(zoomed(range, whole, Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), timeAt(event)))
  }
  useEffect(() => {
    const box = canvas.current as HTMLCanvasElement
    const turned = (event: WheelEvent) => wheel.current(event)
    box.addEventListener("wheel", turned, { passive: false })
    return () => box.removeEventListener("wheel", turned)
  }, [])

  const held = useRef<{
    x: number
    y: number
    at: number
    range: Range
    top: number
    mark: boolean
    far: boolean
  } | null>(null)
  const fingers = useRef(new Map<number, number>())
  const pinch = useRef<{ apart: number; range: Range; at: number } | null>(null)
  const down = (event: PointerEvent) => {
    if (event.button !== 0) return
    canvas.current?.setPointerCapture(event.pointerId)
    fingers.current.set(event.pointerId, event.clientX)
    const [a, b] = [...fingers.current.values()]
    if (a !== undefined && b !== undefined) {
      pinch.current = { apart: Math.max(Math.abs(a - b), 10), range, at: timeAt({ clientX: (a + b) / 2 }) }
      return
    }
    const box = (canvas.current as HTMLCanvasElement).getBoundingClientRect()
    const mark = event.shiftKey || event.clientY - box.top < RULER
    held.current = { x: event.clientX, y: event.clientY, at: timeAt(event), range, top, mark, far: false }
  }
  const move = (event: PointerEvent) => {
    const hold = held.current
    if (!fingers.current.has(event.pointerId)) {
      if (event.pointerType === "mouse") setTip(tipOf(event))
      return
    }
    if (tip) setTip(null)
    fingers.current.set(event.pointerId, event.clientX)
    const [a, b] = [...fingers.current.values()]
    if (pinch.current && a !== undefined && b !== undefined) {
      const factor = pinch.current.apart / Math.max(Math.abs(a - b), 10)
      onRange(zoomed(pinch.current.range, whole, factor, pinch.current.at))
      return
    }
    if (!hold) return
    const [x, y] = [event.clientX - hold.x, event.clientY - hold.y]
    if (!hold.far && Math.hypot(x, y) < CLICK) return
    hold.far = true
    if (hold.mark) setMarked([Math.min(hold.at, timeAt(event)), Math.max(hold.at, timeAt(event))])
    else {
      onRange(panned(hold.range, whole, -x / Math.max(size[0], 1)))
      if (event.pointerType === "mouse" && scroller.current) scroller.current.scrollTop = hold.top - y
    }
  }
  const up = (event: PointerEvent) => {
    fingers.current.delete(event.pointerId)
    const hold = held.current
    held.current = null
    if (pinch.current) {
      if (!fingers.current.size) pinch.current = null
      return
    }
    if (marked) setQuery({ sumfrom: Math.round(marked[0]), sumto: Math.round(marked[1]) }, { replace: true })
    setMarked(null)
    if (!hold || hold.far || event.type === "pointercancel") return
    const found = under(event)
    if (found) choose(found.lane, found.at)
    else setQuery({ lane: null, seq: null, at: null }, { replace: true })
  }

  const pressed = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key]
    if (!act) return
    event.preventDefault()
    act()
  }
  const zoom = (factor: number) => () => onRange(zoomed(range, whole, factor))
  const pan = (part: number) => () => onRange(panned(range, whole, part))
  const scroll = (by: number) => () => scroller.current?.scrollBy(0, by)
  const keys: Record<string, () => void> = {
    w: zoom(0.7),
    "+": zoom(0.7),
    "=": zoom(0.7),
    s: zoom(1 / 0.7),
    "-": zoom(1 / 0.7),
    a: pan(-0.2),
    ArrowLeft: pan(-0.2),
    d: pan(0.2),
    ArrowRight: pan(0.2),
    ArrowUp: scroll(-60),
    ArrowDown: scroll(60),
    0: () => onRange(whole),
    Home: () => onRange(whole),
    n: () => beside(1),
    p: () => beside(-1),
    m: () => setQuery({ sumfrom: Math.round(range[0]), sumto: Math.round(range[1]) }, { replace: true }),
    Escape: () => setQuery({ lane: null, seq: null, at: null, sumfrom: null, sumto: null }, { replace: true }),
  }
  /** The next slice of the lane, or the first one that is seen. */
  const beside = (by: 1 | -1) => {
    const lane = picked?.lane ?? seen.find(row => row.lane)?.lane?.id
    const own = lane === undefined ? undefined : have?.slices.lanes.get(lane)
    if (!own || lane === undefined) return
    const now = picked ? own.start.findIndex((at, i) => at === picked.at && own.seq[i] === picked.seq) : -1
    const found = neighbour(own, now < 0 ? 0 : (own.depth[now] as number), picked?.at ?? range[0] - 1, by)
    if (found !== null) choose(lane, found)
  }
  const told = `${clock(range[0], px * 100)} to ${clock(range[1], px * 100)}`
  return (
    <>
      <div
        class="board"
        ref={scroller}
        role="application"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: the keys of the timeline
        tabIndex={0}
        aria-label={`Timeline of ${lanes.length} lanes, ${told}`}
        aria-describedby="timeline-keys"
        aria-busy={have === null && !problem}
        onScroll={event => setTop((event.currentTarget as HTMLElement).scrollTop)}
        onKeyDown={pressed}
      >
        <div class="lanes" style={{ height: `${height + RULER}px` }}>
          <div class="names">
            <div class="corner" />
            {rows.map(row => (
              <div
                key={row.key}
                class={row.kind}
                title={row.lane ? `${row.label}, ${row.lane.process}` : row.label}
                style={{ top: `${row.top + RULER}px`, height: `${row.height}px` }}
              >
                {row.label}
              </div>
            ))}
          </div>
          <canvas
            ref={canvas}
            onPointerDown={down}
            onPointerMove={move}
            onPointerUp={up}
            onPointerCancel={up}
            onPointerLeave={() => setTip(null)}
          />
          {tip && (
            <div class="tipline" aria-hidden="true">
              <span class={tip.left ? "tip before" : "tip"} style={{ left: `${tip.x}px`, top: `${tip.y}px` }}>
                {tip.text}
              </span>
            </div>
          )}
        </div>
      </div>
      <PhaseKey phases={phasesIn(have?.slices ?? null)} />
      {problem && (
        <p class="worst small" role="alert">
          {problem}
        </p>
      )}
    </>
  )
}
