// The places of layers in an icicle: each part of the model above what is in it, as wide as what it costs.
import type { LayerNode } from "../../api/types"

export type Metric = "time" | "memory" | "parameters"

export interface Box {
  node: LayerNode
  /** Shares of the whole width. */
  left: number
  width: number
  level: number
}

export function cost(node: LayerNode, metric: Metric): number {
  if (metric === "memory") return node.activation_bytes ?? 0
  if (metric === "parameters") return node.parameter_bytes ?? 0
  return (node.forward_ns ?? 0) + (node.backward_ns ?? 0)
}

/** A part of the model and all below it; without a name, or with one that is not there, all of it. */
export function below(nodes: LayerNode[], root: string | undefined): LayerNode[] {
  const at = nodes.findIndex(one => one.layer === root)
  const top = nodes[at]
  return top ? nodes.slice(at, at + 1 + top.inside) : nodes
}

const NARROW = 0.0005 // of the width: what is narrower cannot be seen

/** Boxes from the top. Of a layer that takes less than what is in it says (clocks differ), these share its width. */
export function boxes(nodes: LayerNode[], metric: Metric): Box[] {
  const names = new Set(nodes.map(one => one.layer))
  const inside = new Map<string | null, LayerNode[]>()
  for (const one of nodes) {
    const parent = one.parent !== null && names.has(one.parent) ? one.parent : null
    inside.set(parent, [...(inside.get(parent) ?? []), one])
  }
  const found: Box[] = []
  const place = (parent: string | null, left: number, width: number, whole: number, level: number) => {
    const parts = [...(inside.get(parent) ?? [])].sort((a, b) => cost(b, metric) - cost(a, metric))
    const sum = parts.reduce((all, one) => all + cost(one, metric), 0)
    const scale = width / (Math.max(sum, whole) || 1)
    let at = left
    for (const node of parts) {
      const own = cost(node, metric) * scale
      if (own >= NARROW) {
        found.push({ node, left: at, width: own, level })
        place(node.layer, at, own, cost(node, metric), level + 1)
      }
      at += own
    }
  }
  place(null, 0, 1, 0, 0)
  return found
}
