// The charts of a page of `sonde report --html`: the same as in `sonde ui`, with the data that the page holds. No address, no server.
import { render } from "preact"
import { useMemo, useState } from "preact/hooks"
import type { Series } from "./api/types"
import { theme } from "./app/theme"
import { shared, Together } from "./parts/chart/cursor"
import type { Range } from "./parts/chart/window"
import { type Change, RunCharts, Surroundings, viewOf } from "./parts/runcharts/RunCharts"
import "./style/report.css"

/** What the page holds: the answers of `/series` for both axes. */
interface Data {
  step: Series | null
  time: Series | null
}

function Charts({ data }: { data: Data }) {
  const [query, setQuery] = useState<Record<string, string>>(data.step ? {} : { axis: "time" })
  const view = viewOf(query)
  const together = useMemo(shared, [])
  const around = useMemo(() => {
    const change: Change = changed =>
      setQuery(before =>
        Object.fromEntries(
          Object.entries({ ...before, ...changed }).flatMap(([name, value]) =>
            value === null ? [] : [[name, String(value)]],
          ),
        ),
      )
    return { change, Step: ({ children }: { children: unknown }) => <b>{children as string}</b> }
  }, [])
  const found = (view.axis === "time" ? data.time : data.step) ?? data.time
  if (!found || found.from === null || found.to === null) return null
  const whole: Range = [found.from, found.to]
  const step = found.series.find(one => one.name === "step")
  const steps = found.series.filter(one => OF_STEPS.test(one.name))
  const samples = found.series.filter(one => !OF_STEPS.test(one.name))
  together.at.value = view.at
  return (
    <Together.Provider value={together}>
      <Surroundings.Provider value={around}>
        <RunCharts
          key={theme.value}
          ranks={[]}
          view={view}
          whole={whole}
          steps={steps}
          samples={samples}
          outline={step}
          together={together}
        />
      </Surroundings.Provider>
    </Together.Provider>
  )
}

const OF_STEPS = /^(step|communication|loss|throughput|phase:.*)$/

window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", event => {
  theme.value = event.matches ? "dark" : "light"
})
const place = document.getElementById("charts")
const data = document.getElementById("charts-data")
if (place && data?.textContent) {
  place.replaceChildren() // what the page shows without a script
  render(<Charts data={JSON.parse(data.textContent) as Data} />, place)
}
