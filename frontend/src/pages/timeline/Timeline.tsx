// The timeline of a run: what every rank, thread and loader worker did when; a span with its path; sums of a stretch.
import { useEffect, useMemo, useRef, useState } from "preact/hooks"
import { useData, useSteadyData } from "../../api/data"
import type { LiveState } from "../../api/live"
import type { FoundName, Lanes, NameSum, Span, Stop } from "../../api/timeline"
import type { Head, Line, Series } from "../../api/types"
import { to } from "../../app/address"
import type { PageProps } from "../../app/pages"
import { place, setQuery } from "../../app/router"
import { lineColour } from "../../app/theme"
import { count, duration, MISSING, plural, rate, share, size } from "../../app/units"
import { panned, type Range, zoomed } from "../../parts/chart/window"
import { Go } from "../../parts/Go"
import { Part } from "../../parts/Part"
import { about, RunPage } from "../../parts/RunPage"
import { Facts } from "../../parts/Small"
import { Empty, Show } from "../../parts/States"
import { type Column, Table } from "../../parts/Table"
import { sliceName } from "../step/bars"
import { Board } from "./Board"
import { clock } from "./layout"
import { focus, pick, picked, shownRange, summed } from "./state"
import "./timeline.css"

export default function Timeline({ params }: PageProps) {
  const run = params.run as string
  return (
    <RunPage run={run} title="Timeline">
      {(head, live) => <Loaded head={head} live={live} />}
    </RunPage>
  )
}

function Loaded({ head, live }: { head: Head; live: LiveState }) {
  const path = about(head.id, "/lanes")
  const found = useData<Lanes>(path)
  return (
    <Show of={found} path={path} what="Reading the lanes">
      {data =>
        data.lanes.length ? (
          <Whole head={head} data={data} version={`${live.step ?? ""} ${live.over ?? ""}`} />
        ) : (
          <Empty title="No spans were recorded">
            A timeline needs a training loop or spans of your own: <code>with sonde.span("name"):</code>. Record with{" "}
            <code>sonde run train.py</code>.
          </Empty>
        )
      }
    </Show>
  )
}

const IDLE = 200 // ms without a move before the address says where one is

/** The window of time: the address has it, and what moves is ahead of it for a moment. */
function useWindow(whole: Range): [Range, (range: Range | null) => void] {
  const [moving, setMoving] = useState<Range | null>(null)
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined)
  useEffect(() => () => clearTimeout(timer.current), [])
  const { from, to: until } = place.value.query
  const [first, last] = whole
  const settled = useMemo(
    () => shownRange({ from, to: until } as Record<string, string>, [first, last]),
    [from, until, first, last],
  )
  const change = (range: Range | null) => {
    setMoving(range ?? whole)
    clearTimeout(timer.current)
    timer.current = setTimeout(() => {
      const all = !range || (range[0] <= whole[0] && range[1] >= whole[1])
      setQuery({ from: all ? null : range[0], to: all ? null : range[1] }, { replace: true })
      setMoving(null)
    }, IDLE)
  }
  return [moving ?? settled, change]
}

