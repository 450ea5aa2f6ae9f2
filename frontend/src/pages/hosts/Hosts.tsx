// The hosts of a job: which one is late and when, how their clocks ran, and what the attempts of the job achieved.
import { useSteadyData } from "../../api/data"
import type { Attempt, Hosts as Found, Heat } from "../../api/types"
import { to } from "../../app/address"
import type { PageProps } from "../../app/pages"
import { count, duration, MISSING, share } from "../../app/units"
import { Go } from "../../parts/Go"
import { Part } from "../../parts/Part"
import { about, RunPage } from "../../parts/RunPage"
import { Facts } from "../../parts/Small"
import { Empty, Show } from "../../parts/States"
import { type Column, Table } from "../../parts/Table"
import { cells, LEVELS } from "./heat"
import "./hosts.css"

export default function Hosts({ params }: PageProps) {
  const run = params.run as string
  const path = about(run, "/hosts")
  const found = useSteadyData<Found>(path)
  return (
    <RunPage run={run} title="Hosts">
      {() => (
        <Show of={found} path={path} what="Reading hosts and attempts">
          {data => <Whole run={run} data={data} />}
        </Show>
      )}
    </RunPage>
  )
}

function Whole({ run, data }: { run: string; data: Found }) {
  if (!data.goodput && !data.clocks.length && !data.heat) {
    return <Empty title="One host, one attempt">There is nothing to compare: this run has a single host.</Empty>
  }
  return (
    <>
      <h1>Hosts</h1>
      {data.goodput && <Goodput of={data.goodput} />}
      {data.heat && <HeatMap run={run} heat={data.heat} />}
      {data.clocks.length > 0 && (
        <Part title="Clocks of the hosts" told={data.about_clocks}>
          <Table caption="Clocks" columns={CLOCKS} rows={data.clocks} keyOf={one => one.host} />
        </Part>
      )}
    </>
  )
}

function Goodput({ of: found }: { of: NonNullable<Found["goodput"]> }) {
  return (
    <Part title="Attempts" told={`${capital(found.line)}.${found.advice ? ` ${found.advice}` : ""}`}>
      <Facts
        of={{
          goodput: share(found.share),
          "in steps that count": duration(found.steps_ns),
          "in repeated steps": duration(found.repeated_ns),
          "between attempts": duration(found.between_ns),
          "starting, saving, interrupted": duration(found.other_ns),
          "in all": duration(found.whole_ns),
        }}
      />
      <Table caption="Attempts" columns={ATTEMPTS} rows={found.attempts} keyOf={one => String(one.number)} />
    </Part>
  )
}

const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1)

const ATTEMPTS: Column<Attempt>[] = [
  { key: "number", title: "attempt", cell: one => one.number },
  { key: "ranks", title: "ranks", cell: one => count(one.ranks) },
  {
    key: "after",
    title: "after",
    about: "Time since the end of the previous attempt",
    cell: one => (one.waited_ns === null ? "" : duration(one.waited_ns)),
  },
  { key: "ran", title: "ran", cell: one => duration(one.ran_ns) },
  {
    key: "steps",
    title: "steps",
    cell: one => (one.first_step === null ? MISSING : `${count(one.first_step)} to ${count(one.last_step)}`),
  },
  { key: "repeated", title: "repeated later", cell: one => count(one.repeated) },
  { key: "time", title: "time repeated", cell: one => duration(one.repeated_ns) },
]

const CLOCKS: Column<Found["clocks"][number]>[] = [
  { key: "host", title: "host", text: true, cell: one => one.host },
  { key: "ranks", title: "ranks", cell: one => count(one.ranks) },
  { key: "ahead", title: "ahead", cell: one => one.ahead },
  { key: "error", title: "maximum error", cell: one => one.error },
  { key: "drift", title: "drift", cell: one => one.drift },
  { key: "basis", title: "based on", text: true, wide: true, cell: one => one.basis },
  {
    key: "set",
    title: "clock was set",
    text: true,
    cell: one => <span class={one.jumps ? "worst" : "soft"}>{one.was_set}</span>,
  },
]

function HeatMap({ run, heat }: { run: string; heat: Heat }) {
  const place = (at: number) => {
    const value = heat.first + at * heat.width
    return heat.unit === "step" ? count(Math.round(value)) : duration(Math.round(at * heat.width))
  }
  const pieces = heat.hosts[0]?.late_ns.length ?? 0
  return (
    <Part
      title="Hosts over the run"
      told="How much longer the slowest rank of each host takes than that of the median host. The host that is late most comes first."
    >
      <section
        class={heat.hosts.length > 40 ? "hostheat thin" : "hostheat"}
        aria-label="Hosts over the run"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls can be reached by keyboard
        tabIndex={0}
      >
        {heat.hosts.map(one => (
          <div key={one.host}>
            <span title={one.host}>{one.host}</span>
            <svg viewBox={`0 0 ${pieces} 1`} preserveAspectRatio="none" role="img" aria-label={summary(one)}>
              {cells(one, heat.high_ns).map(cell => (
                <rect
                  key={cell.at}
                  x={cell.at}
                  width={cell.width}
                  height={1}
                  fill-opacity={0.06 + (0.94 * cell.level) / LEVELS}
                >
                  <title>{`${one.host}, ${place(cell.at)} to ${place(cell.at + cell.width)}: rank ${cell.rank ?? MISSING} ${duration(cell.late)} longer`}</title>
                </rect>
              ))}
            </svg>
          </div>
        ))}
      </section>
      <p class="soft small">
        {heat.unit === "step" ? "Steps " : ""}
        {place(0)} to {place(pieces)}; the darkest is {duration(heat.high_ns)} or more.{" "}
        <Go to={to.steps(run)}>Steps</Go>
      </p>
    </Part>
  )
}

/** A strip in words: when it was latest. */
function summary(host: Heat["hosts"][number]): string {
  const latest = host.late_ns.reduce<number>((most, late) => Math.max(most, late ?? 0), 0)
  return `${host.host}: at most ${duration(latest)} longer`
}
