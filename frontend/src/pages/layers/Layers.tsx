// The model: where its time and memory go, as an icicle and as a tree; a layer leads to its history.
import { useMemo } from "preact/hooks"
import { useData } from "../../api/data"
import type { Head, LayerNode, Num } from "../../api/types"
import { to } from "../../app/address"
import { useCommands } from "../../app/commands"
import type { PageProps } from "../../app/pages"
import { place, setQuery } from "../../app/router"
import { brief, count, duration, MISSING, numeric, plural, share, size } from "../../app/units"
import { Go } from "../../parts/Go"
import { about, RunPage } from "../../parts/RunPage"
import { Choice, Meter } from "../../parts/Small"
import { Empty, Show } from "../../parts/States"
import { type Column, type Sorted, Table } from "../../parts/Table"
import { below, boxes, cost, type Metric } from "./icicle"
import "./layers.css"

export default function Layers({ params }: PageProps) {
  const run = params.run as string
  const path = about(run, "/layers")
  const found = useData<{ layers: LayerNode[] }>(path)
  return (
    <RunPage run={run} title="Layers">
      {head => (
        <Show of={found} path={path} what="Reading the layers">
          {data => (data.layers.length ? <Model head={head} nodes={data.layers} /> : <NoLayers />)}
        </Show>
      )}
    </RunPage>
  )
}

function NoLayers() {
  return (
    <Empty title="No layers recorded">
      Record them with <code>sonde deep train.py</code>, or <code>sonde run --deep train.py</code>.
    </Empty>
  )
}

const METRICS = [
  ["time", "Time"],
  ["memory", "Activations"],
  ["parameters", "Parameters"],
] as const

function Model({ head, nodes }: { head: Head; nodes: LayerNode[] }) {
  const { query } = place.value
  const metric: Metric = query.by === "memory" || query.by === "parameters" ? query.by : "time"
  const root = nodes.find(one => one.layer === query.part)
  const shown = useMemo(() => below(nodes, root?.layer), [nodes, root])
  const leaves = nodes.filter(one => one.steps !== null)
  const compiled = nodes.filter(one => one.compiled).length
  useCommands(
    useMemo(
      () =>
        nodes
          .filter(one => one.steps !== null)
          .map(one => ({ name: one.layer, hint: one.type ?? "layer", to: to.layer(head.id, one.layer) })),
      [nodes, head.id],
    ),
  )
  return (
    <>
      <h1>Layers</h1>
      <p class="told">
        {plural(leaves.length, "layer")}. Times are means over the steps that have the layer.
        {compiled > 0 && ` ${plural(compiled, "layer")} inside torch.compile cannot be seen.`}
      </p>
      <div class="tools">
        <Choice
          label="Width of the boxes"
          options={METRICS}
          value={metric}
          onChoose={by => setQuery({ by: by === "time" ? null : by })}
        />
        {root && (
          <>
            <button type="button" onClick={() => setQuery({ part: root.parent })}>
              Up
            </button>
            <button type="button" onClick={() => setQuery({ part: null })}>
              Whole model
            </button>
            <span class="soft small">{root.layer}</span>
          </>
        )}
      </div>
      <Icicle run={head.id} nodes={shown} metric={metric} />
      <Tree head={head} nodes={shown} />
    </>
  )
}

const LEVEL = 30 // px of a level
const WIDE = 0.035 // of the width: narrower boxes have no room for a name

function amount(node: LayerNode, metric: Metric): string {
  return metric === "time" ? duration(cost(node, "time")) : size(cost(node, metric))
}

function Icicle({ run, nodes, metric }: { run: string; nodes: LayerNode[]; metric: Metric }) {
  const found = useMemo(() => boxes(nodes, metric), [nodes, metric])
  const levels = found.reduce((most, one) => Math.max(most, one.level + 1), 0)
  const whole = found.filter(one => one.level === 0).reduce((sum, one) => sum + cost(one.node, metric), 0)
  if (!found.length) return <p class="soft">This was not recorded.</p>
  return (
    <nav class="icicle" aria-label="Model as boxes" style={{ height: `${levels * LEVEL}px` }}>
      {found.map(({ node, left, width, level }) => {
        const told = `${node.layer}: ${amount(node, metric)}, ${share(cost(node, metric) / (whole || 1))}${node.type ? `, ${node.type}` : ""}`
        const style = {
          left: `${100 * left}%`,
          width: `${100 * width}%`,
          top: `${level * LEVEL}px`,
        }
        const text = width > WIDE ? node.name : ""
        return node.inside ? (
          <button
            key={node.layer}
            type="button"
            class="group"
            style={style}
            title={told}
            aria-label={`Show ${told}`}
            onClick={() => setQuery({ part: node.layer })}
          >
            {text}
          </button>
        ) : (
          <a
            key={node.layer}
            href={to.layer(run, node.layer)}
            class="leaf"
            style={style}
            title={told}
            aria-label={told}
          >
            {text}
          </a>
        )
      })}
    </nav>
  )
}

const MOST = 400 // rows; deeper ones are opened by a click on their part