function Whole({ head, data, version }: { head: Head; data: Lanes; version: string }) {
  const whole = useMemo<Range>(() => [data.start_ns, data.end_ns], [data.start_ns, data.end_ns])
  const [range, change] = useWindow(whole)
  const query = place.value.query
  const ranks = useMemo(() => [...new Set(data.lanes.map(one => one.rank))].filter(one => one !== null), [data])
  const lanes = useMemo(
    () => (query.rank ? data.lanes.filter(one => String(one.rank) === query.rank) : data.lanes),
    [data, query.rank],
  )
  const { lane, seq, at } = query
  const chosen = useMemo(() => picked({ lane, seq, at }), [lane, seq, at])
  const path =
    chosen && about(head.id, `/events/${encodeURIComponent(chosen.lane)}/${chosen.seq}`, { start: chosen.at })
  const span = useData<Span>(path)
  const links = useMemo(() => span.data?.links ?? [], [span.data])
  const step = (range[1] - range[0]) / 100
  return (
    <>
      <div class="head">
        <h1>Timeline</h1>
        <span class="soft">
          {range[0] === whole[0] && range[1] === whole[1]
            ? `whole run, ${duration(whole[1] - whole[0])}`
            : `${clock(range[0], step)} to ${clock(range[1], step)}, ${duration(range[1] - range[0])} of ${duration(whole[1] - whole[0])}`}
        </span>
      </div>
      <div class="tools">
        <input
          type="search"
          aria-label="Search spans by name"
          placeholder="Search by name: forward, item"
          value={query.q ?? ""}
          onChange={event => setQuery({ q: event.currentTarget.value.trim() || null }, { replace: true })}
        />
        {ranks.length > 1 && (
          <select
            aria-label="Rank"
            value={query.rank ?? ""}
            onChange={event => setQuery({ rank: event.currentTarget.value || null }, { replace: true })}
          >
            <option value="">All ranks</option>
            {ranks.map(one => (
              <option key={one} value={String(one)}>
                rank {one}
              </option>
            ))}
          </select>
        )}
        <span class="choice">
          <button type="button" aria-label="Move left" onClick={() => change(panned(range, whole, -0.3))}>
            ←
          </button>
          <button type="button" aria-label="Zoom in" onClick={() => change(zoomed(range, whole, 0.5))}>
            +
          </button>
          <button type="button" aria-label="Zoom out" onClick={() => change(zoomed(range, whole, 2))}>
            −
          </button>
          <button type="button" aria-label="Move right" onClick={() => change(panned(range, whole, 0.3))}>
            →
          </button>
          <button type="button" onClick={() => change(null)}>
            Whole run
          </button>
        </span>
        <button
          type="button"
          onClick={() => setQuery({ sumfrom: Math.round(range[0]), sumto: Math.round(range[1]) }, { replace: true })}
        >
          Sum what is shown
        </button>
        <Perfetto run={head.id} />
      </div>
      {query.q && <Found run={head.id} q={query.q} whole={whole} />}
      <Board
        run={head.id}
        lanes={lanes}
        whole={whole}
        range={range}
        picked={chosen}
        links={links}
        sought={query.q ?? ""}
        version={version}
        onRange={change}
      />
      <p class="soft small" id="timeline-keys">
        Wheel, two fingers or W and S zoom; drag or A and D pan; arrows up and down scroll. Click selects; N and P go to
        the next and previous span. Drag the axis to sum a range; M sums what is shown. Escape clears.
      </p>
      <Counters run={head.id} range={range} whole={whole} />
      {chosen && path && (
        <Show of={span} path={path} what="Reading the span">
          {found => <Details run={head.id} span={found} whole={whole} />}
        </Show>
      )}
      <Sums run={head.id} rank={query.rank} lanes={lanes.map(one => one.id)} />
    </>
  )
}

function Perfetto({ run }: { run: string }) {
  const [told, setTold] = useState("")
  const save = async () => {
    setTold("Making the file …")
    try {
      const answer = await fetch(about(run, "/perfetto"))
      if (!answer.ok) {
        setTold(((await answer.json()) as { error: string }).error)
        return
      }
      const link = document.createElement("a")
      link.href = URL.createObjectURL(await answer.blob())
      link.download = `${run.replace(/[^\w.-]/g, "_")}.json.gz`
      link.click()
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000)
      setTold("Saved. Open the file at ui.perfetto.dev.")
    } catch {
      setTold("The server does not answer.")
    }
  }
  return (
    <>
      <button type="button" onClick={save}>
        Open in Perfetto
      </button>
      <span class="soft small" role="status">
        {told}
      </span>
    </>
  )
}