function Tree({ head, nodes }: { head: Head; nodes: LayerNode[] }) {
  const { query } = place.value
  const { sort, order } = query
  const sorted = useMemo<Sorted | undefined>(
    () => (sort ? { by: sort, order: order === "asc" ? "asc" : "desc" } : undefined),
    [sort, order],
  )
  const rows = useMemo(() => (sorted ? flat(nodes, sorted) : nodes), [nodes, sorted])
  const top = nodes[0]?.depth ?? 0
  return (
    <>
      {sorted && (
        <p class="told">
          Sorted.{" "}
          <button type="button" class="link" onClick={() => setQuery({ sort: null, order: null })}>
            Show the tree
          </button>
        </p>
      )}
      <Table
        caption="Layers"
        columns={columns(head, nodes, sorted ? null : top)}
        rows={rows.slice(0, MOST)}
        keyOf={row => row.layer}
        {...(sorted ? { sorted } : {})}
        onSort={now => setQuery({ sort: now.by, order: now.order })}
      />
      {rows.length > MOST && (
        <p class="soft small">
          {plural(rows.length - MOST, "further row")} not listed. Open a part of the model by its box or its name.
        </p>
      )}
    </>
  )
}

const KEYS: Record<string, (node: LayerNode) => number | string | null> = {
  layer: one => one.layer,
  share: one => one.share,
  forward: one => one.forward_ns,
  backward: one => one.backward_ns,
  activation: one => one.activation_bytes,
  parameters: one => one.parameter_bytes,
  norm: one => number(one.learned.gradient_norm),
  ratio: one => number(one.learned.update_ratio),
  dead: one => number(one.learned.dead),
}

const number = (value: Num | null): number | null => (value === null ? null : numeric(value))

/** The layers alone, in an order; what is not known stands last. */
function flat(nodes: LayerNode[], sorted: Sorted): LayerNode[] {
  const key = KEYS[sorted.by] ?? (() => null)
  const sign = sorted.order === "asc" ? 1 : -1
  return nodes
    .filter(one => one.inside === 0)
    .sort((a, b) => {
      const [left, right] = [key(a), key(b)]
      if (left === null || right === null) return left === right ? 0 : left === null ? 1 : -1
      return left < right ? -sign : left > right ? sign : 0
    })
}

function columns(head: Head, nodes: LayerNode[], top: number | null): Column<LayerNode>[] {
  const learned = nodes.some(one => one.learned.samples > 0)
  const dead = nodes.some(one => one.learned.dead !== null)
  const more: Column<LayerNode>[] = [
    {
      key: "norm",
      title: "gradient norm",
      about: "Median over the sampled steps",
      sort: "desc",
      cell: one => <Norm node={one} />,
    },
    {
      key: "ratio",
      title: "update / weight",
      about: "Size of an update relative to the weights, median",
      sort: "desc",
      cell: one => (one.learned.update_ratio === null ? "" : brief(one.learned.update_ratio)),
    },
  ]
  return [
    { key: "layer", title: "layer", text: true, sort: "asc", cell: one => <Name head={head} node={one} top={top} /> },
    { key: "type", title: "type", text: true, wide: true, cell: one => <span class="soft">{one.type ?? ""}</span> },
    { key: "meter", title: "", text: true, wide: true, cell: one => <Meter part={one.share} /> },
    { key: "share", title: "share", sort: "desc", cell: one => (one.compiled ? "compiled" : share(one.share)) },
    { key: "forward", title: "forward", sort: "desc", cell: one => duration(one.forward_ns) },
    { key: "backward", title: "backward", sort: "desc", cell: one => duration(one.backward_ns) },
    {
      key: "activation",
      title: "activations",
      about: "The largest output; of a part, the sum of its layers",
      sort: "desc",
      cell: one => size(one.activation_bytes),
    },
    { key: "parameters", title: "parameters", sort: "desc", wide: true, cell: one => size(one.parameter_bytes) },
    ...(learned ? more : []),
    ...(dead
      ? [
          {
            key: "dead",
            title: "dead units",
            about: "Maximum over the sampled steps",
            sort: "desc" as const,
            cell: (one: LayerNode) => (one.learned.dead === null ? "" : share(number(one.learned.dead))),
          },
        ]
      : []),
  ]
}

function Norm({ node }: { node: LayerNode }) {
  const bad = number(node.learned.nonfinite) ?? 0
  if (bad > 0) return <span class="worst">NaN in {share(bad)}</span>
  return <>{node.learned.gradient_norm === null ? "" : brief(node.learned.gradient_norm)}</>
}

function Name({ head, node, top }: { head: Head; node: LayerNode; top: number | null }) {
  const indent = { paddingLeft: `${top === null ? 0 : Math.min(node.depth - top, 12) * 18}px` }
  const name = top === null ? node.layer : node.name
  return (
    <span style={indent}>
      {node.inside ? (
        <button type="button" class="link" onClick={() => setQuery({ part: node.layer })}>
          {name} <span class="soft">({count(node.inside)})</span>
        </button>
      ) : (
        <Go to={to.layer(head.id, node.layer)}>{name || "(the model)"}</Go>
      )}
      {node.steps === null && !node.inside && MISSING}
    </span>
  )
}