function Found({ run, q, whole }: { run: string; q: string; whole: Range }) {
  const path = about(run, "/search", { q, limit: 8 })
  const found = useSteadyData<{ names: FoundName[] }>(path)
  const columns: Column<FoundName>[] = [
    { key: "name", title: "name", text: true, cell: one => sliceName({ ...one, index: null }) },
    { key: "count", title: "spans", cell: one => count(one.count) },
    { key: "total", title: "total", cell: one => duration(one.total_ns) },
    { key: "longest", title: "longest", cell: one => duration(one.longest_ns) },
    {
      key: "go",
      title: "go to",
      cell: one => (
        <>
          {(["first", "longest"] as const).map(which => (
            <button
              key={which}
              type="button"
              class="link"
              aria-label={`Go to the ${which} ${one.name}`}
              onClick={() => setQuery({ ...pick(one[which]), ...focus(one[which].start_ns, one[which].dur_ns, whole) })}
            >
              {which}&nbsp;
            </button>
          ))}
        </>
      ),
    },
  ]
  return (
    <Show of={found} path={path} what="Searching">
      {data =>
        data.names.length ? (
          <Table
            narrow
            caption={`Names with ${q}`}
            columns={columns}
            rows={data.names}
            keyOf={one => `${one.cat}.${one.name}`}
          />
        ) : (
          <p class="soft">No span has {q} in its name. Search for a part of it, such as forward.</p>
        )
      }
    </Show>
  )
}

function Details({ run, span, whole }: { run: string; span: Span; whole: Range }) {
  const { event, links } = span
  const index = event.cat === "probe" && event.name === "item" ? event.key : null
  const args = event.args && typeof event.args === "object" ? JSON.stringify(event.args) : (event.args as string | null)
  return (
    <Part
      title={sliceName({ ...event, index })}
      more={
        <button type="button" class="link" onClick={() => setQuery(focus(event.start_ns, event.dur_ns, whole))}>
          Zoom to it
        </button>
      }
    >
      <Facts
        of={{
          took: event.dur_ns === null ? "not ended" : duration(event.dur_ns),
          "into the run": clock(event.start_ns, 1e5),
          rank: event.rank === null ? null : String(event.rank),
          category: event.cat || null,
          failed: event.error ? "yes" : null,
        }}
      />
      {links.length > 0 && (
        <ol class="stops" aria-label="From the item to its step">
          {links.map(one => (
            <li key={one.kind}>
              <Go to={page(run, one)}>{stopName(one)}</Go>{" "}
              <button
                type="button"
                class="link small"
                aria-label={`Show ${stopName(one)} here`}
                onClick={() =>
                  setQuery({ ...(one.seq === null ? {} : pick(one)), ...focus(one.start_ns, one.dur_ns, whole) })
                }
              >
                show
              </button>
            </li>
          ))}
        </ol>
      )}
      {args && <pre>{args}</pre>}
    </Part>
  )
}

function stopName(stop: Stop): string {
  if (stop.kind === "item") return `item ${stop.index ?? MISSING}`
  if (stop.kind === "step") return `step ${stop.step ?? MISSING}`
  const name = `batch ${stop.batch}, round ${stop.round}`
  return stop.kind === "fetch" ? `loading of ${name}` : name
}

function page(run: string, stop: Stop): string | null {
  if (stop.kind === "item") return typeof stop.index === "number" ? to.item(run, { index: stop.index, id: null }) : null
  const { rank = null, step, process, loader, round, batch } = stop
  if (stop.kind === "step") return typeof step === "number" ? to.step(run, rank, step, { process }) : null
  if (loader === undefined || round === undefined || batch === undefined) return null
  return to.batch(run, { rank, loader, round, batch, process: process ?? null })
}

function Sums({ run, rank, lanes }: { run: string; rank: string | undefined; lanes: string[] }) {
  const range = summed(place.value.query)
  const path = range && about(run, "/selection", { from: range[0], to: range[1], lanes: rank ? lanes.join(",") : null })
  const found = useSteadyData<{ names: NameSum[] }>(path)
  if (!range || !path) return null
  const length = range[1] - range[0]
  const columns: Column<NameSum>[] = [
    { key: "name", title: "name", text: true, cell: one => sliceName({ ...one, index: null }) },
    { key: "count", title: "spans", cell: one => count(one.count) },
    { key: "busy", title: "total", cell: one => duration(one.busy_ns) },
    {
      key: "share",
      title: "of the range",
      about: "Several lanes at once can add up to more than 100 %",
      cell: one => share(one.busy_ns === null ? null : one.busy_ns / length),
    },
    { key: "longest", title: "longest", cell: one => duration(one.longest_ns) },
  ]
  return (
    <Part
      title="Sum of the range"
      told={`${duration(length)}, from ${clock(range[0], length / 100)}${rank ? `, rank ${rank}` : ", all lanes"}. Nested spans count in each.`}
      more={
        <>
          <button type="button" class="link" onClick={() => setQuery({ from: range[0], to: range[1] })}>
            Zoom to it
          </button>
          <button type="button" class="link" onClick={() => setQuery({ sumfrom: null, sumto: null })}>
            Clear
          </button>
        </>
      }
    >
      <Show of={found} path={path} what="Summing up">
        {data =>
          data.names.length ? (
            <Table
              narrow
              caption="Sum by name"
              columns={columns}
              rows={data.names}
              keyOf={one => `${one.cat}.${one.name}`}
            />
          ) : (
            <p class="soft">There are no spans in this range. Select a wider one.</p>
          )
        }
      </Show>
    </Part>
  )
}

const TITLES: Record<string, string> = {
  rss: "memory",
  device: "device memory",
  cpu: "CPU",
  host_cpu: "host CPU",
  gpu: "GPU",
  disk: "disk",
}

function Counters({ run, range, whole }: { run: string; range: Range; whole: Range }) {
  const all = range[0] <= whole[0] && range[1] >= whole[1]
  const path = about(run, "/counters", all ? {} : { from: range[0], to: range[1] })
  const [settled, setSettled] = useState(path)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(path), IDLE)
    return () => clearTimeout(timer)
  }, [path])
  const found = useSteadyData<Series>(settled)
  const groups = new Map<string, Line[]>()
  for (const line of found.data?.series ?? []) {
    const kind = line.name.split(":")[0] as string
    groups.set(kind, [...(groups.get(kind) ?? []), line])
  }
  if (!groups.size) return null
  return (
    <section class="counters" aria-label="Counters">
      {[...groups].map(([kind, lines]) => (
        <Strip key={kind} title={TITLES[kind] ?? kind} lines={lines} range={range} />
      ))}
    </section>
  )
}

function Strip({ title, lines, range }: { title: string; lines: Line[]; range: Range }) {
  const most = lines.flatMap(one => one.max).reduce<number>((high, value) => Math.max(high, value ?? 0), 0)
  const unit = lines[0]?.unit ?? ""
  const text =
    unit.startsWith("B") || unit.startsWith("bytes")
      ? `${size(most)}${unit.includes("/s") ? "/s" : ""}`
      : `${rate(most)} ${unit}`
  const x = (ns: number) => (1000 * (ns - range[0])) / (range[1] - range[0])
  const points = (line: Line) =>
    line.x.flatMap((at, place) => {
      const value = line.y[place]
      return value === null || value === undefined
        ? []
        : [`${x(at).toFixed(1)},${(96 - (90 * value) / (most || 1)).toFixed(1)}`]
    })
  return (
    <>
      <span>
        {title}
        <br />
        up to {text}
      </span>
      <svg
        viewBox="0 0 1000 100"
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}: ${plural(lines.length, "line")}, up to ${text}`}
      >
        {lines.map((line, at) => (
          <polyline
            key={`${line.name} ${line.rank}`}
            points={points(line).join(" ")}
            fill="none"
            stroke={lineColour(at)}
            stroke-width="1.4"
            vector-effect="non-scaling-stroke"
          />
        ))}
      </svg>
    </>
  )
}
